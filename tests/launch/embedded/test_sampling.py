"""Draws depend on the row alone; log-probabilities are raw."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from launch.embedded.jobs import Draw, Sampler, uniforms

CPU = torch.device("cpu")
draws = st.builds(
    Draw,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    top_k=st.integers(0, 6),
    top_p=st.sampled_from([0.2, 0.7, 1.0]),
    key=st.integers(0, 2**64 - 1),
    n_top=st.integers(0, 4),
)


@given(st.lists(draws, min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_a_row_is_drawn_as_it_would_be_alone(rows: list[Draw], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn((len(rows), 20), generator=generator) * 3
    steps = list(range(len(rows)))
    together = Sampler(rows, CPU).draw(logits, steps)
    for place, draw in enumerate(rows):
        alone = Sampler([draw], CPU).draw(logits[place : place + 1], [place])
        (token, logprob, listed), beside = alone[0], together[place]
        assert token == beside[0]
        assert logprob == pytest.approx(beside[1], abs=1e-6)
        assert (listed is None) == (beside[2] is None)


@given(st.integers(1, 8), st.integers(0, 2**64 - 1))
def test_top_k_draws_among_the_k_most_likely(k: int, key: int) -> None:
    logits = torch.linspace(0, 2, 10)[None]
    drawn = Sampler([Draw(temperature=5.0, top_k=k, key=key)], CPU).draw(logits, [0])
    assert drawn[0][0] >= 10 - k


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    ids = {Sampler([Draw(top_p=0.75, key=key)], CPU).draw(logits, [0])[0][0] for key in range(200)}
    assert ids == {0, 1}


def test_top_k_of_equal_tokens_keeps_the_lowest_ids() -> None:
    sampled = (
        Sampler([Draw(top_k=2, key=key)], CPU).draw(torch.zeros(1, 9), [0]) for key in range(99)
    )
    assert {drawn[0][0] for drawn in sampled} == {0, 1}


def test_greedy_ties_go_to_the_lowest_id() -> None:
    logits = torch.zeros((3, 1000))
    logits[:, [7, 400, 999]] = 2.0
    drawn = Sampler([Draw(temperature=0)] * 3, CPU).draw(logits, [0] * 3)
    assert [token for token, *_ in drawn] == [7, 7, 7]


def test_draws_follow_the_distribution() -> None:
    shares = torch.tensor([0.1, 0.2, 0.3, 0.4])
    n_draws = 4000
    rows = [Draw(key=place) for place in range(n_draws)]
    drawn = Sampler(rows, CPU).draw(shares.log().expand(n_draws, 4), [0] * n_draws)
    ids = [token for token, *_ in drawn]
    counts = Counter(ids)
    chi_square = sum(
        (counts[i] - n_draws * p) ** 2 / (n_draws * p) for i, p in enumerate(shares.tolist())
    )
    assert chi_square < 16.27  # 0.999 quantile, 3 degrees of freedom


def test_temperature_never_enters_the_logprobs() -> None:
    logits = torch.randn((1, 50), generator=torch.Generator().manual_seed(0))
    sampler = Sampler([Draw(temperature=0.2, top_k=3, n_top=2, key=1)], CPU)
    ((token, logprob, listed),) = sampler.draw(logits, [0])
    raw = logits.log_softmax(-1)[0]
    assert logprob == pytest.approx(float(raw[token]), abs=1e-6)
    assert listed is not None
    assert listed[1] == pytest.approx(raw.topk(2).values.tolist(), abs=1e-6)


def test_given_ids_are_read_in_their_order() -> None:
    logits = torch.randn((2, 50), generator=torch.Generator().manual_seed(0))
    rows = [Draw(temperature=0), Draw(temperature=0, ids=(9, 2, 30))]
    listed = Sampler(rows, CPU).draw(logits, [0, 0])[1][2]
    assert listed is not None
    assert listed[0] == [9, 2, 30]
    assert listed[1] == pytest.approx(logits[1].log_softmax(-1)[[9, 2, 30]].tolist(), abs=1e-6)


def test_numbers_are_uniform_and_differ_by_step_and_key() -> None:
    keys, steps = np.meshgrid(np.arange(200, dtype=np.uint64), np.arange(200, dtype=np.uint64))
    numbers = uniforms(keys.ravel(), steps.ravel())
    assert len(np.unique(numbers)) == numbers.size
    counts, _ = np.histogram(numbers, bins=50, range=(0, 1))
    assert ((counts - 800) ** 2 / 800).sum() < 85.4  # 0.999 quantile, 49 degrees of freedom


def test_logits_that_are_no_numbers_give_no_logprob() -> None:
    logits = torch.zeros((2, 5))
    logits[0, 3] = float("nan")
    drawn = Sampler([Draw(key=1)] * 2, CPU).draw(logits, [0, 0])
    assert drawn[0][1] != drawn[0][1]
    assert drawn[1][1] == pytest.approx(-1.609438)
