"""Groups of models that cannot be told apart: what sharing one says, for any pairs."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.statistics.multiple import shared_groups

MODELS = ("a", "b", "c", "d", "e", "f")
PAIRS = tuple(combinations(MODELS, 2))


@given(st.sets(st.sampled_from(PAIRS)))
def test_two_models_share_a_group_exactly_where_they_are_not_apart(apart):
    found = {model: set(groups) for model, groups in shared_groups(MODELS, sorted(apart)).items()}
    assert all(found.values())
    for pair in PAIRS:
        assert bool(found[pair[0]] & found[pair[1]]) == (pair not in apart)


@given(st.sets(st.sampled_from(PAIRS)), st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_does_not_matter(apart, random):
    shuffled = sorted(apart)
    random.shuffle(shuffled)
    assert shared_groups(MODELS, shuffled) == shared_groups(MODELS, sorted(apart))


def test_the_middle_of_three_shares_a_group_with_each():
    found = shared_groups("abc", [("a", "c")])
    assert found == {"a": (1,), "b": (1, 2), "c": (2,)}


def test_no_models_have_no_groups():
    assert shared_groups((), ()) == {}


def test_more_groups_than_can_be_read_are_none():
    chains = [(f"{n}a", f"{n}b") for n in range(8)]
    assert shared_groups([model for pair in chains for model in pair], chains) == {}
