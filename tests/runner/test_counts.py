"""What a plan counts where items have several turns."""

import numpy as np

from orchestrator.ask import digest
from orchestrator.methods import probdiff, samples
from orchestrator.plan import Plan, make_part
from orchestrator.records import Generation, Item, Message
from orchestrator.runner.counts import count_plan
from tests.core.fakes import Items


class Conversations(Items):
    """Items of one turn and of two in turn."""

    def item(self, index: int) -> Item:
        followups = ("and then?",) if index % 2 else ()
        asked = (Message("user", f"question {index}"),)
        return Item(key=f"i{index}", messages=asked, followups=followups)


def counted(module, config, items, lookup=lambda key: None):
    part = make_part("made", module, config, ("m",))
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
