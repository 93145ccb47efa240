"""Stopping rules where items come in clusters: blocks of whole clusters, bets on their totals."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import StatisticsError
from orchestrator.recipe.load import load
from orchestrator.runner.planning.prepare import prepare
from orchestrator.scheduler.blocks import Blocks, Ranking, StoppingRule
from orchestrator.statistics.sequential import (
    LAG,
    Capital,
    OrderTest,
    cluster_totals,
    confidence_sequence,
    pair_orders,
)
from tests.datasets.test_clusters import codes_of
from tests.e2e.runs import write_recipe
from tests.scheduler.test_blocks import begun, rule_of_pairs, run

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=40)


@given(SIZES, st.integers(1, 30))
def test_blocks_take_whole_clusters_and_at_least_so_many_items(sizes, block):
    rule = rule_of_pairs(n_items=sum(sizes), block=block, sizes=tuple(sizes))
    layout = rule.layout()
    ends = np.cumsum([0, *sizes])
    assert set(layout.bounds) <= set(ends.tolist())
    assert (layout.bounds[0], layout.bounds[-1]) == (0, sum(sizes))
    assert all(np.diff(layout.bounds)[:-1] >= block)
    # Without its last cluster no block would be large enough.
    for number in range(layout.n_blocks):
        own = layout.sizes_of(number, number + 1)
        assert sum(own[:-1]) < block
    assert layout.sizes_of(0, layout.n_blocks) == tuple(sizes)


@given(SIZES)
def test_clusters_of_one_are_items(sizes):
    n = len(sizes)
    alone = rule_of_pairs(n_items=n, block=3)
    single = rule_of_pairs(n_items=n, block=3, sizes=(1,) * n)
    assert alone.layout().bounds == single.layout().bounds
    assert alone.fewest_items() == single.fewest_items()
    x = np.random.default_rng(n).uniform(-1, 1, (n, 3))
    one, two = OrderTest(3, error=0.05), OrderTest(3, error=0.05)
    one.look(x)
    two.look(x, [1] * n)
    assert np.array_equal(one.adjusted_p(), two.adjusted_p())


def test_only_open_blocks_are_handed_out_whatever_their_size():
    rule = rule_of_pairs(n_items=24, block=4, sizes=(3, 3, 5, 1, 6, 6))
    blocks = begun(rule)
    assert rule.layout().bounds == [0, 6, 11, 18, 24]
    assert blocks.n_items_open == 11
    asked = run(blocks, lambda position: 0.5)
    assert sorted(asked) == list(range(24 * len(rule.slots)))


def test_values_of_one_cluster_are_one_draw():
    rng = np.random.default_rng(0)
    means = rng.uniform(-0.2, 0.8, (30, 1))
    test, copied = OrderTest(2, error=0.05), OrderTest(2, error=0.05, largest=5)
    test.look(means)
    copied.look(np.repeat(means, 5, axis=0), [5] * 30)
    assert np.allclose(test.adjusted_p(), copied.adjusted_p())
    assert copied.n_prompts == 150


def test_missing_items_leave_their_cluster_smaller_and_a_cluster_without_any_out():
    x = np.array([[0.5], [np.nan], [1.0], [np.nan], [np.nan], [-1.0]])
    totals, present = cluster_totals(x, [2, 1, 2, 1], 2)
    assert np.array_equal(totals, [[0.25], [0.5], [np.nan], [-0.5]], equal_nan=True)
    assert present is not None
    assert present.tolist() == [[0.5], [0.5], [0.0], [0.5]]


@pytest.mark.parametrize("sizes", [[1, 1], [2, 3], [0, 4], [4, 1]])
def test_clusters_that_are_not_these_prompts_are_refused(sizes):
    with pytest.raises(StatisticsError, match="do not fit"):
        cluster_totals(np.zeros((4, 1)), sizes, 3)


def test_clusters_are_not_drawn_from_exactly_these_items():
    with pytest.raises(StatisticsError, match="items are drawn singly"):
        Capital(1, population=4).add(np.zeros((2, 1)), sizes=np.ones((2, 1)))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_capital_never_goes_below_nothing_and_a_fair_game_stays_fair(seed):
    rng = np.random.default_rng(seed)
    null = rng.uniform(-0.9, 0.9)
    size = rng.integers(1, 6, (50, 1)) / 5
    # Two clusters alike but for a sign around the null: the bets on both make exactly nothing.
    up = np.minimum(size, size * null + 0.1 * size)
    down = 2 * size * null - up
    growth = [Capital(1, null=null).add(v[:1], sizes=size[:1]) for v in (up, down)]
    assert np.isfinite(growth).all()
    assert np.mean(np.exp(growth)) == pytest.approx(1.0)


def test_a_confidence_sequence_of_clusters_is_about_the_mean_over_items():
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 6, 400)
    # Large clusters have the larger values, so the mean over clusters is another one.
    x = np.repeat((sizes - 3) / 5, sizes)[:, None]
    totals, present = cluster_totals(x, sizes.tolist(), 5)
    low, high = confidence_sequence(totals, error=0.025, sizes=present)
    assert low[0] < x.mean() < high[0]
    assert not low[0] < float(((sizes - 3) / 5).mean()) < high[0]


def test_pairs_say_what_they_rest_on_where_blocks_differ_in_size():
    rng = np.random.default_rng(1)
    sizes = (3, 4, 2, 5, 1, 6)
    x = rng.uniform(-0.2, 0.3, (21, 1))
    test = OrderTest(2, error=0.05, largest=6)
    starts = (0, 7, 14)
    for first, last, of_block in ((0, 7, (3, 4)), (7, 14, (2, 5)), (14, 21, (1, 6))):
        test.look(x[first:last], of_block)
    (pair,) = pair_orders(test, x, starts, error=0.05, population=None, sizes=sizes)
    assert (pair.n, pair.n_missing) == (21, 0)
    assert pair.difference == pytest.approx(x.mean())
    assert pair.low < x.mean() < pair.high


def recipe(folder, population):
    rows = [
        {"prompt": f"{c} {n}", "reference": "x", "passage": c}
        for c in range(12)
        for n in range(1 + c % 4)
    ]
    pl.DataFrame(rows).write_ndjson(folder / "items.jsonl")
    return write_recipe(
        folder / "r.json",
        "http://127.0.0.1:9",
        dataset={"path": "items.jsonl", "fields": {"cluster": "passage"}},
        statistics={"stop_when": {"population": population, "block": 5}},
    )


def test_a_recipe_s_rule_is_over_the_clusters_of_its_source(tmp_path):
    path = recipe(tmp_path, "source")
    prepared = prepare(load(path))
    rule = prepared.rule
    assert rule is not None
    assert sorted(rule.sizes) == [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3
    assert (np.diff(codes_of(prepared.dataset)) >= 0).all()
    assert rule.new_tests()[0].largest_cluster == 4


def test_on_exactly_these_items_each_is_drawn_for_itself(tmp_path):
    path = recipe(tmp_path, "dataset")
    prepared = prepare(load(path))
    assert prepared.rule is not None
    assert (prepared.rule.sizes, prepared.rule.population) == ((), 30)
    assert (np.diff(codes_of(prepared.dataset)) < 0).any()


def test_settled_orders_close_later_blocks_of_any_size():
    rule = StoppingRule(
        n_items=90, block=6, error=0.05, population=None, top=None,
        rankings=(Ranking("m", "j", "rows", ("a", "b"), 0, 0.0, 1.0, of_pairs=True),),
        slots=rule_of_pairs().slots[3:4], feeds=((),), sizes=(2, 4) * 15,
    )  # fmt: skip
    blocks = Blocks(rule, bytearray(90))
    blocks.start()
    asked = run(blocks, lambda position: 1.0)
    settled = int(blocks.tests[0].settled_at[0])
    assert settled % 6 == 0
    assert len(asked) == settled + 6 * (LAG - 1)
    assert len(asked) == rule.fewest_items()
