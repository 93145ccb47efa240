"""Judging methods on real inference, against what the server says; nothing is paid for twice."""

import re
import sqlite3
from contextlib import closing

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from orchestrator.errors import EXIT_COMPLETE
from tests.e2e.embedded import ask, run_methods
from tests.e2e.runs import fake_server, frames, run, stats, write_recipe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAMES = ("novice", "apprentice", "judge")
SCORES = [str(score) for score in range(1, 10)]
SHARED = {"judges": ["judge"], "prompt": "compact", "answer": {"max_tokens": 24}}
REASONED = {"chain_of_thought": True, "reasoning": {"max_tokens": 96}}
SAMPLED = {**REASONED, "reasoning": {"max_tokens": 96, "temperature": 1.0}, "traces": 3}
METHODS = [
    {"kind": "pointwise", **SHARED},
    {"kind": "pointwise", "name": "reasoned", **SHARED, **REASONED},
    {"kind": "pointwise", "name": "sampled", **SHARED, **SAMPLED},
    {"kind": "pairwise_scoring", **SHARED},
    {"kind": "pairwise_ranking", "name": "three", "labels": "three", **SHARED},
    {"kind": "pairwise_ranking", "name": "ranked reasoned", **SHARED, **REASONED},
]


@pytest.fixture(scope="module")
def found(embedded, tmp_path_factory):
    return run_methods(embedded, NAMES, METHODS, tmp_path_factory.mktemp("judging"))


def chosen(url, text, labels, prefix=None):
    """The probabilities of labels, each a list of spellings: raw, and renormalised."""
    body = {"messages": [{"role": "user", "content": text}], "labels": labels}
    more = {} if prefix is None else {"prefix": prefix}
    p = np.exp(ask(url, "/v1/choose", model="judge", **body, **more)["logprobs"])
    return p, p / p.sum()


def rating_text(first_line, answer):
    return (
        f"{first_line}\nTask: {answer['prompt']}\nReference: {answer['reference']}\n"
        f"Answer: {answer['text']}"
    )


def pair_text(first_line, first, second):
    return (
        f"{first_line}\nTask: {first['prompt']}\nReference: {first['reference']}\n"
        f"Answer A: {first['text']}\nAnswer B: {second['text']}"
    )


def both_spellings(names):
    return [[name, f" {name}"] for name in names]


def trace_of(url, text):
    """The judge's greedy text, and its tokens with the places at which they begin."""
    said = ask(
        url, "/v1/chat/completions", model="judge", max_tokens=96, temperature=0, logprobs=True,
        messages=[{"role": "user", "content": text}],
    )["choices"][0]  # fmt: skip
    tokens = said["logprobs"]["content"]
    starts = np.cumsum([0, *(len(token["token"]) for token in tokens)])[:-1]
    return said["message"]["content"], tokens, starts


def at_token(tokens, starts, place):
    """Ids before the token in which a place lies, and what that token has before it."""
    at = max(i for i, start in enumerate(starts) if start <= place)
    return [token["id"] for token in tokens[:at]], int(place - starts[at])


@pytest.mark.models
def test_three_ratings_follow_from_the_servers_replies(embedded, found, answer_of):
    rows = found["scores"].filter(pl.col("method") == "pointwise")
    assert len(rows) == 8
    for row in rows.head(3).iter_rows(named=True):
        text = rating_text(
            "Rate the answer from 1 to 9. Rating only.", answer_of(row, row["model"])
        )
        raw, p = chosen(embedded, text, both_spellings(SCORES))
        assert np.allclose(row["p"], p, atol=1e-4)
        assert row["mean"] == pytest.approx(p @ np.arange(1, 10), abs=1e-4)
        assert row["coverage"] == pytest.approx(raw.sum(), abs=1e-4)


@pytest.mark.models
def test_three_reasoned_ratings_are_read_after_the_judges_own_tokens(embedded, found, answer_of):
    rows = found["scores"].filter(pl.col("method") == "reasoned")
    for row in rows.head(3).iter_rows(named=True):
        text = rating_text(
            "Rate the answer from 1 to 9. Check first.", answer_of(row, row["model"])
        )
        said, tokens, starts = trace_of(embedded, text)
        rating = re.search(r"\d\W*\Z", said)
        assert rating is not None
        ids, n_before = at_token(tokens, starts, rating.start())
        assert n_before <= 1
        _, p = chosen(embedded, text, both_spellings(SCORES), {"token_ids": ids})
        assert np.allclose(row["p"], p, atol=1e-4)


@pytest.mark.models
def test_sampled_traces_are_averaged(found):
    rows = found["scores"].filter(pl.col("method") == "sampled")
    assert (rows["n_traces"] + rows["n_silent"]).to_list() == [3] * 8
    assert np.allclose([sum(p) for p in rows["p"]], 1.0)


@pytest.mark.models
def test_three_pairs_of_scores_follow_from_the_servers_replies(embedded, found, answer_of):
    for row in found["pair_scores"].head(3).iter_rows(named=True):
        a, b = answer_of(row, row["model_a"]), answer_of(row, row["model_b"])
        for order, shown in (("ab", (a, b)), ("ba", (b, a))):
            text = pair_text("Rate both answers from 1 to 9. Ratings only.", *shown)
            raw_1, first = chosen(embedded, text, both_spellings(SCORES))
            prefix = {"text": SCORES[first.argmax()]}
            raw_2, second = chosen(embedded, text, [[f" {score}"] for score in SCORES], prefix)
            assert np.allclose(row[f"p_first_{order}"], first, atol=1e-4)
            assert np.allclose(row[f"p_second_{order}"], second, atol=1e-4)
            mass = raw_1.sum() * raw_2.sum()
            assert row[f"coverage_{order}"] == pytest.approx(mass, rel=1e-3)


@pytest.mark.models
def test_three_comparisons_with_three_labels_follow_from_the_servers_replies(
    embedded, found, answer_of
):
    labels = [["[[>]]"], ["[[=]]"], ["[[<]]"]]
    rows = found["judgments"].filter(pl.col("method") == "three")
    for row in rows.head(3).iter_rows(named=True):
        a, b = answer_of(row, row["model_a"]), answer_of(row, row["model_b"])
        _, ab = chosen(embedded, pair_text("Compare two answers. Verdict only.", a, b), labels)
        _, ba = chosen(embedded, pair_text("Compare two answers. Verdict only.", b, a), labels)
        assert np.allclose(row["p_ab"], ab, atol=1e-4)
        assert np.allclose(row["p_ba"], ba[::-1], atol=1e-4)


@pytest.mark.models
def test_a_reasoned_comparison_is_read_after_the_judges_own_tokens(embedded, found, answer_of):
    symbols = ("[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]")
    rows = found["judgments"].filter(pl.col("method") == "ranked reasoned")
    for row in rows.head(3).iter_rows(named=True):
        a, b = answer_of(row, row["model_a"]), answer_of(row, row["model_b"])
        text = pair_text("Compare two answers. Check first.", a, b)
        said, tokens, starts = trace_of(embedded, text)
        ids, n_before = at_token(tokens, starts, said.rindex("[["))
        lead = said[said.rindex("[[") - n_before : said.rindex("[[")]
        labels = [[lead + symbol, symbol][: 2 if lead else 1] for symbol in symbols]
        _, p = chosen(embedded, text, labels, {"token_ids": ids})
        assert np.allclose(row["p_ab"], p, atol=1e-4)


def test_rows_that_are_gone_are_made_again_without_a_request(tmp_path):
    with fake_server() as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=5, methods=METHODS)
        first = run(recipe, tmp_path / "run")
        assert first.returncode == EXIT_COMPLETE, first.stderr
        before, total = frames(tmp_path / "run"), stats(url)["total"]
        with closing(sqlite3.connect(tmp_path / "run" / "store.sqlite")) as store, store:
            store.execute("DELETE FROM place")
            store.execute("DELETE FROM unit")
        assert run(recipe, tmp_path / "run").returncode == EXIT_COMPLETE
        assert stats(url)["total"] == total
        after = frames(tmp_path / "run")
    assert {name: len(frame) for name, frame in after.items()} == {
        "answers": 15, "items": 5, "judgments": 30, "pair_scores": 15, "scores": 45,
    }  # fmt: skip
    for name, frame in before.items():
        assert_frame_equal(after[name], frame)
