"""The chain rule over a trie of labels, against distributions that are known in full."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.records import TopLogprobs
from orchestrator.wire.by_ids import (
    Cut,
    PathsError,
    Reading,
    Walk,
    cut,
    nested,
    top_of,
    total,
    value,
)

END = 0
PATHS = st.lists(
    st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple), min_size=1, max_size=6
)


class Model:
    """A made-up language model over five tokens."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def logprobs(self, node: tuple[int, ...]) -> np.ndarray:
        rng = np.random.default_rng([self._seed, *node])
        logits = rng.normal(0, 4, 5)
        return np.asarray(logits - np.logaddexp.reduce(logits))

    def of(self, path: tuple[int, ...]) -> float:
        return math.fsum(self.logprobs(path[:n])[token] for n, token in enumerate(path))

    def reading(self, node: tuple[int, ...], k: int) -> Reading:
        found = self.logprobs(node)
        best = np.argsort(-found)[:k]
        return Reading({int(i): float(found[i]) for i in best}, float(found[best].min()))


def label(*paths: tuple[int, ...]) -> Cut:
    """One label of several spellings."""
    return cut([paths], ["a"], END)


def walked(model: Model, paths: Cut, k: int, negligible: float) -> Walk:
    """As the back-end walks: the root, then the rest, then what is missing."""
    walk = Walk(paths, negligible)
    walk.add([()], [model.reading((), k)])
    while True:
        if nodes := walk.unread():
            walk.add(nodes, [model.reading(node, k) for node in nodes])
        elif missing := walk.missing():
            for node, tokens in missing.items():
                found = model.logprobs(node)
                walk.add([node], [Reading({token: float(found[token]) for token in tokens})])
        else:
            return walk


@given(PATHS, st.integers(0, 50), st.integers(1, 5))
def test_asking_for_what_is_missing_gives_every_label_exactly(paths, seed, k):
    model, found = Model(seed), label(*paths)
    walk = walked(model, found, k, -math.inf)
    for path in found[0][0]:
        assert value(path, walk.read) == pytest.approx((model.of(path), model.of(path)))


@given(PATHS, st.integers(0, 50), st.integers(1, 5))
def test_what_is_neglected_is_bounded(paths, seed, k):
    model, found, share = Model(seed), label(*paths), 1e-2
    walk = walked(model, found, k, math.log(share))
    closed = found[0][0]
    best = max(value(path, walk.read)[1] for path in closed)
    for path in closed:
        known, upper = value(path, walk.read)
        assert model.of(path) <= upper + 1e-9
        if math.isnan(known):
            assert upper < best + math.log(share)
        else:
            assert known == pytest.approx(model.of(path))


def test_a_branch_that_is_ruled_out_at_the_root_is_not_walked():
    walk = Walk(label((1, 2), (1, 3), (4, 2)), math.log(1e-4))
    walk.add([()], [Reading({1: -0.1, 4: -20.0}, -20.0)])
    assert walk.unread() == [(1,)]


def test_where_every_label_is_improbable_none_is_neglected():
    walk = Walk(label((1, 2), (1, 3), (4, 2)), math.log(1e-4))
    walk.add([()], [Reading({1: -20.0, 4: -21.0}, -21.0)])
    assert walk.unread() == [(1,), (4,)]


@given(PATHS)
def test_closed_paths_can_be_told_apart(paths):
    (closed,), children = label(*paths)
    assert not nested(closed)
    assert set(children) == {path[:n] for path in closed for n in range(len(path))}


@pytest.mark.parametrize(
    ("groups", "end", "said"),
    [
        ([[()]], END, "no tokens"),
        ([[(1,)], [()]], END, "no tokens"),
        ([[(1,)], [(1, 2)]], None, "begins with another"),
        ([[(1,)], [(2,), (1,)]], END, "'a' and 'b' share a spelling"),
    ],
)
def test_labels_that_can_t_be_told_apart_make_no_trie(groups, end, said):
    with pytest.raises(PathsError, match=said):
        cut(groups, "ab", end)


@given(PATHS)
def test_labels_keep_their_paths_or_end_them(paths):
    distinct = list(dict.fromkeys(paths))
    (found,), _ = label(*distinct)
    for path, kept in zip(distinct, found, strict=True):
        assert kept in (path, (*path, END))


def test_a_label_that_is_another_one_and_the_end_is_refused():
    with pytest.raises(PathsError):
        label((1,), (1, 0), (1, 0, 0))


def test_a_token_of_probability_zero_ends_a_path():
    read: dict[tuple[int, ...], Reading] = {(): Reading({1: -math.inf}, 0.0)}
    assert value((1, 2), read) == (-math.inf, -math.inf)


def test_spellings_are_summed_and_unknown_ones_only_raise_the_bound():
    known, unknown = (math.log(0.2),) * 2, (math.nan, math.log(0.1))
    assert total([known, known]) == pytest.approx((math.log(0.4), math.log(0.4)))
    assert total([known, unknown]) == pytest.approx((math.log(0.2), math.log(0.3)))
    assert math.isnan(total([unknown])[0])


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.floats(-9, -2, width=32)), max_size=4)),
    st.integers(1, 5),
)
def test_places_that_list_fewer_tokens_than_asked_are_filled_up(rows, k):
    top = top_of(rows, k)
    assert isinstance(top, TopLogprobs)
    for row, ids, logprobs in zip(rows, top.token_ids, top.logprobs, strict=True):
        n_missing = k - len(row[:k])
        assert ids.tolist() == [token for token, _ in row[:k]] + [-1] * n_missing
        expected = [logprob for _, logprob in row[:k]] + [math.nan] * n_missing
        np.testing.assert_array_equal(logprobs, np.array(expected, np.float32))
