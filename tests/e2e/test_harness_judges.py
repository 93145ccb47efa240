"""Judges of other harnesses on real inference: rows against what the server itself says."""

import re

import numpy as np
import polars as pl
import pytest

from orchestrator.methods.alpaca_eval import is_switched
from tests.e2e.embedded import ask, run_methods

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.models, pytest.mark.timeout(600)]

NAMES = ("novice", "apprentice", "expert", "judge")
SYMBOLS = ("[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]")
SHARED = {"judges": ["judge"], "prompts": "compact", "answer": {"max_tokens": 24}}
TEXTS = {**SHARED, "judgment": {"max_tokens": 16}, "distribution": True}
METHODS = [
    {"kind": "mt_bench_judge", **TEXTS},
    {"kind": "mt_bench_judge", "name": "pairs", "mode": "pairwise", **TEXTS},
    {"kind": "alpaca_eval", "baseline": "novice", **SHARED},
]


@pytest.fixture(scope="module")
def found(embedded, tmp_path_factory):
    return run_methods(embedded, NAMES, METHODS, tmp_path_factory.mktemp("judges"))


def judged(url, text, labels):
    """The judge's greedy text, and the probabilities of labels, as the server gives them."""
    messages = [{"role": "user", "content": text}]
    said = ask(
        url, "/v1/chat/completions", model="judge", messages=messages, max_tokens=16, temperature=0
    )
    chosen = ask(
        url, "/v1/choose", model="judge", messages=messages, labels=[[label] for label in labels]
    )
    p = np.exp(chosen["logprobs"])
    return said["choices"][0]["message"]["content"], p / p.sum()


def pair_text(first, second):
    return (
        f"Compare two answers. Verdict only.\nTask: {first['prompt']}\n"
        f"Reference: {first['reference']}\nAnswer A: {first['text']}\nAnswer B: {second['text']}"
    )


def test_three_ratings_follow_from_the_servers_replies(embedded, found, answer_of):
    rows = found["verdicts"].filter(pl.col("method") == "mt_bench_judge")
    assert len(rows) == 12
    for row in rows.head(3).iter_rows(named=True):
        answer = answer_of(row, row["model"])
        text, p = judged(
            embedded,
            f"Rate the answer from 1 to 9. Rating only.\nTask: {answer['prompt']}\n"
            f"Reference: {answer['reference']}\nAnswer: {answer['text']}",
            list("123456789"),
        )
        assert row["rating"] == float(text.strip())
        assert row["expected"] == pytest.approx(p @ np.arange(1, 10), abs=1e-4)


def test_three_comparisons_follow_from_the_servers_replies(embedded, found, answer_of):
    rows = found["verdicts"].filter(pl.col("method") == "pairs")
    value = {">>": 1.0, ">": 1.0, "=": 0.5, "<": 0.0, "<<": 0.0}
    for row in rows.head(3).iter_rows(named=True):
        a, b = answer_of(row, row["model_a"]), answer_of(row, row["model_b"])
        (one, p_one), (two, p_two) = (
            judged(embedded, pair_text(*shown), SYMBOLS) for shown in ((a, b), (b, a))
        )
        first, second = (value[re.sub(r"[\[\]\s]", "", text)] for text in (one, two))
        agreed = {1.0: "A", 0.0: "B"}.get(first, "tie") if first == 1 - second else "tie"
        assert row["winner"] == agreed
        prefer = 0.5 * (p_one @ list(value.values()) + 1 - p_two @ list(value.values()))
        assert row["prefer_a"] == pytest.approx(prefer, abs=1e-4)


def test_three_preferences_follow_from_the_servers_replies(embedded, found, answer_of):
    rows = found["preferences"]
    assert set(rows["model"]) == {"apprentice", "expert"}
    for row in rows.filter(~pl.col("same_text")).head(3).iter_rows(named=True):
        model, baseline = answer_of(row, row["model"]), answer_of(row, "novice")
        switched = is_switched(model["prompt"])
        shown = (model, baseline) if switched else (baseline, model)
        _, p = judged(embedded, pair_text(*shown), SYMBOLS)
        second = p @ [0, 0, 0.5, 1, 1]
        assert row["preference"] == pytest.approx(2 - second if switched else 1 + second, abs=1e-4)
