"""The bundled models are served with the numbers of a direct pass."""

from __future__ import annotations

import pytest

from launch.embedded import routes
from launch.embedded.engine import Settings
from launch.embedded.protocol import ChooseRequest, ScoreRequest
from launch.embedded.served import load
from tests.launch.embedded.client import USER, begun, forced, run, taken
from training.export import NAMES

LABELS = [["[[>>]]"], ["[[>]]"], ["[[=]]"], ["[[<]]"], ["[[<<]]"]]


@pytest.mark.models
def test_choices_of_bundled_models_equal_direct_passes() -> None:
    for name in NAMES:
        served = load(name, f"bundled:{name}", Settings())
        choosing = begun(routes.choose, ChooseRequest(messages=USER, labels=LABELS), served)
        scoring = begun(routes.score, ScoreRequest(messages=USER, text="[[=]]"), served)
        served.engine.start()
        run(served.engine, choosing.job, scoring.job)
        served.engine.close()
        reply, prompt = choosing.reply(), list(scoring.job.ids[: scoring.job.n_prompt])
        for (path,), value in zip(reply["paths"], reply["logprobs"], strict=True):
            expected = sum(taken(forced(served, [*prompt, *path]), len(prompt), list(path)))
            assert value == pytest.approx(expected, abs=1e-4)
        assert sum(scoring.reply()["logprobs"]) == pytest.approx(reply["logprobs"][2], abs=1e-4)
