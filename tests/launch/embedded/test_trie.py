"""The chain rule over a trie equals the product along each path."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from launch.embedded.protocol import ApiError
from launch.embedded.scoring import Trie, close_paths
from orchestrator.wire.by_ids import Path, log_sum_exp

END = 9
paths = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple)


def toy(prefix: Path) -> torch.Tensor:
    """Logits that depend on all that came before."""
    generator = torch.Generator().manual_seed(hash(prefix) % 2**31)
    return torch.randn(10, generator=generator)


@given(st.lists(paths, min_size=1, max_size=8, unique=True))
def test_paths_get_the_product_of_their_steps(given_paths: list[Path]) -> None:
    closed = close_paths(given_paths, END)
    trie = Trie.of(closed)
    reader = trie.reader(5)
    at = {place: prefix for prefix, place in trie.nodes.items()}
    rows = torch.stack([toy(at[place]) for place in range(len(at))])
    reader.read(0, rows[:1])
    reader.read(1, rows[1:])
    for path in closed:
        steps = [toy(path[:i]).log_softmax(-1)[token] for i, token in enumerate(path)]
        assert trie.logprob(path, reader) == pytest.approx(float(sum(steps)), abs=1e-5)
    assert sum(math.exp(trie.logprob(path, reader)) for path in set(closed)) <= 1 + 1e-9


@given(st.lists(paths, min_size=1, max_size=8))
def test_no_closed_path_begins_with_another(given_paths: list[Path]) -> None:
    closed = set(close_paths(given_paths, END))
    assert not any(a != b and b[: len(a)] == a for a in closed for b in closed)
    assert len(closed) == len(set(given_paths))


@given(st.lists(paths, min_size=1, max_size=8, unique=True))
def test_nodes_see_themselves_and_their_ancestors(given_paths: list[Path]) -> None:
    trie = Trie.of(close_paths(given_paths, END))
    order = [prefix for prefix in sorted(trie.nodes, key=trie.nodes.__getitem__) if prefix]
    for row, prefix in enumerate(order):
        seen = {order[i] for i in torch.nonzero(trie.sees[row]).flatten().tolist()}
        assert seen == {prefix[:n] for n in range(1, len(prefix) + 1)}
        assert trie.depths[row] == len(prefix)


def test_paths_without_a_common_beginning_stay_open() -> None:
    assert close_paths([(1, 2), (1, 3)], END) == [(1, 2), (1, 3)]


def test_a_label_without_tokens_is_refused() -> None:
    with pytest.raises(ApiError, match="no tokens"):
        close_paths([(1,), ()], END)


def test_nested_labels_need_an_end_of_turn() -> None:
    with pytest.raises(ApiError, match="no end-of-turn"):
        close_paths([(1,), (1, 2)], None)


def test_a_label_that_spells_the_end_of_the_turn_is_refused() -> None:
    with pytest.raises(ApiError, match="end of the turn"):
        close_paths([(1,), (1, END, 2)], END)


def test_the_sum_of_nothing_is_a_true_zero() -> None:
    assert log_sum_exp([]) == -math.inf
    assert log_sum_exp([-math.inf, -math.inf]) == -math.inf


def test_small_probabilities_are_summed_without_underflow() -> None:
    assert log_sum_exp([-2000.0, -2000.0]) == pytest.approx(-2000 + math.log(2))
