"""The plan of a run: requests, tokens and money by stage and model."""

import importlib

import msgspec

from orchestrator import numbers
from orchestrator.tables import make_table, table_columns


class StageCount(msgspec.Struct, frozen=True):
    """One line of the plan.

    Attributes:
        name: Of the stage.
        model: Who is asked.
        total: Requests of the whole plan.
        held: Of these, outcomes the store holds.
        left: Requests still to be sent, at most where not `exact`.
        exact: True if `total` and `left` are exact; else they are upper bounds.
        max_tokens: Generated tokens of what is left, at most.
        not_needed: Of `total`, requests that a stopping rule has found to be not needed.
        method: Name of the method that asks; the first of those that share these requests.
        known: False if the method does not say how many requests it sends, or sent more than it
            said: `total` and `left` are then what is seen so far, and no bound.
    """

    name: str
    model: str
    total: int
    held: int
    left: int
    exact: bool
    max_tokens: int
    not_needed: int = 0
    method: str = ""
    known: bool = True


class Plan(msgspec.Struct, frozen=True):
    """Requests, tokens and cost of a planned run, by stage and model.

    Attributes:
        n_items: Number of items of the dataset.
        n_units: Number of units.
        stages: Requests, tokens and money by stage and model.
        money: Upper bound of what is left to pay; None if a model has no price, or it is not known
            how many requests are left.
        one_by_one: The same where no model is asked in batches.
        in_batches: The same where each model is that may have them.
        notes: What limits these numbers, in words.
        servers: Where servers run, and in which waves, a line each; empty if all run at once.
        at_least: Requests that are left however soon a stopping rule settles every order; None
            without a stopping rule.
        reused: Run directories to copy from, with the number of outcomes of each.
        is_estimate: True if the numbers rest on some of the items only.
        fault: What a method did wrong when its units were tried; empty for nothing.
    """

    n_items: int
    n_units: int
    stages: tuple[StageCount, ...]
    money: float | None
    notes: tuple[str, ...]
    servers: tuple[str, ...] = ()
    at_least: int | None = None
    reused: tuple[tuple[str, int], ...] = ()
    is_estimate: bool = False
    fault: str = ""
    one_by_one: float | None = None
    in_batches: float | None = None

    @property
    def left(self) -> int:
        """Requests still to be sent, at most; at least where not `is_known`."""
        return sum(stage.left for stage in self.stages)

    @property
    def is_known(self) -> bool:
        """True if every method says how many requests it sends, at most."""
        return all(stage.known for stage in self.stages)

    def to_json(self) -> str:
        """Return the plan as JSON, as `orchestrator plan --json` prints it.

        Returns:
            The text.

        Example:
            >>> orchestrator.plan("pairwise_ranking").to_json()  # doctest: +SKIP
        """
        return msgspec.json.encode(self).decode()

    def _repr_html_(self) -> str:
        """Return the stages as a table, for a notebook."""
        said = (
            f"{numbers.counted(self.n_items, 'item')}, {numbers.counted(self.n_units, 'unit')}, "
            f"at {'most' if self.is_known else 'least'} "
            f"{numbers.counted(self.left, 'request')} left to send",
            *self.notes,
        )
        columns = table_columns(
            "stage | model | total: count | held: count | left: count | max_tokens: count"
        )
        rows = [(s.name, s.model, s.total, s.held, s.left, s.max_tokens) for s in self.stages]
        html = importlib.import_module("orchestrator.report.html.shell")  # only for a notebook
        return str(html.notebook((), said, [make_table("plan", "Plan", columns, rows)]))
