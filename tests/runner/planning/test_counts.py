"""Counts of a plan whose items have several turns."""

import numpy as np

from orchestrator.ask import digest
from orchestrator.driver import Driver
from orchestrator.methods import probdiff, samples
from orchestrator.records import Generation, Item, Message
from orchestrator.runner.planning.counts import count_plan
from orchestrator.units import Plan, make_part
from tests.core.fakes import Items, method_in


class Conversations(Items):
    """Items of one turn and of two in turn."""

    def item(self, index: int) -> Item:
        followups = ("and then?",) if index % 2 else ()
        asked = (Message("user", f"question {index}"),)
        return Item(key=f"i{index}", messages=asked, followups=followups)


def counted(module, config, items, lookup=lambda key: None):
    part = make_part("made", method_in(module)(config), ("m",))
    plan = Plan([part], items, {"m": digest("m")}, seed=0)
    return {stage.name: stage for stage in count_plan(plan, lookup, {}, {}).stages}


def test_every_turn_is_counted():
    stages = counted(probdiff, probdiff.Config(), Conversations(4))
    assert (stages["rewritings"].total, stages["scores"].total) == (6, 12)


def test_what_asks_first_turns_only_counts_items():
    stages = counted(samples, samples.Config(n=5), Conversations(4))
    assert stages["samples"].total == 20


def test_what_a_later_turn_asks_is_counted_before_the_first_is_answered():
    stages = counted(probdiff, probdiff.Config(), Conversations(4))
    assert (stages["rewritings"].left, stages["rewritings"].exact) == (6, False)


def test_items_of_one_turn_are_counted_exactly():
    stages = counted(probdiff, probdiff.Config(), Items(4))
    assert (stages["rewritings"].left, stages["rewritings"].exact) == (4, True)


def test_nothing_is_left_where_the_store_holds_all():
    made = Generation("t", "stop", token_ids=np.array([1], np.int32))
    stages = counted(samples, samples.Config(n=5), Conversations(4), lambda key: made)
    assert stages["samples"].held == 20
    assert stages["samples"].left == 0


def plan_of(items, module=samples):
    part = make_part("made", method_in(module)(samples.Config(n=5)), ("m",))
    return Plan([part], items, {"m": digest("m")}, seed=0)


def sampled(plan, lookup, ended, n_units):
    return count_plan(plan, lookup, {}, {}, None, bytearray(ended), most=n_units)


def test_of_a_large_plan_some_items_are_counted_and_it_is_said():
    plan = plan_of(Items(400))
    count = sampled(plan, lambda key: None, b"", 100)
    (stage,) = [stage for stage in count.stages if stage.name == "samples"]
    assert (stage.total, stage.left, stage.held) == (2_000, 2_000, 0)
    assert count.is_estimate
    assert any("by 100 of 400 items" in note for note in count.notes)


def test_a_plan_that_is_not_large_is_counted_whole():
    plan = plan_of(Items(400))
    assert sampled(plan, lambda key: None, b"", 400) == count_plan(plan, lambda key: None, {}, {})


def test_items_that_have_ended_are_not_counted_among_those_to_ask():
    plan = plan_of(Items(400))
    made = Generation("t", "stop", token_ids=np.array([1], np.int32))
    exact = count_plan(plan_of(Items(300)), lambda key: made, {}, {})
    held = set(keys_asked(plan, range(300)))
    count = sampled(
        plan, lambda key: made if key in held else None, b"\x01" * 300 + b"\0" * 100, 300
    )
    (stage,) = [stage for stage in count.stages if stage.name == "samples"]
    # All of the 100 items that ask more are counted, so what is left is exact.
    assert (stage.total, stage.left) == (2_000, 500)
    assert stage.held == exact.stages[-1].held == 1_500


def keys_asked(plan, positions):
    driver = Driver(plan, lambda key: None, {})
    for position in positions:
        driver.open(position)
    return [request.key for request in driver.outbox]


def two_methods(module=samples):
    """Return parts that ask the same model in the same way."""
    return [
        make_part(
            "made", method_in(module)(samples.Config(n=n, answer={"temperature": t})), ("m",), name
        )
        for name, n, t in (("first", 5, 0.5), ("second", 3, 0.9))
    ]


def test_what_is_held_and_what_is_left_is_counted_for_each_of_two_methods():
    plan = Plan(two_methods(), Items(4), {"m": digest("m")}, seed=0)
    asked = keys_asked(plan, range(len(plan)))
    of_second = set(keys_asked(plan, range(1, len(plan), 2)))
    assert 0 < len(of_second) < len(asked)
    made = Generation("t", "stop", token_ids=np.array([1], np.int32))
    count = count_plan(plan, lambda key: made if key in of_second else None, {}, {})
    found = {stage.method: stage for stage in count.stages if stage.name == "samples"}
    assert (found["first"].held, found["first"].left) == (0, 20)
    assert (found["second"].held, found["second"].left) == (12, 0)
