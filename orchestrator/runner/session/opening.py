"""The plan of a run in its store: what is done, what a change means, and what comes first.

To count a plan, each of its units is driven against the store (`counts.count_plan`), which takes
minutes for a million. A run must not wait for that: of many items, some are drawn.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from orchestrator.disk.paths import STORE_NAME, shown
from orchestrator.errors import UsageError
from orchestrator.report.planned import StageCount
from orchestrator.runner.planning.counts import count_group
from orchestrator.runner.planning.prepare import Prepared, describe_change
from orchestrator.runner.planning.revisions import REVISION, revision_of, revision_text
from orchestrator.runner.planning.stopping import RULE, open_blocks, remember_not_needed
from orchestrator.runner.planning.tally import Group, by_end, drawn
from orchestrator.runner.results.stored import plan_values
from orchestrator.scheduler.blocks import Blocks
from orchestrator.store import RunDirectory, Store

# Units driven, at most, of the items that are done and of the others: 0.1 s each.
_DRIVEN: Final = 1_000


class Opened(msgspec.Struct, frozen=True):
    """A plan in its store.

    Attributes:
        plan_id: Its number there.
        done: One byte a position.
        changes: What differs from the call before, in words.
        blocks: Which units are needed, where the recipe has a stopping rule. Those that are not
            are marked in `done`.
    """

    plan_id: int
    done: bytearray
    changes: list[str]
    blocks: Blocks | None = None

    @property
    def n_left(self) -> int:
        """Units that are still to be done."""
        return self.done.count(0)

    @property
    def n_not_needed(self) -> int:
        """Units that the stopping rule has found to be not needed."""
        return 0 if self.blocks is None else self.blocks.n_not_needed


def check_retry(run: Path, cause: str) -> None:
    """See that a run has failures of a cause, or any where it is "all", or has units left.

    Raises:
        UsageError: If there are none; it names those that there are.
    """
    kept, is_begun = Counter[str](), False
    if (run / STORE_NAME).exists():
        with Store.open(run / STORE_NAME, read_only=True) as store:
            for failure in store.failures():
                kept[failure.cause] += failure.n
            # The command that was interrupted goes on.
            plan = store.current_plan
            is_begun = plan is not None and store.n_ended(plan) < store.n_units(plan)
    if not (is_begun or (kept.total() if cause == "all" else kept[cause])):
        there = ", ".join(f"{name} ({n:,})" for name, n in kept.most_common() if n)
        raise UsageError(
            f"{shown(run)}: no request that failed by {cause!r} is there to retry; there are: "
            f"{there or 'none of any cause'}"
        )


def open_plan(prepared: Prepared, run_dir: RunDirectory, store: Store) -> Opened:
    """Find what of the plan is done, and write a revision if the recipe changed."""
    plan = prepared.plan
    before = revision_of(run_dir, prepared.recipe.name)
    changes = describe_change(before, prepared.identities, prepared.recipe)
    record = {"identities": prepared.identities, "recipe": prepared.recipe.resolved()}
    text = revision_text(record)
    # Reports and gates read from the last revision what they compute, and at which level.
    read = ("analyses", "statistics", "gates")
    known, wanted = (before or {}).get("recipe", {}), record["recipe"]
    is_other = changes or any(known.get(key) != wanted.get(key) for key in read)
    if before is None or before.get("identities") != record["identities"] or is_other:
        run_dir.write_revision(text)
    plan_hash = plan.hash()
    is_current = store.is_current_plan(plan_hash)
    rule = msgspec.json.encode(prepared.rule).decode()
    # Readers take the recipe from there, with the plan; `runs repair` restores the file.
    values = {**plan_values(plan), RULE: rule, REVISION: text}
    plan_id = store.open_plan(plan_hash, len(plan), values)
    if not is_current:
        hashes = ((position, plan.unit_hash(position)) for position in range(len(plan)))
        store.adopt(plan_id, hashes)
    done = store.done_bitmap(plan_id, len(plan))
    blocks = None if prepared.rule is None else open_blocks(prepared.rule, store, done)
    remember_not_needed(blocks, plan_id, store)
    return Opened(plan_id, done, changes, blocks)


def announce(prepared: Prepared, opened: Opened, store: Store) -> list[str]:
    """Describe the changes since the last call and their effects, in one line."""
    if not opened.changes:
        done = opened.done.count(1) - opened.n_not_needed
        left = opened.n_left
        return [f"resuming: {done:,} units done, {left:,} to do"] if done and left else []
    ended, begun = by_end(opened.done, prepared.plan.n_per_item)
    rng = np.random.default_rng(prepared.recipe.settings.seed)
    # Of what is to do and what is kept, requests, and on which items their numbers rest.
    groups = [drawn(some, _DRIVEN, prepared.plan.n_per_item, rng) for some in (begun, ended)]
    counts = [count_group(prepared, store, opened.blocks, group) for group in groups]
    to_do, kept = zip(counts, groups, strict=True)
    return [f"{'; '.join(opened.changes)}: {_said(to_do, kept)}"]


def _said(left: tuple[list[StageCount], Group], kept: tuple[list[StageCount], Group]) -> str:
    """Describe the requests to send, and those to keep.

    Items whose units have all ended are kept: they ask nothing more, also where one failed for
    good.
    """
    (stages, group), (kept_stages, kept_group) = left, kept
    is_estimate = group.is_sample
    asked = [
        f"{_bound(alike)}{_number(n, is_estimate)} {name} to request"
        for name, alike in _by_name(stages).items()
        if (n := sum(stage.left for stage in alike))
    ]
    if not asked:
        asked = ["few or no requests to send" if is_estimate else "nothing to send"]
    is_sample = is_estimate or kept_group.is_sample
    held = [
        f"{_number(n, is_sample)} {name} kept"
        for name, alike in _by_name([*stages, *kept_stages]).items()
        if (n := sum(stage.held for stage in alike))
    ]
    said = ", ".join([*asked, *held])
    if not is_sample:
        return said
    n_driven = len(group.driven) + len(kept_group.driven)
    n_items = len(group.items) + len(kept_group.items)
    return f"{said} (by {n_driven:,} of {n_items:,} items; `orchestrator plan --exact` counts all)"


def _bound(stages: Sequence[StageCount]) -> str:
    if not all(stage.known for stage in stages):
        return "at least "
    return "" if all(stage.exact for stage in stages) else "at most "


def _number(value: int, is_estimate: bool) -> str:  # noqa: FBT001 (of a number, whether it is one)
    """A number, of an estimate its first two digits."""
    return f"about {float(f'{value:.2g}'):,.0f}" if is_estimate else f"{value:,}"


def _by_name(stages: Sequence[StageCount]) -> dict[str, list[StageCount]]:
    found: dict[str, list[StageCount]] = {}
    for stage in stages:
        found.setdefault(stage.name, []).append(stage)
    return found
