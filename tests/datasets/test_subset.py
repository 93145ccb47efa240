"""Random subsets of a dataset: nested, whole clusters, no item drawn more often than another."""

import math
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.dataset import from_items, n_of_share
from orchestrator.errors import DatasetError
from orchestrator.records import Item, Message

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=12)
SEEDS = st.integers(0, 2**63 - 1)


def made(sizes, *, named=True):
    """A dataset with clusters of these sizes, whose items do not stand together."""
    items = [
        Item(
            key=f"{c}-{n}",
            cluster=f"c{c}" if named else None,
            messages=(Message("user", f"{c} {n}"),),
        )
        for c, size in enumerate(sizes)
        for n in range(size)
    ]
    return from_items("made", items[::2] + items[1::2])


def keys(dataset):
    return [dataset.item(index).key for index in range(len(dataset))]


@given(SIZES, SEEDS, st.data())
def test_a_larger_subset_holds_every_item_of_a_smaller(sizes, seed, data):
    dataset = made(sizes)
    small, large = sorted(data.draw(st.tuples(*[st.integers(1, sum(sizes))] * 2)))
    assert set(keys(dataset.subset(small, seed))) <= set(keys(dataset.subset(large, seed)))


@given(SIZES, SEEDS, st.data())
def test_clusters_are_whole_and_no_more_than_needed(sizes, seed, data):
    dataset = made(sizes)
    wanted = data.draw(st.integers(1, sum(sizes)))
    found = keys(dataset.subset(wanted, seed))
    per_cluster = Counter(key.partition("-")[0] for key in found)
    assert all(n == sizes[int(cluster)] for cluster, n in per_cluster.items())
    assert wanted <= len(found) < wanted + max(sizes)
    # In the order in which the dataset has them.
    assert found == [key for key in keys(dataset) if key in set(found)]


@given(SIZES, SEEDS, st.data())
def test_without_clusters_it_has_exactly_as_many_items(sizes, seed, data):
    dataset = made(sizes, named=False)
    wanted = data.draw(st.integers(1, 2 * sum(sizes)))
    assert len(dataset.subset(wanted, seed)) == min(wanted, sum(sizes))


@given(SIZES, SEEDS)
def test_all_of_it_is_the_dataset_itself(sizes, seed):
    dataset = made(sizes)
    whole = dataset.subset("100%", seed)
    assert whole.fingerprint == dataset.fingerprint
    assert keys(whole) == keys(dataset)


@given(st.integers(1, 10**9), st.integers(1, 999))
def test_a_share_is_exact_and_rounded_up(n, thousandths):
    text = f"{thousandths // 10}.{thousandths % 10}%"
    assert n_of_share(text, n) == max(1, math.ceil(Fraction(thousandths, 1000) * n))


def test_ten_per_cent_of_thirty_are_three():
    assert [n_of_share("10%", n) for n in (1, 9, 10, 11, 30, 96)] == [1, 1, 1, 2, 3, 10]


def test_another_seed_draws_others():
    dataset = made([1] * 40, named=False)
    drawn = {frozenset(keys(dataset.subset(10, seed))) for seed in range(5)}
    assert len(drawn) == 5


def test_each_item_is_drawn_equally_often():
    """Chi-square of 2,000 draws of 5 from 20: 19 degrees of freedom, far below 1 in a million."""
    dataset = made([1] * 20, named=False)
    counts = Counter(key for seed in range(2_000) for key in keys(dataset.subset(5, seed)))
    # Without replacement the variance of a count is 3/4 of its mean.
    chi2 = sum((n - 500) ** 2 / (500 * 0.75) for n in counts.values()) * 19 / 20
    assert len(counts) == 20
    assert chi2 < 63


def test_clusters_are_drawn_equally_often_whatever_their_size():
    dataset = made([1, 1, 1, 1, 8])
    first = Counter(keys(dataset.subset(1, seed))[0].partition("-")[0] for seed in range(2_000))
    assert first["4"] == pytest.approx(400, abs=5 * math.sqrt(2_000 * 0.2 * 0.8))


def test_added_items_do_not_change_the_order_of_the_others():
    few, many = made([1] * 20, named=False), made([1] * 30, named=False)
    of_few = keys(few.subset(10, 3))
    order = [key for key in keys(many.subset(15, 3)) if key in set(keys(few))]
    assert set(order) <= set(of_few) or set(of_few) <= set(order)


@given(SIZES, SEEDS, st.booleans(), st.data())
def test_shards_hold_each_item_once_in_whole_clusters_and_are_alike(sizes, seed, named, data):
    dataset = made(sizes, named=named)
    most = len(sizes) if named else sum(sizes)
    n = data.draw(st.integers(1, most))
    parts = [keys(dataset.shard(part, n, seed)) for part in range(1, n + 1)]
    assert sorted(key for part in parts for key in part) == sorted(keys(dataset))
    for part in parts:
        assert part == [key for key in keys(dataset) if key in set(part)]
    groups = [{key.partition("-")[0] if named else key for key in part} for part in parts]
    assert sum(map(len, groups)) == most
    assert max(map(len, groups)) - min(map(len, groups)) <= 1


@given(SIZES, SEEDS, st.integers(1, 40), st.integers(-2, 42))
def test_a_shard_that_is_none_or_would_be_empty_is_refused(sizes, seed, n, part):
    dataset = made(sizes)
    if 1 <= part <= n <= len(sizes):
        assert len(dataset.shard(part, n, seed)) > 0
        return
    with pytest.raises(DatasetError, match="shard"):
        dataset.shard(part, n, seed)


def test_copies_of_an_item_are_in_one_shard_where_they_are_a_cluster():
    dataset = made([2] * 12)
    held = [set(keys(dataset.shard(part, 5, 1))) for part in range(1, 6)]
    for cluster in range(12):
        assert sum(f"{cluster}-0" in part and f"{cluster}-1" in part for part in held) == 1
