"""Answers, lists and runs that hold nothing are shown as such."""

import json
from types import SimpleNamespace
from typing import cast

import numpy as np
import polars as pl
import pytest

from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk, SimilarityAsk
from orchestrator.recipe.load import loads
from orchestrator.records import (
    Choice,
    Failure,
    Generation,
    Message,
    PairScores,
    Sampling,
    Scored,
    TopLogprobs,
)
from orchestrator.runner.results.token_texts import Speller
from orchestrator.units import Work
from orchestrator.view.item import trace
from tests.view.runs import SETTINGS, answers_frame, items_frame, make_run

WORK = cast(
    "Work",
    SimpleNamespace(
        part=SimpleNamespace(name="answers", kind="answers"),
        unit=SimpleNamespace(models=("m",), judge=""),
    ),
)
IDS = np.zeros(0, dtype=np.int32)
LOGPROBS = np.zeros(0, dtype=np.float32)
NOTHING = TopLogprobs(np.zeros((0, 3), dtype=np.int32), np.zeros((0, 3), dtype=np.float32))
EMPTY = (Message("user", ""),)


@pytest.fixture
def speller(tmp_path):
    text = {
        "name": "x",
        "models": {"m": {"base_url": "http://127.0.0.1:1/v1"}},
        "dataset": {"kind": "demo"},
        "methods": [{"kind": "answers"}],
    }
    return Speller(loads(json.dumps(text).encode(), tmp_path / "x.json"))


DRAW = GenerateAsk("m", EMPTY, Sampling(max_tokens=4))


@pytest.mark.parametrize(
    "asked",
    [
        (DRAW, Generation("", "stop", token_ids=IDS, logprobs=LOGPROBS, offsets=IDS)),
        (DRAW, Generation("", "stop", token_ids=IDS, logprobs=LOGPROBS, top=NOTHING)),
        (DRAW, Generation("", "stop", token_ids=IDS, offsets=IDS, top=NOTHING)),
        (DRAW, Generation("", "")),
        (DRAW, Failure("timeout", "")),
        (ScoreAsk("m", EMPTY, ()), Scored(IDS, LOGPROBS, top=NOTHING, features={})),
        (ScoreAsk("m", (), ()), Scored(IDS, LOGPROBS, features={"entropy": LOGPROBS})),
        (ChooseAsk("m", EMPTY, ()), Choice((), (), "")),
        (
            SimilarityAsk("m", ()),
            PairScores(np.zeros((0, 0), np.float32), np.zeros((0, 0), np.float32), "", 0),
        ),
    ],
)
def test_what_was_asked_may_be_empty(speller, asked):
    found = trace([(WORK, [asked])], speller)
    (shown,) = found["asks"]
    json.dumps(shown, allow_nan=False)
    if shown.get("tokens"):
        assert (shown["tokens"]["n"], shown["tokens"]["pieces"]) == (0, [])


def test_a_unit_that_asked_nothing_is_shown(speller):
    found = trace([(WORK, [])], speller)
    assert found["asks"] == []


def test_a_run_without_rows_has_its_pages(viewer, tmp_path):
    frames = {"items": items_frame(0), "answers": answers_frame(0)}
    make_run(tmp_path / "made", frames, SETTINGS)
    opened = viewer(tmp_path / "made").enter()
    for page in ("", "/sections", "/items", "/drawings", "/state"):
        assert opened.get(f"/api/runs/made{page}").status_code == 200, page
    assert opened.json("/api/runs/made/items")["rows"] == []


def test_an_empty_prompt_and_answer_have_their_page(viewer, tmp_path):
    items = items_frame(2).with_columns(prompt=pl.lit(""))
    answers = answers_frame(2).with_columns(text=pl.lit(""), mean_logprob=pl.lit(None, pl.Float64))
    make_run(tmp_path / "made", {"items": items, "answers": answers}, SETTINGS)
    opened = viewer(tmp_path / "made").enter()
    found = opened.json("/api/runs/made/items/0")
    assert found["about"]["prompts"] == [""]
    assert [one["text"] for one in found["answers"]] == ["", ""]
