"""A judge of real weights that a recipe names by its address alone, without `backend`."""

import subprocess
import sys

import pytest

from orchestrator.errors import UsageError
from orchestrator.interface import api
from orchestrator.store import Store
from tests.chaos.arena import free_port
from tests.e2e.runs import ROOT, fake_server, frames, write_recipe
from tests.e2e.test_replaced_model import BUNDLED, MODEL, embedded, serving, until_ready, vllm

pytestmark = [pytest.mark.slow, pytest.mark.models, pytest.mark.timeout(600)]

CANDIDATES = ("fake:0.3", "fake:0.9")
JUDGED = {"judges": ["judge"], "answer": {"max_tokens": 8}}
METHODS = [
    {"kind": "pairwise_ranking", **JUDGED},
    {"kind": "pairwise_scoring", **JUDGED},
    {"kind": "pointwise", "scale": [1, 10], **JUDGED},
]
FRAMES = ("judgments", "pair_scores", "scores")


@pytest.fixture(scope="module", params=["embedded", pytest.param("vllm", marks=pytest.mark.vllm)])
def judge(request, tmp_path_factory):
    serve = {"embedded": embedded, "vllm": vllm}[request.param]
    port = free_port()
    with serving(serve(BUNDLED / MODEL, port), tmp_path_factory.mktemp("log") / "server.log"):
        until_ready(port)
        yield request.param, f"http://127.0.0.1:{port}"


def recipe(tmp_path, candidates, address, **more):
    models = {name: {"base_url": candidates, "model": name} for name in CANDIDATES}
    models["judge"] = {"base_url": address, "model": MODEL, **more}
    return write_recipe(tmp_path / "r.json", candidates, n=2, models=models, methods=METHODS)


def test_its_kind_is_found_and_every_label_is_read(judge, tmp_path):
    kind, address = judge
    with fake_server(models=CANDIDATES) as candidates:
        api.run(recipe(tmp_path, candidates, address), run_dir=tmp_path / "run")
    found = frames(tmp_path / "run")
    for name in FRAMES:
        assert set(found[name]["status"]) == {"ok"}
        assert found[name]["exact"].all() or kind == "vllm"
    log = (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8")
    assert f"{address}, using `backend: {kind}`" in log


def test_asked_as_a_plain_endpoint_it_is_refused_before_the_answers(judge, tmp_path):
    _, address = judge
    with fake_server(models=CANDIDATES) as candidates:
        made = recipe(tmp_path, candidates, address, backend="openai")
        with pytest.raises(UsageError, match="pairwise_scoring"):
            api.run(made, run_dir=tmp_path / "run")
        plain = METHODS[:1]
        made = write_recipe(
            tmp_path / "r.json", candidates, n=2, methods=plain,
            models={
                **{name: {"base_url": candidates, "model": name} for name in CANDIDATES},
                "judge": {"base_url": address, "model": MODEL, "backend": "openai"},
            },
        )  # fmt: skip
        with pytest.raises(UsageError, match=r"\[\[>>\]\]"):
            api.run(made, run_dir=tmp_path / "run")
    with Store.open(tmp_path / "run" / "store.sqlite", read_only=True) as store:
        assert store.counts() == []


def test_a_probe_of_it_names_the_methods_that_it_can_run(judge):
    kind, address = judge
    said = subprocess.run(
        [sys.executable, "-m", "orchestrator", "servers", "probe", address], cwd=ROOT, text=True,
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    assert kind in said
    assert "pairwise_ranking" in said
