import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.statistics.confidence import confidence, duel

SEVEN = np.array([0.0, 0.2, -0.15, math.nan, math.nan, -0.04, -0.06])
gaps_of = st.lists(
    st.one_of(st.just(math.nan), st.floats(-1, 1).map(lambda d: round(d, 2))),
    min_size=1,
    max_size=30,
).map(np.array)


def at(d, delta=-0.05, **columns):
    return confidence(d, np.arange(d.size), [delta], **columns)[0]


def test_reference_of_seven_items():
    # methods.md, probdiff.confidence.1.
    found = at(SEVEN)
    assert found.published.value == pytest.approx(0.42857142857142855, abs=1e-9)


def test_threshold_is_inclusive():
    assert at(np.array([-0.05])).published.value == 1.0
    assert at(np.array([np.nextafter(-0.05, -1)])).published.value == 0.0


def test_share_over_what_changed_leaves_unchanged_answers_out():
    found = at(SEVEN, changed=np.array([False, True, True, True, True, True, True]))
    assert found.changed.value == pytest.approx(2 / 4)


def test_nothing_changed_is_undefined_and_not_zero():
    found = at(np.zeros(3), changed=np.zeros(3, bool))
    assert found.published.value == 1.0
    assert math.isnan(found.changed.value)
    assert found.changed.undefined == "nothing to count"


def test_without_knowing_changes_there_is_no_share_over_them():
    assert at(SEVEN).changed is None


@given(gaps_of, st.lists(st.floats(-1, 1), min_size=2, max_size=5))
def test_a_higher_threshold_never_passes_more(d, deltas):
    shares = [c.published.value for c in confidence(d, np.arange(d.size), sorted(deltas))]
    assert shares == sorted(shares, reverse=True)


def test_micro_is_over_items_and_macro_over_categories():
    d = np.array([0.0, -1.0, -1.0, -1.0, 0.0, 0.0])
    found = at(d, categories=["a"] * 4 + ["b"] * 2)
    assert found.published.value == pytest.approx(3 / 6)
    assert [(name, share.value) for name, share in found.categories] == [("a", 0.25), ("b", 1.0)]
    assert found.macro.value == pytest.approx(0.625)
    assert found.macro.interval.contains(0.625)


def test_categories_of_one_size_have_equal_averages():
    d = np.tile([0.0, -1.0, 0.0], 10)
    found = at(d, categories=["a", "b", "c"] * 10)
    assert found.macro.value == pytest.approx(found.published.value)
    assert found.macro.interval.low == pytest.approx(found.published.interval.low)


def test_turns_of_a_conversation_are_one_prompt():
    found = confidence(np.tile([0.0, -1.0], 10), np.repeat(np.arange(10), 2), [-0.05])[0]
    assert found.published.n == 10


def test_columns_must_fit():
    with pytest.raises(StatisticsError):
        confidence(SEVEN, np.arange(7), [0.0], categories=["a"])


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [
        (0.0, -0.1, 1.0),
        (-0.1, 0.0, -1.0),
        (0.0, -0.05, 0.0),
        (math.nan, -5.0, -1.0),
        (-5.0, math.nan, 1.0),
        (math.nan, math.nan, 0.0),
        (-math.inf, -math.inf, 0.0),
        (-math.inf, 0.0, -1.0),
    ],
)
def test_who_wins_a_duel(first, second, winner):
    win, tie, lose = duel(np.array([first]), np.array([second]), np.zeros(1, int))
    assert (win.value, tie.value, lose.value) == (winner > 0, winner == 0, winner < 0)


@given(gaps_of, st.floats(0, 0.5), st.integers(0, 99))
def test_duels_are_antisymmetric(d, tau, seed):
    other = np.random.default_rng(seed).permutation(d)
    items = np.arange(d.size)
    assert duel(d, other, items, tau) == duel(other, d, items, tau)[::-1]


@given(gaps_of, st.integers(0, 99))
def test_win_tie_and_lose_add_up(d, seed):
    other = np.random.default_rng(seed).permutation(d)
    shares = duel(d, other, np.arange(d.size))
    assert sum(share.value for share in shares) == pytest.approx(1.0)


@pytest.mark.parametrize("tau", [-0.1, math.nan])
def test_tau_must_not_be_negative(tau):
    with pytest.raises(StatisticsError):
        duel(np.zeros(1), np.zeros(1), np.zeros(1, int), tau)
