"""The plan of a run as Python users see it."""

from html import escape
from typing import Any

import msgspec

from orchestrator import numbers
from orchestrator.units import PlanCount


class Plan(PlanCount, frozen=True):
    """What a run would send, by stage and model.

    Attributes:
        n_items: Number of items of the dataset.
        n_units: Number of units.
        stages: Requests, tokens and money by stage and model.
        money: Upper bound of what is left to pay; None if a model has no price.
        notes: What limits these numbers, in words.
        servers: Where servers run, and in which waves, a line each; empty if all run at once.
        at_least: Requests that are left however soon a stopping rule settles every order; None
            without a stopping rule.
        reused: Run directories to copy from, with the number of outcomes of each.
        is_estimate: True if the numbers rest on some of the items only.
    """

    @classmethod
    def of(cls, counted: PlanCount) -> "Plan":
        """Return the plan with these counts."""
        return cls(**msgspec.structs.asdict(counted))

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
        rows: list[dict[str, Any]] = msgspec.to_builtins(self.stages)
        names = list(rows[0]) if rows else []
        heads = "".join(f"<th>{escape(name)}</th>" for name in names)
        cells = ["".join(f"<td>{escape(str(row[name]))}</td>" for name in names) for row in rows]
        said = [
            f"{numbers.counted(self.n_items, 'item')}, {numbers.counted(self.n_units, 'unit')}, "
            f"at most {numbers.counted(self.left, 'request')} left to send",
            *self.notes,
        ]
        body = "".join(f"<tr>{row}</tr>" for row in (heads, *cells))
        return "".join(f"<p>{escape(line)}</p>" for line in said) + f"<table>{body}</table>"
