"""The kind taken for a server if the recipe names none; other settings stay as they were."""

import asyncio

import pytest

from orchestrator.backend import PLAIN, Endpoint, Provenance
from orchestrator.errors import UsageError
from orchestrator.interface import api
from orchestrator.recipe.load import load
from orchestrator.records import Failure
from orchestrator.runner.models.identity import identity_key, model_identity, server_label
from orchestrator.runner.servers.connections import Held
from orchestrator.store import Store
from tests.e2e.runs import MODELS, write_recipe
from tests.inside import fake_server, run

DIALECTS = {
    "native": "fake", "vllm_v1": "vllm", "vllm_v2": "vllm", "sglang": "sglang", "tgi": "tgi",
    "llama_server": "llamacpp", "openai": "openai", "ollama": "openai",
}  # fmt: skip


def recipe(tmp_path, url, *, backend=None, **changes):
    entry = {"base_url": url, "model": MODELS[0], **({"backend": backend} if backend else {})}
    method = {"kind": "answers", "answer": {"max_tokens": 4}}
    return write_recipe(
        tmp_path / "r.json", url, n=2, **{"models": {"m": entry}, "methods": [method], **changes}
    )


def found(spec, url, store, *, enabled=True):
    held = Held(store, {spec.name: identity_key(model_identity(spec))}, None, asks=enabled)
    return asyncio.run(held.kind(spec, Endpoint(base_url=url, model=spec.model)))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_server_is_asked_which_kind_it_is(dialect, tmp_path, store):
    with fake_server({"dialect": dialect}, models=MODELS[:1]) as url:
        spec = load(recipe(tmp_path, url)).models["m"]
        assert found(spec, url, store) == DIALECTS[dialect]
        assert found(spec, url, store, enabled=False) == PLAIN


def test_the_kind_that_a_recipe_names_is_not_asked_for(tmp_path, store):
    spec = load(recipe(tmp_path, "http://127.0.0.1:9", backend="openai")).models["m"]
    assert found(spec, "http://127.0.0.1:9", store) == "openai"


def test_a_server_that_does_not_answer_is_of_no_kind_yet(tmp_path, store):
    spec = load(recipe(tmp_path, "http://127.0.0.1:9")).models["m"]
    silent = found(spec, "http://127.0.0.1:9", store)
    assert isinstance(silent, Failure)
    assert not silent.permanent


def test_a_run_keeps_the_kind_by_which_it_was_answered(tmp_path, store):
    with fake_server({"dialect": "vllm_v2"}, models=MODELS[:1]) as url:
        spec = load(recipe(tmp_path, url)).models["m"]
        label = server_label("m", identity_key(model_identity(spec)))
        store.server_id(label, Provenance(backend="openai", base_url=url, model=MODELS[0]))
        assert found(spec, url, store) == "openai"


def test_the_identity_is_that_of_earlier_versions_whatever_is_found(tmp_path):
    left_out = load(recipe(tmp_path, "http://127.0.0.1:9")).models["m"]
    named = load(recipe(tmp_path, "http://127.0.0.1:9", backend="openai")).models["m"]
    assert model_identity(left_out) == model_identity(named)
    assert model_identity(left_out)["backend"] == "openai"
    assert "backend" not in left_out.resolved()
    assert named.resolved()["backend"]["kind"] == "openai"


def test_a_run_of_an_earlier_version_goes_on_as_it_was_and_asks_nothing_again(tmp_path):
    with fake_server({"dialect": "vllm_v2"}, models=MODELS[:1]) as url:
        api.run(recipe(tmp_path, url, backend="openai"), run_dir=tmp_path / "run", limit=1)
        again = run(recipe(tmp_path, url), tmp_path / "run")
    assert again.returncode == 0, again.stderr
    assert "1 requests sent" in again.stderr


def test_the_kind_that_was_found_is_said(tmp_path):
    with fake_server({"dialect": "vllm_v2"}, models=MODELS[:1]) as url:
        said = run(recipe(tmp_path, url), tmp_path / "run", "--display", "plain").stderr
    assert f"m: {url}, using `backend: vllm`" in said


def test_a_judge_is_refused_before_the_answers_are_asked_for(tmp_path):
    judged = {"kind": "pairwise_ranking", "judges": ["judge"], "answer": {"max_tokens": 4}}
    with fake_server() as url, fake_server({"dialect": "openai"}, models=MODELS[3:]) as other:
        models = {name: {"base_url": url, "model": name} for name in MODELS[:2]}
        models["judge"] = {"base_url": other, "model": MODELS[3]}
        made = recipe(tmp_path, url, models=models, methods=[judged])
        with pytest.raises(UsageError, match="labels: two"):
            api.run(made, run_dir=tmp_path / "run")
        with Store.open(tmp_path / "run" / "store.sqlite", read_only=True) as store:
            assert store.counts() == []
