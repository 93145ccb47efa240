"""Counts of a run's requests by stage, with bounds on tokens and money, and the time it takes."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from orchestrator.backend import PLAIN, Batch, is_private
from orchestrator.disk.paths import STORE_NAME, is_foreign
from orchestrator.driver import Lookup
from orchestrator.errors import OrchestratorError
from orchestrator.recipe.schema import ModelSpec, Price
from orchestrator.records import Failure, Outcome
from orchestrator.report import planned
from orchestrator.report.planned import Duration, StageCount
from orchestrator.report.progress import ModelProgress
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.planning.revisions import last_revision
from orchestrator.runner.planning.stopping import open_blocks
from orchestrator.runner.planning.tally import Group, Mark, Tally, by_end, count, drawn, drawn_units
from orchestrator.scheduler.blocks import Blocks
from orchestrator.store import RunDirectory, Store
from orchestrator.units import Plan

# Characters of text that make a token, for bounds on prompts nobody has tokenised yet. Deliberately
# low: an estimate that is too high disappoints nobody.
_CHARACTERS_PER_TOKEN = 2.5
# Of the units to drive, for those of one method on a single item.
_PARTS = 10


def count_plan(  # noqa: PLR0913 (what it counts, and how)
    plan: Plan,
    lookup: Lookup,
    systems: Mapping[str, str],
    prices: Mapping[str, Price],
    blocks: Blocks | None = None,
    ended: bytearray | None = None,
    advance: Callable[[int], None] = lambda _: None,
    *,
    most: int = 20_000,
) -> planned.Plan:
    """Count by driving units against the store without sending anything.

    Where `ended` is given, of a plan of more than `most` units about so many are driven. It has one
    byte a position, 1 where the unit has ended; empty where none has, or it is not known. Items
    whose units have all ended ask nothing more, so few of them are driven. `advance` is called with
    the number of items that are counted now.
    """
    n_sure, is_part = 0, False
    if blocks is not None:
        n_sure = max(blocks.n_items_open, blocks.rule.fewest_items())
    sure, unsure, n_driven = Tally(), Tally(), 0
    for group in _groups(plan, n_sure, ended, most):
        tally = count(plan, group, lookup, systems, blocks, advance)
        n_driven += len(group.driven)
        is_part |= group.units is not None
        if group.items[0] < n_sure:
            sure = sure.add(tally)
        else:
            unsure = unsure.add(tally)
    tally = sure.add(unsure)
    stages = _stages(plan, tally)
    stages.extend(_observations(tally.missing, plan))
    notes = []
    if not all(stage.exact for stage in stages if stage.known):
        notes.append("at most: equal answers and failures reduce the number; retries add to it")
    if unsaid := sorted({stage.method for stage in stages if not stage.known and stage.method}):
        notes.append(
            f"at least: {', '.join(unsaid)} does not say how many requests it sends, or sends "
            "more than its `stages` say"
        )
    is_estimate = n_driven < len(plan.items) or is_part
    if is_estimate:
        by = f"{n_driven:,} of {len(plan.items):,} items"
        by += ", and some pairs of their models" if is_part else ""
        notes.append(
            f"about: by {by}; orchestrator plan --exact counts all in about "
            f"{1e-4 * len(plan):,.0f} s"
        )
    at_least = None if blocks is None else sum(stage.left for stage in _stages(plan, sure))
    return planned.Plan(
        tally.n_items,
        len(plan),
        tuple(stages),
        _money(stages, plan, prices),
        tuple(notes),
        at_least=at_least,
        is_estimate=is_estimate,
        fault=tally.fault,
    )


def count_prepared(
    prepared: Prepared,
    store: Store | None,
    *,
    exact: bool = True,
    advance: Callable[[int], None] = lambda _: None,
) -> planned.Plan:
    """`count_plan` of a run that is prepared, with or without a store.

    Where `exact`, every unit is driven, also of a large plan.
    """
    ended, blocks = _ended(prepared, store), None
    if prepared.rule is not None:
        # Of a plan that the store has not opened yet, the numbers are upper bounds.
        done = bytearray(ended) if ended else bytearray(len(prepared.plan))
        blocks = open_blocks(prepared.rule, store if ended else None, done)
    if prepared.retry:
        ended = bytearray()
    specs = [prepared.models[name] for name in prepared.identities]
    counted = count_plan(
        prepared.plan,
        _lookup(prepared, store),
        prepared.systems,
        {spec.name: paid for spec in specs if (paid := spec.paid) is not None},
        blocks,
        None if exact else ended,
        advance,
    )
    stages, plan = list(counted.stages), prepared.plan
    priced = [(spec, spec.price) for spec in specs if spec.price is not None]
    alone = {spec.name: price for spec, price in priced}
    in_batches = {spec.name: price.times(_share_in_batches(spec)) for spec, price in priced}
    counted = msgspec.structs.replace(
        counted, one_by_one=_money(stages, plan, alone), in_batches=_money(stages, plan, in_batches)
    )
    if prepared.lenders is None:
        return counted
    return msgspec.structs.replace(counted, reused=tuple(prepared.lenders.n_found.items()))


def _ended(prepared: Prepared, store: Store | None) -> bytearray:
    """One byte a position, 1 where the unit has ended under this very plan; else empty."""
    plan_id = None if store is None else store.current_plan
    if store is None or plan_id is None or not store.is_current_plan(prepared.plan.hash()):
        return bytearray()
    return store.done_bitmap(plan_id, len(prepared.plan))


def _groups(plan: Plan, n_sure: int, ended: bytearray | None, most: int) -> Iterator[Group]:
    """Yield groups of items, each with those of its items that are to be driven.

    Items that are asked in any case (the first `n_sure`) are kept apart from the others, and items
    that have ended from those that ask more, of which more are driven.
    """
    everything = range(len(plan.items))
    if ended is None or len(plan) <= most:
        parts = (everything[:n_sure], everything[n_sure:])
        yield from (Group(part, part) for part in parts if part)
        return
    rng = np.random.default_rng(plan.seed)
    done, to_do = by_end(ended, plan.n_per_item)
    if not ended:
        to_do = np.arange(len(plan.items))
    units = None
    if plan.n_per_item > most:
        # Many models: one item alone is more than is driven.
        units = drawn_units(plan, most // _PARTS, rng)
    for items, n_units in ((done, most // 20), (to_do, most)):
        for part in (items[items < n_sure], items[items >= n_sure]):
            if len(part):
                group = drawn(part, n_units, plan.n_per_item, rng)
                yield msgspec.structs.replace(group, units=units)


def count_group(
    prepared: Prepared, store: Store, blocks: Blocks | None, group: Group
) -> list[StageCount]:
    """Count the requests of some items, by driving their units as `count_plan` drives all."""
    plan = prepared.plan
    tally = count(plan, group, _lookup(prepared, store), prepared.systems, blocks)
    return [*_stages(plan, tally), *_observations(tally.missing, plan)]


def _lookup(prepared: Prepared, store: Store | None) -> Lookup:
    places: list[Lookup] = [] if store is None else [store.get]
    if prepared.lenders is not None:
        places.append(prepared.lenders.get)

    def find(key: bytes) -> Outcome | Failure | None:
        for get in places:
            found = get(key)
            is_retried = isinstance(found, Failure) and prepared.retry in (found.cause, "all")
            if found is not None and not is_retried:
                return found
        return None

    return find


def _stages(plan: Plan, tally: Tally) -> list[StageCount]:
    # Requests of units that are not needed, by stage.
    unneeded: Counter[Mark] = Counter()
    for which, n_items in tally.skipped.items():
        part, combination = plan.combinations[which]
        for stage in part.stages(combination.models):
            if stage.model == combination.gate:
                n_times = tally.skipped_turns[which] if stage.per_turn else n_items
                unneeded[stage.mark] += stage.per_item * n_times
    stages = []
    for part, stage in plan.stages():
        if stage.model in plan.given:
            continue  # nobody is asked
        mark = stage.mark
        n_times = tally.n_turns if stage.per_turn else tally.n_items
        total = stage.per_item * n_times
        skipped = min(total, unneeded[mark])
        have = min(tally.held[mark], total - skipped)
        # Not what is missing now: a rewriting is asked only after its answer is there. But a unit
        # that has ended, as one whose answer failed, asks nothing more.
        n_open = tally.open_turns[mark] if stage.per_turn else tally.open_items[mark]
        # Estimates from some of the items are rounded one by one.
        still_open = max(0, stage.per_item * n_open - tally.held_open[mark])
        left = min(still_open, total - skipped - have)
        is_bound = stage.known and not tally.beyond[stage.ask, stage.model]
        if not is_bound:
            left = tally.missing[stage.ask, stage.model]
            total = max(total, have + left)
        stages.append(
            StageCount(
                name=stage.name,
                model=stage.model,
                total=total,
                held=have,
                left=left,
                exact=stage.exact and n_times == tally.n_items,
                max_tokens=stage.max_tokens * left,
                not_needed=skipped,
                method=part.name,
                # Where nothing waits for an answer, nothing more is asked.
                known=is_bound or not left,
            )
        )
    return stages


def _observations(missing: Counter[tuple[str, str]], plan: Plan) -> list[StageCount]:
    """Requests of no stage: scores of stored draws that lack an observation, and what is unsaid."""
    planned = {(stage.ask, stage.model) for _, stage in plan.stages()}
    return [
        StageCount("observations", model, n, 0, n, exact=True, max_tokens=0)
        if kind == "score"
        else StageCount(kind, model, n, 0, n, exact=False, max_tokens=0, known=False)
        for (kind, model), n in sorted(missing.items())
        if (kind, model) not in planned
    ]


def _share_in_batches(spec: ModelSpec) -> float:
    """The share of its price that a model costs in batches, 1 where it can have none."""
    if spec.entry.batch is not None:
        return spec.entry.batch.price
    is_hosted = spec.base_url is not None and spec.backend == PLAIN and not spec.base_urls
    return Batch().price if is_hosted and not is_private(spec.base_url or "") else 1.0


def _money(stages: list[StageCount], plan: Plan, prices: Mapping[str, Price]) -> float | None:
    """Upper bound of what is left, from the length of the items and the bounds on answers."""
    if not all(stage.known for stage in stages):
        return None
    if not prices or any(stage.model not in prices for stage in stages if stage.left):
        return None
    answer_tokens = max((stage.max_tokens // max(1, stage.left) for stage in stages), default=0)
    n_items = len(plan.items)
    sample = range(0, n_items, max(1, n_items // 200))
    characters = [sum(len(m.content) for m in plan.items.item(i).messages) for i in sample]
    prompt = math.ceil(max(characters, default=0) / _CHARACTERS_PER_TOKEN) + 500
    total = 0.0
    for stage in stages:
        price = prices.get(stage.model, Price())
        tokens_in = stage.left * (prompt + (2 * answer_tokens if stage.name != "answers" else 0))
        total += price.of(tokens_in, stage.max_tokens)
    return total


# The time that a plan takes, from the pace of the same models in earlier runs.
#
# Models work side by side and a run ends with the slowest, so the time is that of the model with
# most to do at its pace. A pace is seconds of a call for each request that it ended, which holds
# waiting for servers and for other models too. It differs between runs, so the time is a range.


_MOST_RUNS: Final = 50
# A call with fewer requests of a model is mostly waiting for its server to start.
_LEAST_REQUESTS: Final = 20
# Calls of one recipe differ by this factor: other lengths of answers, other load of the servers.
_FACTOR: Final = 2.0


Paces = Mapping[str, Mapping[str, float]]
"""Seconds of a call for each request to a model that ended, by earlier run and model."""


def earlier_paces(prepared: Prepared, where: Path) -> Paces:
    """Return the paces of this run and of its neighbours, the newest first.

    The other runs in the folder of `where` are read too; models count as the same where identity,
    server and address are.
    """
    dated = []
    for store in where.parent.glob("*/" + STORE_NAME):
        with suppress(OSError):
            if not is_foreign(store.parent):
                dated.append((store.stat().st_mtime_ns, store.parent))
    found = {}
    for _, run in sorted(dated, reverse=True)[:_MOST_RUNS]:
        try:
            seconds = _pace_of(prepared, run)
        except (OrchestratorError, OSError, msgspec.MsgspecError, TypeError, ValueError):
            # A run that can't be read tells nothing.
            continue
        if seconds:
            found[run.name] = seconds
    return found


def _pace_of(prepared: Prepared, run: Path) -> dict[str, float]:
    directory = RunDirectory.open(run)
    status, revision = directory.status(), last_revision(directory)
    if status is None or revision is None or not status.values.get("requests_sent"):
        # The last call sent nothing, so its seconds are not those of its requests.
        return {}
    models = msgspec.convert(status.values.get("models", ()), tuple[ModelProgress, ...])
    elapsed = msgspec.convert(status.values.get("elapsed_s"), float)
    by_name = {one.name: one for one in models}
    seconds = {}
    for name, same in _same(prepared, revision).items():
        one = by_name.get(same)
        if one is not None and one.done >= _LEAST_REQUESTS and elapsed > 0:
            seconds[name] = elapsed / one.done
    return seconds


def _same(prepared: Prepared, revision: Mapping[str, Any]) -> dict[str, str]:
    """Names of this plan's models, by which the other recipe has the same on the same server."""
    mine = prepared.recipe.resolved()["models"]
    theirs = revision["recipe"].get("models", {})
    found = {}
    for name, identity in prepared.identities.items():
        for other, of_other in revision["identities"].items():
            is_same = of_other == identity and all(
                mine.get(name, {}).get(key) == theirs.get(other, {}).get(key)
                for key in ("server", "base_url", "replicas")
            )
            if is_same:
                found[name] = other
                break
    return found


def duration_of(stages: Sequence[StageCount], paces: Paces) -> Duration:
    """Return the time that the requests of a plan take."""
    left: dict[str, int] = {}
    for stage in stages:
        if stage.left:
            left[stage.model] = left.get(stage.model, 0) + stage.left
    if not left:
        return Duration(0.0, 0.0)
    known: dict[str, list[float]] = {name: [] for name in left}
    runs = []
    for run, pace in paces.items():
        if known.keys() & pace.keys():
            runs.append(run)
        for name in known.keys() & pace.keys():
            known[name].append(pace[name])
    missing = tuple(name for name, seconds in known.items() if not seconds)
    if missing:
        return Duration(missing=missing)
    fastest = max(n * min(known[name]) for name, n in left.items())
    slowest = max(n * max(known[name]) for name, n in left.items())
    return Duration(fastest / _FACTOR, slowest * _FACTOR, runs=tuple(runs))
