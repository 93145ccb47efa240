"""The words for values of tokens that are missing, and the setting that observes each."""

import json

import numpy as np
import pytest

from orchestrator.ask import GenerateAsk
from orchestrator.recipe.load import loads
from orchestrator.records import UNKNOWN_ID, Generation, Message, Sampling, TopLogprobs
from orchestrator.runner.results.requests import alternatives
from orchestrator.runner.results.token_texts import Speller, unobserved

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


def test_alternatives_without_texts_are_listed_with_their_log_probabilities(tmp_path):
    text = {
        "models": {"m": {"base_url": "http://127.0.0.1:1/v1"}},
        "dataset": {"kind": "demo"},
        "methods": [{"kind": "answers"}],
    }
    speller = Speller(loads(json.dumps(text).encode(), tmp_path / "x.json"), {})
    made = of_earlier_version(offsets=True)
    assert made.top is not None
    (row,) = alternatives("m", made.top, speller)
    assert row == [(UNKNOWN_ID, None, -1.0), (UNKNOWN_ID, None, -1.0)]


@pytest.mark.parametrize(
    ("made", "is_spelled", "expected"),
    [
        (of_earlier_version(offsets=True), True, ["The texts of some alternatives are not in"]),
        (
            of_earlier_version(offsets=False),
            False,
            ["Neither the ids nor the texts of", "The texts of some alternatives are not in"],
        ),
        (of_earlier_version(1, offsets=True), True, ["The server listed 1 of the 2 alternatives"]),
    ],
)
def test_a_run_of_an_earlier_version_is_not_blamed_on_the_server(made, is_spelled, expected):
    said = unobserved(None, ASK, made, is_spelled=is_spelled)
    for words in expected:
        assert any(one.startswith(words) for one in said), said
    assert not any("listed 0" in one for one in said)
