"""Another item with a reference, for methods that show one."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ask import digest
from orchestrator.methods import pairwise_ranking
from orchestrator.records import Item, Message
from orchestrator.units import Plan, make_part
from tests.core import fakes
from tests.core.fakes import nothing


class Items:
    def __init__(self, references):
        self.items = [
            Item(key=f"i{n}", messages=(Message("user", f"q{n}"),), reference=reference)
            for n, reference in enumerate(references)
        ]
        self.fingerprint = digest(references)

    def __len__(self):
        return len(self.items)

    def content(self, index):
        return None

    def item(self, index):
        return self.items[index]


def plan(references, *, shows=True, seed=0):
    method = fakes.method(nothing, demonstrates=shows)
    part = make_part("fake", method, ("m",))
    return Plan([part], Items(references), {"m": b"m"}, seed)


def shown(plan):
    return [plan.work(position).unit.demonstration for position in range(len(plan))]


@given(st.lists(st.sampled_from([None, "", "a", "b"]), min_size=1, max_size=9), st.integers(0, 9))
def test_an_item_is_shown_another_one_that_has_a_reference(references, seed):
    for n, other in enumerate(shown(plan(references, seed=seed))):
        others = [one for m, one in enumerate(references) if m != n and one]
        assert (other is None) == (not others)
        assert other is None or (other.key != f"i{n}" and other.reference)


def test_the_choice_is_the_same_in_every_call_and_another_with_another_seed():
    references = ["a"] * 40
    assert shown(plan(references)) == shown(plan(references))
    assert shown(plan(references)) != shown(plan(references, seed=1))


def test_an_item_with_the_same_question_is_not_shown():
    made = plan(["a", "b", "c"])
    items = made.items.items
    items[1] = Item(key="i1", messages=items[0].messages, reference="b")
    assert made.work(0).unit.demonstration.key == "i2"


def test_nothing_is_shown_where_the_method_does_not_ask():
    assert shown(plan(["a", "b"], shows=False)) == [None, None]


def test_another_demonstration_makes_another_unit():
    before, after = plan(["a", "b"]), plan(["a", "c"])
    assert before.unit_hash(0) != after.unit_hash(0)
    plain, changed = plan(["a", "b"], shows=False), plan(["a", "c"], shows=False)
    assert plain.unit_hash(0) == changed.unit_hash(0)


def labelled_plan(winners, *, n=2, seed=0, clusters=None):
    """A plan in which a judge is shown `n` items whose winner is known."""
    examples = {"n": n, "answer_a": "one", "answer_b": "two", "winner": "better"}
    config = pairwise_ranking.Config(judges=("j",), labelled_examples=examples)
    part = make_part("pairwise_ranking", pairwise_ranking.PairwiseRanking(config), ("a", "b"))
    items = Items([None] * len(winners))
    items.items = [
        Item(
            key=f"i{number}",
            messages=(Message("user", f"q{number}"),),
            fields={"one": "x", "two": "y", "better": winner},
            cluster=None if clusters is None else clusters[number],
        )
        for number, winner in enumerate(winners)
    ]
    return Plan([part], items, {"a": b"a", "b": b"b", "j": b"j"}, seed)


def examples(made):
    """The keys of the items that each item's unit is shown."""
    units = [made.work(position).unit for position in range(len(made))]
    return {unit.item.key: [one.key for one in unit.labelled] for unit in units}


@given(st.lists(st.sampled_from(["a", "b", "tie", None]), min_size=1, max_size=12), st.data())
def test_no_item_is_shown_its_own_label(winners, data):
    n = data.draw(st.sampled_from([2, 4]))
    known = {f"i{number}" for number, winner in enumerate(winners) if winner in {"a", "b"}}
    for key, keys in examples(labelled_plan(winners, n=n)).items():
        assert key not in keys
        assert set(keys) <= known
        assert len(set(keys)) == len(keys) == min(n, len(known - {key}))


def test_nearly_all_units_are_shown_the_same_items_and_the_seed_draws_them():
    winners = ["a", "b"] * 20
    found = examples(labelled_plan(winners, n=4))
    usual = max(found.values(), key=list(found.values()).count)
    assert {key for key, keys in found.items() if keys != usual} == set(usual)
    assert found == examples(labelled_plan(winners, n=4))
    assert found != examples(labelled_plan(winners, n=4, seed=1))


def test_no_item_of_the_same_cluster_is_shown():
    clusters = ["x", "x", "x", "y", "y", "z"]
    found = examples(labelled_plan(["a"] * 6, clusters=clusters))
    of = dict(zip((f"i{number}" for number in range(6)), clusters, strict=True))
    assert all(of[key] not in {of[one] for one in keys} for key, keys in found.items())


def test_another_label_of_an_example_makes_another_unit():
    before, after = labelled_plan(["tie", "a", "b"]), labelled_plan(["tie", "a", "a"])
    assert before.unit_hash(0) != after.unit_hash(0)
    assert before.unit_hash(0) == labelled_plan(["tie", "a", "b"]).unit_hash(0)
