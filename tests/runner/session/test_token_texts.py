"""Texts of token ids are requested once, and only where there are ids."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.records import UNKNOWN_ID, Failure, Generation, TopLogprobs, unsupported
from orchestrator.runner.session.token_texts import TokenTexts


class Server:
    """A back-end that gives texts, and a store that keeps them."""

    def __init__(self, before: Collection[int] = (), fails: Iterable[Failure | None] = ()) -> None:
        self.asked: list[list[int]] = []
        self.kept = dict.fromkeys(before, b"x")
        self._fails = iter(fails)

    async def spell(self, ids: Sequence[int]) -> Mapping[int, bytes] | Failure:
        self.asked.append(list(ids))
        return next(self._fails, None) or dict.fromkeys(ids, b"x")

    @property
    def vocabulary(self) -> "Server":
        return self

    def known(self, _: int) -> list[int]:
        return list(self.kept)

    def put(self, _: int, texts: Mapping[int, bytes]) -> None:
        self.kept |= texts


def drawn(*ids: int) -> Generation:
    top = np.array([ids], dtype=np.int32)
    return Generation("a", "stop", top=TopLogprobs(top, -np.ones(top.shape, np.float32)))


def asked_for(*outcomes: Generation) -> list[list[int]]:
    server = Server()
    both: Any = server
    spelling = TokenTexts(both, {"m": 1}, lambda _: both)
    for outcome in outcomes:
        spelling.note("m", outcome)
    asyncio.run(spelling.leave("m", both))
    return server.asked


def test_ids_are_asked_for_once():
    assert asked_for(drawn(7, 0, 99_999), drawn(7, 8)) == [[0, 7, 99_999, 8]]


def test_tokens_that_are_named_by_texts_lead_to_no_request():
    assert asked_for(drawn(-2, -3), drawn(UNKNOWN_ID, -4)) == []


def test_an_id_beside_named_tokens_is_asked_for():
    assert asked_for(drawn(-2, 5, UNKNOWN_ID)) == [[5]]


id_lists = st.lists(
    st.one_of(
        st.lists(st.integers(-4, 300) | st.integers(65_530, 65_545), min_size=1, max_size=6),
        st.tuples(st.integers(0, 70_000), st.integers(1, 700)).map(
            lambda some: list(range(some[0], sum(some)))
        ),
    ),
    max_size=5,
)
BUSY = Failure("overloaded", "busy")


@given(id_lists, st.sets(st.integers(0, 300)), st.lists(st.sampled_from([None, BUSY]), max_size=6))
def test_each_id_is_known_in_the_end_and_is_asked_for_until_then(outcomes, before, fails):
    server = Server(before, fails)
    both: Any = server
    spelling = TokenTexts(both, {"m": 1}, lambda _: both)
    for ids in outcomes:
        spelling.note("m", drawn(*ids))
        asyncio.run(spelling.leave("m", both))
    for _ in fails:
        asyncio.run(spelling.leave("m", both))
    met = {one for ids in outcomes for one in ids if one >= 0}
    assert set(server.kept) == before | met
    assert all(len(ids) <= 256 for ids in server.asked)
    # Once, and once more for each time that the server could not tell.
    times = Counter(one for ids in server.asked for one in set(ids))
    assert set(times) == met - before
    assert max(times.values(), default=1) <= 1 + fails.count(BUSY)
    assert all(len(set(ids)) == len(ids) for ids in server.asked)


@pytest.mark.parametrize("n", [1, 257, 700])
def test_a_server_that_gives_no_texts_is_asked_once(n):
    server = Server(fails=[unsupported("no such route")])
    both: Any = server
    spelling = TokenTexts(both, {"m": 1}, lambda _: both)
    for first in (0, 5_000):
        spelling.note("m", drawn(*range(first, first + n)))
        asyncio.run(spelling.leave("m", both))
    assert len(server.asked) == 1
    assert server.kept == {}
