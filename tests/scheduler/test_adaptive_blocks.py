"""Chosen comparisons over a plan: the choice follows from the seed and from finished blocks."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.records import DONE, FAILED, FAILED_FOR_NOW
from orchestrator.scheduler.blocks import Adaptive, Ranking, Slot, StoppingRule, make_blocks
from tests.scheduler.test_blocks import end, run

N_MODELS = 4
PAIRS = [(a, b) for a in range(N_MODELS) for b in range(a + 1, N_MODELS)]
N = N_MODELS + len(PAIRS)
"""Combinations of an item: answers of four models, then their pairs."""


def rule_of(n_items=60, share=0.5, baseline="", **changes):
    given = {
        "n_items": n_items,
        "block": 10,
        "error": 0.05,
        "population": None,
        "top": None,
        "rankings": (
            Ranking("pairs", "judge", "rows", ("a", "b", "c", "d"), 0, 0.0, 1.0, of_pairs=True),
        ),
        "slots": (*(None,) * N_MODELS, *(Slot(0, n) for n in range(len(PAIRS)))),
        "feeds": (
            *(
                tuple(N_MODELS + n for n, pair in enumerate(PAIRS) if model in pair)
                for model in range(N_MODELS)
            ),
            *((),) * len(PAIRS),
        ),
        "adaptive": Adaptive(share, 7, baseline),
    }
    return StoppingRule(**{**given, **changes})


def begun(rule, values=None):
    """Blocks of a run that holds some rows."""
    blocks = make_blocks(rule, bytearray(rule.n_items * N))
    for position, value in (values or {}).items():
        blocks.ended[position] = 1
        blocks.put(position, DONE, [(value,)])
    blocks.start()
    return blocks


def clear(position):
    """a beats b beats c beats d on every item."""
    return 1.0


def pairs_in(asked):
    return [position for position in asked if position % N >= N_MODELS]


def test_no_more_than_the_share_is_asked_and_only_answers_that_are_compared():
    asked = run(begun(rule_of(share=0.3)), lambda position: 0.5)
    pairs = pairs_in(asked)
    assert 0.3 * 360 - 2 <= len(pairs) <= 0.3 * 360
    compared = {
        (position // N, model) for position in pairs for model in PAIRS[position % N - N_MODELS]
    }
    answers = {divmod(position, N) for position in asked if position % N < N_MODELS}
    assert answers == compared


def test_a_clear_order_ends_the_run_and_everything_else_is_not_needed():
    blocks = begun(rule_of(n_items=200, share=1.0))
    asked = run(blocks, clear)
    (test,) = blocks.choices
    assert test.better.sum() == len(PAIRS)
    assert len(asked) < 0.5 * 200 * N
    assert blocks.n_not_needed == 200 * N - len(asked)
    assert blocks.ended.count(0) == 0


def test_a_pair_that_stands_the_other_way_round_is_turned():
    slots = [None] * N_MODELS + [Slot(0, n) for n in range(len(PAIRS))]
    slots[N_MODELS] = Slot(0, 0, is_reversed=True)
    blocks = begun(rule_of(n_items=200, share=1.0, slots=tuple(slots), baseline="a"))
    run(blocks, clear)
    assert [place.verdict for place in blocks.choices[0].places()] == [0, 1, -1, -1]


def test_units_that_failed_for_good_are_missing():
    blocks = begun(rule_of(n_items=100, share=1.0))
    run(blocks, lambda position: 0.5, status_of=lambda p: FAILED if p % N == N - 1 else DONE)
    assert blocks.choices[0].n_missing == 100


def test_a_unit_that_failed_for_now_leaves_decisions_to_the_next_call():
    rule = rule_of(n_items=100, share=1.0)
    first = begun(rule)
    asked = run(first, clear, status_of=lambda p: FAILED_FOR_NOW if p == N - 1 else DONE)
    assert len(asked) == 100 * N
    assert first.n_prompts == 0
    second = begun(rule, {p: 1.0 for p in asked if p != N - 1})
    assert run(second, clear) == [N - 1]
    assert second.choices[0].better.sum() == len(PAIRS)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 400), st.sampled_from([{}, {"top": 1}]))
def test_a_run_that_was_cut_off_anywhere_asks_and_decides_the_same(seed, cut, goal):
    rule = rule_of(**goal)
    values = random.Random(seed)
    table = [min(1.0, max(0.0, values.gauss(0.75, 0.25))) for _ in range(60 * N)]
    whole = begun(rule)
    asked = run(whole, table.__getitem__)
    cut_off = begun(rule)
    kept = run(cut_off, table.__getitem__, random.Random(seed))[:cut]
    again = begun(rule, {position: table[position] for position in kept})
    rest = run(again, table.__getitem__, random.Random(seed + 1))
    assert sorted(kept + rest) == sorted(asked)
    assert again.n_not_needed == whole.n_not_needed
    assert again.choices[0].places() == whole.choices[0].places()


def test_rows_that_were_not_chosen_change_nothing():
    rule = rule_of(n_items=100)
    table = [0.5 + 0.4 * (position % 3 == 0) for position in range(100 * N)]
    whole = begun(rule)
    run(whole, table.__getitem__)
    every = begun(rule, dict(enumerate(table)))
    assert every.choices[0].places() == whole.choices[0].places()
    assert (every.n_not_needed, every.ended.count(0)) == (0, 0)


def test_what_a_plan_foresees_is_all_that_is_asked_if_nothing_is_settled():
    blocks = begun(rule_of(share=0.4))
    foreseen = sum(int(blocks.needed_of(item).sum()) for item in range(60))
    assert blocks.ended.count(0) < 60 * N
    asked = run(blocks, lambda position: 0.5)
    assert len(asked) == foreseen


@pytest.mark.parametrize(("n_items", "expected"), [(100, 20), (5, 5)])
def test_two_blocks_are_asked_whatever_the_values_are(n_items, expected):
    assert rule_of(n_items=n_items).fewest_items() == expected


def test_the_choice_is_drawn_by_the_seed():
    one = run(begun(rule_of()), lambda position: 0.5)
    other = run(begun(rule_of(adaptive=Adaptive(0.5, 8))), lambda position: 0.5)
    assert sorted(one) != sorted(other)
    assert sorted(one) == sorted(run(begun(rule_of()), lambda position: 0.5))


def test_a_unit_that_decides_nothing_changes_nothing():
    blocks = begun(rule_of())
    position = next(p for p in range(N_MODELS) if not blocks.ended[p])
    end(blocks, position)
    assert blocks.n_open == 2
