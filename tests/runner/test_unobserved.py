"""The words for values of tokens that are missing, and the setting that observes each."""

import json

import numpy as np

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


def test_alternatives_without_texts_are_listed_with_their_log_probabilities(tmp_path):
    text = {
        "models": {"m": {"base_url": "http://127.0.0.1:1/v1"}},
        "dataset": {"kind": "demo"},
        "methods": [{"kind": "answers"}],
    }
    speller = Speller(loads(json.dumps(text).encode(), tmp_path / "x.json"))
    made = of_earlier_version(offsets=True)
    assert made.top is not None
    (row,) = alternatives("m", made.top, speller)
    assert row == [(UNKNOWN_ID, None, -1.0), (UNKNOWN_ID, None, -1.0)]
