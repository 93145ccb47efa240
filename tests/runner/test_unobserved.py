"""The words for values of tokens that are missing, and the setting that observes each."""

import json

import msgspec
import numpy as np
import pytest

from orchestrator.ask import GenerateAsk
from orchestrator.recipe.load import loads
from orchestrator.records import UNKNOWN_ID, Generation, Message, Sampling, TopLogprobs
from orchestrator.runner.results.requests import alternatives
from orchestrator.runner.results.token_texts import Speller

ASK = GenerateAsk("m", (Message("user", "x"),), Sampling(max_tokens=9), top_logprobs=2)


def of_earlier_version(listed: int = 2, *, offsets: bool) -> Generation:
    """A draw of a server without ids, as versions before the table of token texts stored it."""
    logprobs = np.full((1, 2), np.nan, np.float32)
    logprobs[0, :listed] = -1.0
    return Generation(
        "a",
        "stop",
        logprobs=np.array([-1.0], np.float32),
        top=TopLogprobs(np.full((1, 2), UNKNOWN_ID, np.int32), logprobs),
        offsets=np.array([0], np.int32) if offsets else None,
    )


@pytest.fixture
def speller(tmp_path):
    text = {
        "models": {"m": {"base_url": "http://127.0.0.1:1/v1"}},
        "dataset": {"kind": "demo"},
        "methods": [{"kind": "answers"}],
    }
    return Speller(loads(json.dumps(text).encode(), tmp_path / "x.json"))


@pytest.mark.parametrize("is_spelled", [False, True])
@pytest.mark.parametrize("has_ids", [False, True])
def test_ids_are_said_to_be_kept_where_they_are(speller, has_ids, is_spelled):
    ids = np.array([7], np.int32) if has_ids else None
    made = msgspec.structs.replace(of_earlier_version(offsets=False), token_ids=ids)
    said = "\n".join(speller.missing(ASK, made, is_spelled=is_spelled))
    assert ("holds the ids of these tokens without their texts" in said) == (
        has_ids and not is_spelled
    )
    assert ("Neither the ids nor the texts" in said) == (not has_ids and not is_spelled)


def test_alternatives_without_texts_are_listed_with_their_log_probabilities(speller):
    made = of_earlier_version(offsets=True)
    assert made.top is not None
    (row,) = alternatives("m", made.top, speller)
    assert row == [(UNKNOWN_ID, None, -1.0), (UNKNOWN_ID, None, -1.0)]
