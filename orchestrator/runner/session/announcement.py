"""Announcement of a call before it sends: progress of the run, or effects of a changed recipe.

To count a plan, each of its units is driven against the store (`counts.count_plan`), which takes
minutes for a million. A run must not wait for that: of many items, some are drawn.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from orchestrator.report.planned import StageCount
from orchestrator.runner.planning.counts import count_group
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.planning.tally import Group, Ints, by_end, drawn
from orchestrator.runner.session.execute import Opened
from orchestrator.store import Store

# Units driven, at most, of the items that are done and of the others: 0.1 s each.
_DRIVEN: Final = 1_000


class _Counted(msgspec.Struct, frozen=True):
    """Requests of some of the plan's items.

    Attributes:
        stages: Of all of these items.
        group: The items, and on which of them the numbers rest.
    """

    stages: list[StageCount]
    group: Group


def announce(prepared: Prepared, opened: Opened, store: Store) -> list[str]:
    """Describe the changes since the last call and their effects, in one line."""
    if not opened.changes:
        done = opened.done.count(1) - opened.n_not_needed
        left = opened.done.count(0)
        return [f"resuming: {done:,} units done, {left:,} to do"] if done and left else []
    ended, begun = by_end(opened.done, prepared.plan.n_per_item)
    rng = np.random.default_rng(prepared.recipe.settings.seed)
    to_do = _count(prepared, opened, store, begun, rng)
    kept = _count(prepared, opened, store, ended, rng)
    return [f"{'; '.join(opened.changes)}: {_said(to_do, kept)}"]


def _count(
    prepared: Prepared, opened: Opened, store: Store, items: Ints, rng: np.random.Generator
) -> _Counted:
    group = drawn(items, _DRIVEN, prepared.plan.n_per_item, rng)
    return _Counted(count_group(prepared, store, opened.blocks, group), group)


def _said(left: _Counted, kept: _Counted) -> str:
    """Describe the requests to send, and those to keep.

    Args:
        left: Of items with units that have not ended.
        kept: Of the others: they ask nothing more, also where one failed for good.
    """
    is_estimate = left.group.is_sample
    asked = [
        f"{_bound(stage)}{_number(stage.left, is_estimate)} {stage.name} to request"
        for stage in _by_name(left.stages)
        if stage.left
    ]
    if not asked:
        asked = ["few or no requests to send" if is_estimate else "nothing to send"]
    is_sample = is_estimate or kept.group.is_sample
    held = [
        f"{_number(stage.held, is_sample)} {stage.name} kept"
        for stage in _by_name([*left.stages, *kept.stages])
        if stage.held
    ]
    said = ", ".join([*asked, *held])
    if not is_sample:
        return said
    n_driven = len(left.group.driven) + len(kept.group.driven)
    n_items = len(left.group.items) + len(kept.group.items)
    return f"{said} (by {n_driven:,} of {n_items:,} items; `orchestrator plan --exact` counts all)"


def _bound(stage: StageCount) -> str:
    if not stage.known:
        return "at least "
    return "" if stage.exact else "at most "


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
                known=old.known and stage.known,
            )
        )
    return list(merged.values())
