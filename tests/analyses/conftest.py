import numpy as np
import polars as pl
import pytest

from orchestrator.contracts.context import Context, Source
from tests.core.fakes import PLAIN

MODELS = ("good", "fair", "poor")
SKILL = {"good": 0.9, "fair": 0.6, "poor": 0.3}


def answers_frame(n_items, rng):
    return pl.DataFrame(
        {
            "method": "answers",
            "item": f"i{index}",
            "category": "even" if index % 2 == 0 else "odd",
            "model": model,
            "turn": 1,
            "exact_match": bool(rng.random() < SKILL[model]),
            "n_tokens": int(rng.integers(5, 50)),
            "status": "ok",
        }
        for index in range(n_items)
        for model in MODELS
    )


@pytest.fixture
def answers():
    return answers_frame(120, np.random.default_rng(0))


@pytest.fixture
def context_over():
    """Settings and a context over frames, each of a method of its name; scores by frame name."""

    def make(config, frames, scores):
        sources = [
            Source(name, name, PLAIN, name, scores[name]) for name in frames if name in scores
        ]
        return config, Context("analysis", frames, pl.DataFrame(), sources, 0.95, 300, 0)

    return make


@pytest.fixture
def scored(answers):
    """Rows of a made-up method: `value` goes with being right, `noise` with nothing."""
    rng = np.random.default_rng(3)
    right = answers["exact_match"].cast(pl.Float64).to_numpy()
    return answers.select(
        pl.lit("made").alias("method"),
        "item",
        "category",
        "model",
        "turn",
        pl.Series("value", right + rng.normal(0, 0.3, len(right))),
        pl.Series("noise", rng.normal(size=len(right))),
        pl.lit("ok").alias("status"),
    )
