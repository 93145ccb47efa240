"""What a run would send: requests per stage, what the store holds, tokens and money at most."""

import math
from collections import Counter
from collections.abc import Callable, Mapping

from orchestrator.driver import Driver
from orchestrator.plan import Plan, PlanCount, StageCount
from orchestrator.records import Failure, Outcome
from orchestrator.runner.budget import Price

# Characters of text that make a token, for bounds on prompts nobody has tokenised yet. Deliberately
# low: an estimate that is too high disappoints nobody.
_CHARACTERS_PER_TOKEN = 2.5


Lookup = Callable[[bytes], Outcome | Failure | None]


def count_plan(
    plan: Plan, lookup: Lookup, systems: Mapping[str, str], prices: Mapping[str, Price]
) -> PlanCount:
    """Count by driving every unit against the store without sending anything."""
    held, missing, n_turns = _drive(plan, lookup, systems)
    n_items = len(plan.items)
    stages = []
    for stage in plan.stages():
        n_times = n_turns if stage.per_turn else n_items
        total = stage.per_item * n_times
        key = (stage.ask, stage.model)
        have = min(held[key], total)
        held[key] -= have
        # What is asked after an answer that is not there yet is not among what is missing.
        exact = stage.exact and n_times == n_items
        left = missing[key] if exact else total - have
        stages.append(
            StageCount(
                name=stage.name,
                model=stage.model,
                total=total,
                held=have,
                left=min(left, total - have),
                exact=exact,
                max_tokens=stage.max_tokens * min(left, total - have),
            )
        )
    stages.extend(_observations(missing, plan))
    notes = []
    if not all(stage.exact for stage in stages):
        notes.append(
            "at most: what equal answers and failures leave out is known only afterwards; "
            "requests that are tried again come on top"
        )
    return PlanCount(n_items, len(plan), tuple(stages), _money(stages, plan, prices), tuple(notes))


def _observations(missing: Counter[tuple[str, str]], plan: Plan) -> list[StageCount]:
    """Stored draws that lack what is to be observed: their tokens are scored, not drawn again."""
    planned = {(stage.ask, stage.model) for stage in plan.stages()}
    return [
        StageCount("observations", model, count, 0, count, exact=True, max_tokens=0)
        for (kind, model), count in sorted(missing.items())
        if kind == "score" and (kind, model) not in planned
    ]


def _drive(
    plan: Plan, lookup: Lookup, systems: Mapping[str, str]
) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]], int]:
    """Asks that the store answers and asks that it does not, by kind and model, each key once.

    And the number of turns of all items.

    Keys are shared within an item only, so each item has a driver of its own and memory stays flat.
    """
    held: Counter[tuple[str, str]] = Counter()
    missing: Counter[tuple[str, str]] = Counter()
    n_turns = 0
    for first in range(0, len(plan), max(1, plan.n_per_item)):
        n_turns += 1 + len(plan.work(first).unit.item.followups)
        seen: set[bytes] = set()
        found: dict[bytes, Outcome | Failure | None] = {}

        def remember(
            key: bytes, found: dict[bytes, Outcome | Failure | None] = found
        ) -> Outcome | Failure | None:
            if key not in found:
                found[key] = lookup(key)
            return found[key]

        driver = Driver(plan, remember, systems, watch=_counting(held, seen))
        for position in range(first, min(first + plan.n_per_item, len(plan))):
            driver.open(position)
        missing.update((request.kind, request.ask.model) for request in driver.outbox)
        driver.close()
    return held, missing, n_turns


def _counting(
    held: Counter[tuple[str, str]], seen: set[bytes]
) -> Callable[[bytes, str, str], None]:
    def count(key: bytes, kind: str, model: str) -> None:
        if key not in seen:
            seen.add(key)
            held[kind, model] += 1

    return count


def _money(stages: list[StageCount], plan: Plan, prices: Mapping[str, Price]) -> float | None:
    """Upper bound of what is left, from the length of the items and the bounds on answers."""
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
        total += (tokens_in * price.input + stage.max_tokens * price.output) / 1e6
    return total
