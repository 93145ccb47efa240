"""What `check` and `plan` do grows with what they count: steps of Python, not seconds, are held.

The same recipe is prepared and counted with a number of models, items or methods, and with two and
four times as many. Steps may grow as the units of one item do (pairs of models are many), or as
what was multiplied; a loop inside a loop over them would show.
"""

import itertools
import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType
from typing import Any

import pytest

from orchestrator.driver import Driver
from orchestrator.interface.checking import prepared_from
from orchestrator.records import Choice, Generation
from orchestrator.runner.planning.counts import count_plan, count_prepared
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.planning.similar_items import notes_on_items
from orchestrator.runner.servers.machine import inventory
from orchestrator.runner.servers.placement import placed

# Beyond what was multiplied: a logarithm, and rounding of small numbers.
SLACK = 1.3
JUDGED = Choice((-0.5, -1.0), (-0.5, -1.0), "top_logprobs", 3, 0, 1)


def steps(call: Callable[[], object]) -> int:
    """Instructions that Python executes, as often as it does."""
    n = 0

    def trace(frame: FrameType, event: str, value: object) -> Any:
        nonlocal n
        n += 1
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return n


PAIRWISE: Mapping[str, object] = {
    "kind": "pairwise_ranking", "judges": ["judge"], "answer": {"max_tokens": 4},
}  # fmt: skip
METHODS: tuple[Mapping[str, object], ...] = (
    PAIRWISE,
    {"kind": "answers"},
    {"kind": "pointwise", "judges": ["judge"], "answer": {"max_tokens": 4}},
    {"kind": "peer_elo", "answer": {"max_tokens": 4}},
    {"kind": "pairwise_scoring", "judges": ["judge"], "answer": {"max_tokens": 4}},
)


def read(folder, *, models=4, items=4, methods=(PAIRWISE,)) -> Prepared:
    """A recipe of so many models, items and methods, read from its file."""
    judged = any("judges" in method for method in methods)
    names = [*(f"m{n}" for n in range(models)), *(["judge"] if judged else [])]
    recipe = {
        "name": "grown",
        "models": {name: {"server": "scripted", "weights": f"{name}:0.5"} for name in names},
        "dataset": {"kind": "demo", "n": items},
        "methods": list(methods),
    }
    file = folder / f"{models}-{items}-{len(methods)}.yaml"
    file.write_text(json.dumps(recipe, indent=1), encoding="utf-8")
    return prepared_from(str(file), allow_code=False)


def counted(folder, **size) -> tuple[int, int, int]:
    """Units of an item, steps of reading and preparing a recipe, and of counting its plan."""
    prepared = read(folder, **size)

    def count() -> None:
        notes_on_items(prepared)
        placed(prepared, inventory(prepared.recipe.settings.resources))
        count_prepared(prepared, None, exact=False)

    count()  # imports
    return prepared.plan.n_per_item, steps(lambda: read(folder, **size)), steps(count)


def assert_grows(measured):
    """See that steps grow no faster than the units of an item, or than what was doubled.

    What is added is compared, not the sums, so that what a call costs once hides nothing.
    """
    added = [
        [more - few for few, more in zip(before, after, strict=True)]
        for before, after in itertools.pairwise(measured)
    ]
    ratios = [more / max(few, 1) for few, more in zip(*added, strict=True)]
    assert max(ratios[1:]) <= SLACK * max(ratios[0], 2), (measured, ratios)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method["kind"])
def test_steps_grow_as_the_units_of_an_item(tmp_path, method):
    measured = [counted(tmp_path, models=n, methods=[method]) for n in (8, 16, 32)]
    assert_grows(measured)


def test_steps_grow_as_the_items(tmp_path):
    assert_grows([counted(tmp_path, items=n) for n in (10, 20, 40)])


def test_steps_grow_as_the_methods(tmp_path):
    several = [[{**PAIRWISE, "name": f"p{n}"} for n in range(k)] for k in (2, 4, 8)]
    assert_grows([counted(tmp_path, methods=methods) for methods in several])


def test_a_plan_of_many_models_drives_some_of_their_pairs(tmp_path):
    found = []
    for models in (30, 60):
        plan = read(tmp_path, models=models, items=2).plan
        n_steps = steps(
            partial(count_plan, plan, lambda _: None, {}, {}, None, bytearray(), most=200)
        )
        found.append((plan.n_per_item, n_steps))
    (n, few), (n_more, more) = found
    assert n_more > 3.8 * n
    assert more < SLACK * 2 * few


def test_pairs_that_are_driven_stand_for_all(tmp_path):
    """A quarter of the judgments is held: counted whole, and by some pairs of one item."""
    plan = read(tmp_path, models=40, items=1).plan
    driver = Driver(plan, lambda _: None, {})
    for position in range(40):
        driver.open(position)
    answers = {request.key for request in driver.outbox}
    driver.close()

    def held(key: bytes) -> Generation | Choice | None:
        if key in answers:
            return Generation(key.hex(), "stop")
        return JUDGED if key[0] < 64 else None

    whole = count_plan(plan, held, {}, {})
    part = count_plan(plan, held, {}, {}, None, bytearray(), most=700)
    assert part.is_estimate
    assert not whole.is_estimate
    for one, other in zip(whole.stages, part.stages, strict=True):
        assert (one.name, one.model, one.total) == (other.name, other.model, other.total)
        assert other.held == pytest.approx(one.held, abs=0.1 * one.total)
        assert other.left == other.total - other.held
