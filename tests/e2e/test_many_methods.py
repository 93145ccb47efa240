"""Several methods over the same answers: what they share is sent once, as the server counts."""

import polars as pl
import pytest

from orchestrator.errors import EXIT_COMPLETE
from tests.e2e.runs import CANDIDATES, fake_server, frames, run, stats, write_recipe

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

N = 6
ANSWER = {"max_tokens": 8, "temperature": 1.0}
METHODS = [
    {"kind": "probdiff", "prompt": "compact", "answer": ANSWER,
     "revision": {"max_tokens": 8, "temperature": 0.1}},
    {"kind": "glass_box", "answer": ANSWER},
    {"kind": "pairwise_ranking", "judges": ["judge"], "prompt": "compact", "answer": ANSWER},
]  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    with fake_server() as url:
        recipe = write_recipe(folder / "r.json", url, n=N, methods=METHODS)
        ended = run(recipe, folder / "run")
        assert ended.returncode == EXIT_COMPLETE, ended.stderr
        yield frames(folder / "run"), stats(url)


def test_each_sampled_answer_is_sent_once_for_all_methods(done):
    made, counted = done
    answers = made["answers"]
    assert len(answers) == N * len(CANDIDATES)
    # One chat request an answer and one a rewriting; equal requests are counted as repeated.
    assert counted["by_route"]["chat"] == 2 * N * len(CANDIDATES)


def test_all_methods_saw_the_same_texts(done):
    made, _ = done
    texts = made["answers"].select("item", "model", "text")
    for name in ("probdiff", "glass_box"):
        both = made[name].join(texts, on=["item", "model"])
        assert len(both) == N * len(CANDIDATES)
        assert (both["answer"] == both["text"]).all()


def test_the_answer_s_tokens_are_scored_once_for_probdiff_and_glass_box(done):
    made, _ = done
    both = made["probdiff"].join(made["glass_box"], on=["item", "model"])
    assert ((both["ell_first"] - both["mean_logprob"]).abs() < 1e-6).all()


def test_ten_repeats_under_one_seed_are_not_ten_equal_texts(tmp_path):
    with fake_server() as url:
        method = {"kind": "samples", "n": 10, "answer": ANSWER}
        recipe = write_recipe(tmp_path / "r.json", url, n=2, methods=[method])
        ended = run(recipe, tmp_path / "run")
        assert ended.returncode == EXIT_COMPLETE, ended.stderr
        made = frames(tmp_path / "run")["samples"]
        n_texts = made.group_by("item", "model").agg(pl.col("text").n_unique())["text"]
        assert (n_texts > 1).all()
