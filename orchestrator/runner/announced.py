"""Announcement of a call before it sends: progress of the run, or effects of a changed recipe.

To count a plan, each of its units is driven against the store (`counts.count_plan`), which takes
minutes for a million. A run must not wait for that: of many items, some are drawn.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from orchestrator.runner.counts import Ints, by_end, count_items
from orchestrator.runner.execute import Opened
from orchestrator.runner.prepare import Prepared
from orchestrator.store import Store
from orchestrator.units import StageCount

# Units driven, at most, of the items that are done and of the others: 0.1 s each.
_DRIVEN: Final = 1_000


class _Counted(msgspec.Struct, frozen=True):
    """Requests of some of the plan's items.

    Attributes:
        stages: Of all of these items.
        n_items: How many they are.
        n_driven: On how many of them the numbers rest.
    """

    stages: list[StageCount]
    n_items: int
    n_driven: int

    @property
    def is_sample(self) -> bool:
        """True if the numbers are estimates."""
        return self.n_driven < self.n_items


def announce(prepared: Prepared, opened: Opened, store: Store) -> list[str]:
    """Describe the changes since the last call and their effects, in one line."""
    if not opened.changes:
        done = opened.done.count(1) - opened.n_not_needed
        left = opened.done.count(0)
        return [f"going on: {done:,} units done, {left:,} to do"] if done and left else []
    ended, begun = by_end(opened.done, prepared.plan.n_per_item)
    rng = np.random.default_rng(prepared.recipe.seed)
    to_do = _count(prepared, opened, store, begun, rng)
    kept = _count(prepared, opened, store, ended, rng)
    return [f"{'; '.join(opened.changes)}: {_said(to_do, kept)}"]


def _count(
    prepared: Prepared, opened: Opened, store: Store, indexes: Ints, rng: np.random.Generator
) -> _Counted:
    n_driven = min(len(indexes), max(1, _DRIVEN // prepared.plan.n_per_item))
    drawn = np.sort(rng.choice(indexes, n_driven, replace=False)) if n_driven else indexes
    stages = count_items(prepared, store, opened.blocks, drawn.tolist())
    times = len(indexes) / max(1, n_driven)
    return _Counted([_scaled(stage, times) for stage in stages], len(indexes), n_driven)


def _scaled(stage: StageCount, times: float) -> StageCount:
    numbers = ("total", "held", "left", "max_tokens", "not_needed")
    scaled = {name: round(getattr(stage, name) * times) for name in numbers}
    return msgspec.structs.replace(stage, **scaled)


def _said(left: _Counted, kept: _Counted) -> str:
    """Describe the requests to send, and those to keep.

    Args:
        left: Of items with units that have not ended.
        kept: Of the others: they ask nothing more, also where one failed for good.
    """
    asked = [
        f"{'' if stage.exact else 'at most '}{_number(stage.left, left.is_sample)} "
        f"{stage.name} to ask"
        for stage in _by_name(left.stages)
        if stage.left
    ]
    if not asked:
        asked = ["few requests to ask, or none" if left.is_sample else "nothing to ask"]
    is_sample = left.is_sample or kept.is_sample
    held = [
        f"{_number(stage.held, is_sample)} {stage.name} kept"
        for stage in _by_name([*left.stages, *kept.stages])
        if stage.held
    ]
    said = ", ".join([*asked, *held])
    if not is_sample:
        return said
    n_driven, n_items = left.n_driven + kept.n_driven, left.n_items + kept.n_items
    return f"{said} (by {n_driven:,} of {n_items:,} items; `orchestrator plan --exact` counts all)"


def _number(value: int, is_estimate: bool) -> str:  # noqa: FBT001 (of a number, whether it is one)
    """A number, of an estimate its first two digits."""
    return f"about {float(f'{value:.2g}'):,.0f}" if is_estimate else f"{value:,}"


def _by_name(stages: Sequence[StageCount]) -> list[StageCount]:
    merged: dict[str, StageCount] = {}
    for stage in stages:
        old = merged.get(stage.name)
        merged[stage.name] = (
            stage
            if old is None
            else StageCount(
                stage.name,
                "",
                old.total + stage.total,
                old.held + stage.held,
                old.left + stage.left,
                old.exact and stage.exact,
                old.max_tokens + stage.max_tokens,
            )
        )
    return list(merged.values())
