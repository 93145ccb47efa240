"""Parts of an item that a method can't do without, looked for before anything is sent."""

from typing import Any, Protocol

from orchestrator.errors import UsageError
from orchestrator.methods._base import Method
from orchestrator.records import Item


class Items(Protocol):
    """Items by 0-based index."""

    def __len__(self) -> int: ...

    def item(self, index: int) -> Item:
        """Return an item."""
        ...


def check_needs(kind: str, method: Method, config: Any, items: Items) -> None:  # noqa: ANN401
    """See that a method can work with these items, before anything is sent.

    One item that has what is needed is enough: the others become failed units, each with its cause.

    Raises:
        UsageError: If the method needs a part of an item that no item has.
    """
    needs = getattr(method, "needs", None)
    for name in sorted(needs(config)) if needs is not None else ():
        if len(items) and all(
            getattr(items.item(index), name) is None for index in range(len(items))
        ):
            raise UsageError(
                f"{kind}: its prompt shows the {name} of each item, and no item has one; say which "
                f"column holds it by dataset: {{fields: {{{name}: COLUMN}}}}, or use another prompt"
            )
