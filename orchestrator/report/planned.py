"""The plan of a run: requests, tokens and money by stage and model."""

import importlib
from typing import Final

import msgspec

from orchestrator import numbers
from orchestrator.tables import make_table, table_columns

# Models without a pace that a line names.
_MOST_NAMED: Final = 4


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


class Duration(msgspec.Struct, frozen=True):
    """The time that a plan takes, from the pace of earlier runs.

    Attributes:
        low_s: Seconds, at least; None if it is not known.
        high_s: Seconds, at most; None if it is not known.
        runs: Names of the earlier runs that it rests on, the newest first.
        missing: Models of which no earlier run tells the pace.
    """

    low_s: float | None = None
    high_s: float | None = None
    runs: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def words(self) -> str:
        """Return the time and what it rests on, as a line."""
        if self.low_s is None or self.high_s is None:
            n_more = len(self.missing) - _MOST_NAMED
            more = f" and {n_more} more" if n_more > 0 else ""
            names = f"{', '.join(self.missing[:_MOST_NAMED])}{more}"
            return (
                f"Time: not known yet; no earlier run here asked {names}. A run with --subset 20 "
                "tells"
            )
        shown = f"{numbers.duration(self.low_s)} to {numbers.duration(self.high_s)}"
        first, n_more = ", ".join(self.runs[:2]), len(self.runs) - 2
        more = f" and {n_more} more" if n_more > 0 else ""
        return f"Time: about {shown}, by the pace of the same models in {first}{more}"


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
        duration: Time that what is left takes; None where nobody has looked for earlier runs.
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
    duration: Duration | None = None
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
            *([self.duration.words()] if self.duration is not None and self.left else []),
            *self.notes,
        )
        columns = table_columns(
            "stage | model | total: count | held: count | left: count | max_tokens: count"
        )
        rows = [(s.name, s.model, s.total, s.held, s.left, s.max_tokens) for s in self.stages]
        html = importlib.import_module("orchestrator.report.html.shell")  # only for a notebook
        return str(html.notebook((), said, [make_table("plan", "Plan", columns, rows)]))
