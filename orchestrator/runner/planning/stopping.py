"""Sequential stopping: the rule of a recipe, and what the rows led to."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import msgspec
import numpy as np

from orchestrator.errors import StoreError, UsageError
from orchestrator.ranking.orders import orders_table
from orchestrator.recipe.schema import Recipe, StopWhen
from orchestrator.scheduler.blocks import Blocks, Ranking, Slot, StoppingRule
from orchestrator.statistics.ranking import RankingAnalysis
from orchestrator.statistics.sequential import PairOrder
from orchestrator.store import Store
from orchestrator.tables import Table
from orchestrator.units import Plan

NOT_NEEDED = "units not needed"
"""The number of a plan, and how many of its units a stopping rule found to be not needed."""
RULE = "stopping rule"

_STOPPED = (
    "stopped when orders were settled (statistics.stop_when): ratings, win rates, ranks "
    "and their intervals rest on more prompts for some pairs than for others, and the "
    "intervals do not account for the stopping; rely on the orders declared by the "
    "sequential test"
)


def find_rule(recipe: Recipe, settings: StopWhen, plan: Plan) -> StoppingRule:
    """The stopping rule of a recipe.

    Raises:
        UsageError: If no method of the recipe says on each prompt which of two models is better, or
            the rule asks for as many best models as there are.
    """
    of_dataset = settings.population == "dataset"
    rankings, slots = _rankings(plan)
    _check(recipe, settings, rankings)
    asked_for = {method.name for method in recipe.methods}
    sizes: tuple[int, ...] = ()
    if plan.clusters is not None and not of_dataset:
        # Items of a cluster stand together.
        begins = np.flatnonzero(np.diff(plan.clusters)) + 1
        sizes = tuple(np.diff([0, *begins, len(plan.items)]).tolist())
    return StoppingRule(
        n_items=len(plan.items),
        block=settings.block,
        error=1.0 - recipe.settings.statistics.confidence_level,
        population=len(plan.items) if of_dataset else None,
        top=settings.top,
        rankings=tuple(rankings),
        slots=tuple(slots),
        feeds=tuple(
            # What the recipe itself asks for is never left out.
            () if part.name in asked_for else tuple(plan.fed_by(which))
            for which, (part, _) in enumerate(plan.combinations)
        ),
        sizes=sizes,
    )


def _check(recipe: Recipe, settings: StopWhen, rankings: Sequence[Ranking]) -> None:
    """Refuse a rule for which there are no models to order, and a goal that these do not have."""
    if not rankings:
        names = ", ".join(method.name for method in recipe.methods)
        raise UsageError(
            f"statistics.stop_when: cannot order models with {names}; this needs two candidates "
            "and a method that compares models on each prompt: pairwise_ranking, pairwise_scoring "
            "or pointwise"
        )
    fewest = min(len(ranking.models) for ranking in rankings)
    if settings.top is not None and settings.top >= fewest:
        raise UsageError(
            f"statistics.stop_when.top: the top {settings.top} of {fewest} models are all of "
            "them; omit it to settle every order"
        )


def _rankings(plan: Plan) -> tuple[list[Ranking], list[Slot | None]]:
    """Return the rankings, and the place of each combination's value in them."""
    rankings: list[Ranking] = []
    numbers: dict[tuple[str, str], int] = {}
    slots: list[Slot | None] = []
    for part, combination in plan.combinations:
        compared = part.method.compared()
        of_pairs = "model_a" in part.columns
        if compared is None or len(part.candidates) < 2:
            slots.append(None)
            continue
        key = (part.name, combination.judge)
        if key not in numbers:
            numbers[key] = len(rankings)
            ranking = Ranking(
                method=part.name,
                judge=combination.judge,
                frame=part.frame,
                models=part.candidates,
                column=list(part.columns).index(compared.column),
                low=compared.low,
                high=compared.high,
                of_pairs=of_pairs,
            )
            rankings.append(ranking)
        number = numbers[key]
        at = [part.candidates.index(model) for model in combination.models]
        if len(at) == 1:
            slot = Slot(number, at[0])
        else:
            pairs = list(combinations(range(len(part.candidates)), 2))
            slot = Slot(number, pairs.index((min(at), max(at))), at[0] > at[1])
        slots.append(slot)
    return rankings, slots


def remember_not_needed(blocks: Blocks | None, plan_id: int, store: Store) -> None:
    """Keep the number of units that are not needed, for whoever counts what is left."""
    if blocks is not None or store.meta.get(NOT_NEEDED) is not None:
        store.set_meta(NOT_NEEDED, f"{plan_id} {0 if blocks is None else blocks.n_not_needed}")


def open_blocks(rule: StoppingRule, store: Store | None, done: bytearray) -> Blocks:
    """Return the blocks as the rows of the current plan leave them, or without a store as none do.

    The store is read once, as far as the rows compare models. `done` has one byte a position; units
    that are not needed are marked too.
    """
    blocks = Blocks(rule, done)
    if store is not None and (plan_id := store.current_plan) is not None:
        for frame in sorted({ranking.frame for ranking in rule.rankings}):
            for unit in store.iter_rows(plan_id, frame):
                if done[unit.position]:
                    blocks.put(unit.position, unit.status, unit.rows)
    blocks.start()
    return blocks


class Orders(msgspec.Struct, frozen=True):
    """The orders that a run declared.

    Attributes:
        rule: By which.
        n_not_needed: Units that were not asked, because they could not change an order.
        n_left: Units that are still to be done.
        pairs: By ranking.
    """

    rule: StoppingRule
    n_not_needed: int
    n_left: int
    pairs: list[list[PairOrder]]


def read_orders(store: Store) -> Orders | None:
    """Return the orders that the current plan's rows have settled; None without a stopping rule.

    Raises:
        StoreError: If the rule is damaged.
    """
    plan_id, text = store.current_plan, store.meta.get(RULE)
    if plan_id is None or text is None:
        return None
    try:
        rule = msgspec.json.decode(text, type=StoppingRule | None)
    except msgspec.MsgspecError as error:
        raise StoreError(f"{store.path}: the stopping rule is damaged: {error}") from error
    if rule is None:
        return None
    n_units = rule.n_items * len(rule.slots)
    if n_units != store.n_units(plan_id):
        raise StoreError(f"{store.path}: the stopping rule is damaged: it is of {n_units:,} units")
    done = store.done_bitmap(plan_id, n_units)
    blocks = open_blocks(rule, store, done)
    n_left = blocks.ended.count(0)
    return Orders(rule, blocks.n_not_needed, n_left, blocks.orders())


def tables_of(orders: Orders, analyses: Sequence[RankingAnalysis] = ()) -> list[Table]:
    """One table a ranking, with the warning of its analysis where the judge is not trusted."""
    rule = orders.rule
    warnings = {(one.source, one.judge): one.warning for one in analyses}
    tables = [
        orders_table(
            ranking.method,
            ranking.judge,
            ranking.models,
            pairs,
            error=rule.error,
            n_items=rule.n_items,
            block=rule.block,
            n_clusters=len(rule.sizes) or None,
            of_dataset=rule.population is not None,
            top=rule.top,
            is_finished=not orders.n_left,
        )
        for ranking, pairs in zip(rule.rankings, orders.pairs, strict=True)
    ]
    return [
        msgspec.structs.replace(table, warning=warnings.get((one.method, one.judge), ""))
        for one, table in zip(rule.rankings, tables, strict=True)
    ]


def declared_only(analysis: RankingAnalysis, orders: Orders) -> RankingAnalysis:
    """A ranking whose models are told apart by the declared orders, and by nothing else.

    Its p-values and the intervals of its differences are those of a sample of a size that was fixed
    beforehand, and would not say what the orders say.
    """
    # Only results need it: it imports polars, which no request waits for.
    from orchestrator.ranking.analysis import with_decisions  # noqa: PLC0415

    # Adjusted p-values of declared orders, by the better and the worse model.
    known: dict[tuple[str, str], float] = {}
    for ranking, declared in zip(orders.rule.rankings, orders.pairs, strict=True):
        if (ranking.method, ranking.judge) == (analysis.source, analysis.judge):
            for order in declared:
                a, b = ranking.models[order.first], ranking.models[order.second]
                if order.better:
                    known[(a, b) if order.better > 0 else (b, a)] = order.p
    pairs = tuple(
        replace(
            pair,
            low=None,
            high=None,
            level=None,
            p_value=None,
            adjusted_p=known.get((pair.better, pair.worse)),
        )
        for pair in analysis.pairs
    )
    found = replace(analysis, pairs=pairs, notes=(_STOPPED, *analysis.notes))
    return with_decisions(
        found,
        lambda pair: not (found.warning or found.caution) and (pair.better, pair.worse) in known,
    )
