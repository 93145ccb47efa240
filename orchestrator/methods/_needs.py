"""Parts of an item that a method can't do without, looked for before anything is sent."""

from typing import Protocol

from orchestrator.contracts.method import Method, MethodSettings
from orchestrator.errors import UsageError
from orchestrator.records import Item


class Items(Protocol):
    """Items by 0-based index."""

    def __len__(self) -> int: ...

    def item(self, index: int) -> Item:
        """Return an item."""
        ...


def check_needs(kind: str, method: Method[MethodSettings], items: Items) -> None:
    """See that a method can work with these items, before anything is sent.

    One item that has what is needed is enough: the others become failed units, each with its cause.

    Raises:
        UsageError: If the method needs a part of an item that no item has.
    """
    for name in sorted(method.needs()):
        if len(items) and all(
            getattr(items.item(index), name) is None for index in range(len(items))
        ):
            raise UsageError(
                f"{kind}: its prompt shows the {name} of each item, and no item has one; set "
                f"its column with dataset: {{fields: {{{name}: COLUMN}}}}, or use another prompt"
            )
