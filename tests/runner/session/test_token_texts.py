"""Texts of token ids are requested once, and only where there are ids."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from orchestrator.records import UNKNOWN_ID, Generation, TopLogprobs
from orchestrator.runner.session.token_texts import TokenTexts


class Server:
    """A back-end that gives texts, and a store that keeps them."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.kept: dict[int, bytes] = {}

    async def spell(self, ids: Sequence[int]) -> Mapping[int, bytes]:
        self.asked.append(list(ids))
        return dict.fromkeys(ids, b"x")

    @property
    def vocabulary(self) -> "Server":
        return self

    def known(self, _: int) -> frozenset[int]:
        return frozenset()

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
