"""The table of what providers do: its bold cells are what recorded replies of real servers say."""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import numpy as np
import pytest

from backends import llamacpp, vllm
from backends.tgi import wire as tgi
from orchestrator.ask import GenerateAsk
from orchestrator.backend import Backend, Endpoint
from orchestrator.records import Choice, Generation, Message, Sampling, Scored
from orchestrator.wire import replies
from orchestrator.wire.drawn import Reading
from tests.conformance.servers import KINDS
from tests.conftest import ROOT, SHARED
from tests.recorded.asks import CHOICES, DRAWS, SCORES, SEED
from tests.recorded.replay import Player, Recording

PAGE: Final = ROOT / "docs" / "servers.md"
ANSWER, MOST, GIVEN, IDS, BEGUN = (
    "log-probabilities of an answer",
    "most alternatives",
    "of a given text",
    "token ids",
    "begun answer",
)
UNTESTED: Final = "\N{EN DASH}"


def table() -> dict[str, dict[str, str]]:
    """Cells by endpoint and column."""
    said = PAGE.read_text(encoding="utf-8")
    rows = said.partition("<!-- providers -->\n")[2].partition("<!-- end")[0].splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
    assert len({len(row) for row in cells if row[0] != "---"}) == 1
    return {row[0]: dict(zip(cells[0], row, strict=True)) for row in cells[2:]}


def shared(name: str) -> bytes:
    path = SHARED / "data" / name
    if not path.is_file():
        pytest.skip(f"../shared is absent: it has {name}")
    return path.read_bytes()


def large_reply() -> Generation:
    made = replies.generation(shared("vllm_replies/large.json"), Reading(top=20))
    assert isinstance(made, Generation), made
    return made


def drawn_by_tgi() -> Generation:
    body = shared("tgi_replies/test_flash_llama__test_flash_llama_simple.json")
    ask = GenerateAsk("x", (Message("user", "Test request"),), Sampling())
    made = tgi.generation(body, Reading(), ask, 5)
    assert isinstance(made, Generation), made
    return made


def replayed(kind: str) -> Backend:
    module: Any = {"vllm": vllm, "llamacpp": llamacpp}[kind]
    at = Endpoint(base_url="http://127.0.0.1:1", model="judge")
    settings = module.Config(**KINDS[kind].backend)
    made: Backend = module.Connection(at, Player(Recording.read(kind).exchanges), settings)
    return made


async def an_echo_has_numbers() -> None:
    body = shared("recorded_replies/openai_legacy_completions_gpt3_test_80250233.json")
    made = replies.completion(body, Reading())
    assert isinstance(made, Generation), made
    assert made.logprobs is not None
    assert np.isfinite(made.logprobs[1:]).all()
    assert made.logprobs.size == len(json.loads(body)["choices"][0]["logprobs"]["tokens"])


async def vllm_draws() -> None:
    made = large_reply()
    assert made.logprobs is not None
    assert made.logprobs.shape == (256,)


async def vllm_lists_20() -> None:
    top = large_reply().top
    assert top is not None
    assert top.logprobs.shape[1] == 20
    assert f"**{top.logprobs.shape[1]}**" in table()["vLLM"][MOST]


async def tgi_draws() -> None:
    assert drawn_by_tgi().logprobs is not None


async def tgi_gives_ids() -> None:
    assert drawn_by_tgi().token_ids is not None


async def tgi_scores_a_prompt() -> None:
    body = shared("tgi_replies/test_bloom_560m__test_bloom_560m.json")
    made = tgi.forced(body, "")
    assert isinstance(made, tuple), made
    assert np.isfinite(made[1][1:]).all()


def draws_by(kind: str) -> Callable[[], Awaitable[None]]:
    async def draws() -> None:
        made = await replayed(kind).generate(DRAWS["sampled"], SEED)
        assert isinstance(made, Generation), made
        assert made.logprobs is not None
        assert made.token_ids is not None

    return draws


def scores_by(kind: str) -> Callable[[], Awaitable[None]]:
    async def scores() -> None:
        made = await replayed(kind).score(SCORES["ids"])
        assert isinstance(made, Scored), made

    return scores


def begins_by(kind: str) -> Callable[[], Awaitable[None]]:
    async def begins() -> None:
        made = await replayed(kind).choose(CHOICES["begun"])
        assert isinstance(made, Choice), made

    return begins


CHECKS: Final[dict[tuple[str, str], Callable[[], Awaitable[None]]]] = {
    ("OpenAI", GIVEN): an_echo_has_numbers,
    ("vLLM", ANSWER): vllm_draws,
    ("vLLM", MOST): vllm_lists_20,
    ("vLLM", GIVEN): scores_by("vllm"),
    ("vLLM", IDS): draws_by("vllm"),
    ("vLLM", BEGUN): begins_by("vllm"),
    ("TGI", ANSWER): tgi_draws,
    ("TGI", GIVEN): tgi_scores_a_prompt,
    ("TGI", IDS): tgi_gives_ids,
    ("llama.cpp", ANSWER): draws_by("llamacpp"),
    ("llama.cpp", GIVEN): scores_by("llamacpp"),
    ("llama.cpp", IDS): draws_by("llamacpp"),
    ("llama.cpp", BEGUN): begins_by("llamacpp"),
}


@pytest.mark.parametrize("cell", CHECKS, ids=", ".join)
async def test_a_bold_cell_is_what_a_recorded_reply_says(cell):
    await CHECKS[cell]()


def test_the_bold_cells_are_those_with_a_recorded_reply():
    bold = {
        (endpoint, column)
        for endpoint, row in table().items()
        for column, cell in row.items()
        if re.search(r"\*\*.+\*\*", cell)
    }
    assert bold == set(CHECKS)


def test_each_row_names_its_source_and_leaves_no_cell_empty():
    for endpoint, row in table().items():
        assert all(row.values()), endpoint
        assert row["source"] != UNTESTED
