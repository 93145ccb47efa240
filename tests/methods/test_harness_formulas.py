import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.methods import alpaca_eval
from orchestrator.methods._harness import swapped, two_games
from tests.oracles.alpaca_eval import preference

winners = st.sampled_from(["A", "B", "tie", None])
logprobs = st.floats(-60, 0) | st.just(-math.inf) | st.just(math.nan)


@given(winners, winners)
def test_two_games_give_a_winner_only_where_both_agree(one, two):
    result = two_games(one, swapped(two))
    if one is None or two is None:
        assert result is None
    elif one == swapped(two):
        assert result == one
    else:
        assert result == "tie"


@given(winners)
def test_swapping_twice_changes_nothing(winner):
    assert swapped(swapped(winner)) == winner


@given(logprobs, logprobs)
def test_a_preference_in_the_other_order_is_flipped(one, two):
    preferred = preference(one, two)
    other = preference(two, one)
    if preferred is None:
        assert other is None
    else:
        assert 1.0 <= preferred <= 2.0
        assert 3.0 - preferred == pytest.approx(other)


def test_about_half_of_the_instructions_are_switched_and_a_seed_decides_which():
    switched = [alpaca_eval.is_switched(f"instruction {i}") for i in range(400)]
    assert switched[:8] == [alpaca_eval.is_switched(f"instruction {i}") for i in range(8)]
    assert 160 < sum(switched) < 240
    assert switched != [alpaca_eval.is_switched(f"instruction {i}", seed=1) for i in range(400)]
