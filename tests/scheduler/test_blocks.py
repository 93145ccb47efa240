"""Sequential stopping over a plan: what is needed follows from rows of finished blocks alone."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.records import DONE, FAILED, FAILED_FOR_NOW
from orchestrator.scheduler.blocks import Blocks, Ranking, Slot, StoppingRule

A, B, C, AB, AC, BC = range(6)
"""Combinations of an item: answers of three models, then their pairs."""
N = 6
END = -1


def rule_of_pairs(n_items=12, block=2, **changes):
    given = {
        "n_items": n_items,
        "block": block,
        "error": 0.05,
        "population": None,
        "top": None,
        "rankings": (
            Ranking("pairs", "judge", "rows", ("a", "b", "c"), 0, 0.0, 1.0, of_pairs=True),
        ),
        "slots": (None, None, None, Slot(0, 0), Slot(0, 1), Slot(0, 2)),
        "feeds": ((AB, AC), (AB, BC), (AC, BC), (), (), ()),
    }
    return StoppingRule(**{**given, **changes})


def begun(rule):
    blocks = Blocks(rule, bytearray(rule.n_items * len(rule.slots)))
    blocks.start()
    return blocks


def end(blocks, position, value=1.0, status=DONE):
    blocks.ended[position] = 1
    blocks.end(position, status, [(value,)])


def run(blocks, value_of, order=None, status_of=lambda position: DONE):
    """Do everything that is handed out, in the order of the plan or a shuffled one."""
    asked: list[int] = []
    open_units: list[int] = []
    positions = blocks.positions()
    position = next(positions, END)
    while position != END or open_units:
        while position is not None and position != END:
            open_units.append(position)
            position = next(positions, END)
        chosen = open_units.pop(order.randrange(len(open_units)) if order else 0)
        asked.append(chosen)
        end(blocks, chosen, value_of(chosen), status_of(chosen))
        if position is None:
            position = next(positions, END)
    return asked


def clear(position):
    """a beats b beats c on every item, in blocks that are large enough to say so."""
    return 1.0


def test_only_two_blocks_are_open_at_the_start():
    blocks = begun(rule_of_pairs())
    positions = blocks.positions()
    found = [next(positions) for _ in range(2 * 2 * N)]
    assert found == list(range(24))
    assert next(positions) is None


def test_a_block_is_opened_when_all_before_the_last_have_ended():
    blocks = begun(rule_of_pairs())
    positions = blocks.positions()
    for _ in range(24):
        next(positions)
    for position in range(23):
        if position != AB:
            end(blocks, position)
    assert next(positions) is None
    end(blocks, AB)
    assert next(positions) == 24


def test_what_was_settled_is_not_asked_two_blocks_later():
    rule = rule_of_pairs(n_items=100, block=20)
    blocks = begun(rule)
    asked = run(blocks, clear)
    assert len(asked) == 2 * 20 * N
    assert blocks.n_not_needed == 60 * N
    assert blocks.tests[0].settled.tolist() == [1, 1, 1]


def test_an_answer_is_asked_as_long_as_somebody_needs_it():
    rule = rule_of_pairs(n_items=100, block=20)
    blocks = begun(rule)
    # a is clearly better than both; b and c are alike.
    asked = run(blocks, lambda position: 0.5 if position % N == BC else 1.0)
    late = {position % N for position in asked if position >= 2 * 20 * N}
    assert late == {B, C, BC}


def test_what_the_recipe_asks_for_itself_is_never_left_out():
    rule = rule_of_pairs(n_items=100, block=20, feeds=((),) * N)
    asked = run(begun(rule), clear)
    late = {position % N for position in asked if position >= 2 * 20 * N}
    assert late == {A, B, C}


def test_models_with_scores_of_their_own_are_compared_by_difference():
    scores = Ranking("scores", "judge", "rows", ("a", "b"), 0, 1.0, 9.0, of_pairs=False)
    rule = rule_of_pairs(
        n_items=100,
        block=20,
        rankings=(scores,),
        slots=(None, None, Slot(0, 0), Slot(0, 1)),
        feeds=((2,), (3,), (), ()),
    )
    blocks = begun(rule)
    asked = run(blocks, lambda position: 8.0 if position % 4 == 2 else 2.0)
    assert blocks.tests[0].settled.tolist() == [1]
    assert len(asked) == 40 * 4
    ((pair,),) = blocks.orders()
    assert pair.difference == pytest.approx(6 / 8)


def test_a_pair_that_stands_the_other_way_round_is_turned():
    slots = (None, None, None, Slot(0, 0, is_reversed=True), Slot(0, 1), Slot(0, 2))
    blocks = begun(rule_of_pairs(n_items=100, block=20, slots=slots))
    run(blocks, clear)
    assert blocks.tests[0].settled.tolist() == [-1, 1, 1]


def test_units_that_failed_for_good_are_missing_and_end_their_block():
    rule = rule_of_pairs(n_items=100, block=20)
    blocks = begun(rule)
    run(blocks, clear, status_of=lambda p: FAILED if p % (5 * N) == AB else DONE)
    pair = blocks.orders()[0][0]
    assert (pair.n, pair.n_missing) == (32, 8)
    assert pair.better == 1


def test_a_unit_that_failed_for_now_leaves_decisions_to_the_next_call():
    rule = rule_of_pairs(n_items=100, block=20)
    done = bytearray(100 * N)
    values = {}
    first = Blocks(rule, bytearray(done))
    first.start()
    asked = run(first, clear, status_of=lambda p: FAILED_FOR_NOW if p == AB else DONE)
    assert len(asked) == 100 * N
    assert first.n_not_needed == 0
    assert first.tests[0].n_blocks == 0
    for position in asked:
        if position != AB:
            done[position] = 1
            values[position] = 1.0
    second = resumed(rule, values)
    assert run(second, clear) == [AB]
    assert second.tests[0].settled.tolist() == [1, 1, 1]


def resumed(rule, values):
    done = bytearray(rule.n_items * len(rule.slots))
    blocks = Blocks(rule, done)
    for position, value in values.items():
        done[position] = 1
        blocks.put(position, DONE, [(value,)])
    blocks.start()
    return blocks


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 400), st.none() | st.just(1))
def test_a_run_that_was_cut_off_anywhere_asks_and_decides_the_same(seed, cut, top):
    rule = rule_of_pairs(n_items=60, block=10, top=top)
    values = random.Random(seed)
    table = [min(1.0, max(0.0, values.gauss(0.75, 0.25))) for _ in range(60 * N)]
    whole = begun(rule)
    asked = run(whole, table.__getitem__)
    cut_off = begun(rule)
    kept = run(cut_off, table.__getitem__, random.Random(seed))[:cut]
    again = resumed(rule, {position: table[position] for position in kept})
    rest = run(again, table.__getitem__, random.Random(seed + 1))
    assert sorted(kept + rest) == sorted(asked)
    assert again.n_not_needed == whole.n_not_needed
    assert again.orders() == whole.orders() == cut_off.orders()


def test_rows_that_were_not_needed_change_nothing():
    rule = rule_of_pairs(n_items=100, block=20)
    whole = resumed(rule, dict.fromkeys(range(40 * N), 1.0))
    more = resumed(rule, {p: 1.0 if p < 40 * N else 0.0 for p in range(100 * N)})
    assert more.orders() == whole.orders()
    assert whole.ended.count(0) == more.ended.count(0) == 0
    assert (whole.n_not_needed, more.n_not_needed) == (60 * N, 0)


def test_every_turn_of_a_prompt_must_have_a_number():
    rule = rule_of_pairs(n_items=2)
    blocks = Blocks(rule, bytearray([1] * 2 * N))
    blocks.put(AB, DONE, [(1.0,), (0.5,)])
    blocks.put(N + AB, DONE, [(1.0,), (None,)])
    blocks.start()
    pair = blocks.orders()[0][0]
    assert (pair.n, pair.n_missing, pair.difference) == (1, 1, 0.5)


@pytest.mark.parametrize(
    ("n_items", "block", "expected"), [(100, 20, 2), (10, 20, 1), (100, 2, 6), (100, 1, 11)]
)
def test_the_fewest_items_are_those_asked_if_every_order_is_clear(n_items, block, expected):
    rule = rule_of_pairs(n_items=n_items, block=block)
    assert rule.fewest_items() == min(n_items, expected * block)
    asked = run(begun(rule), lambda position: 1.0)
    assert len(asked) == min(n_items, expected * block) * N
