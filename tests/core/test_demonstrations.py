"""Another item with a reference, for methods that show one."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ask import digest
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
