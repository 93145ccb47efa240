"""Token texts of every kind of server, read from a copy of the run when the server is gone."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from orchestrator.errors import UsageError
from orchestrator.interface import api
from orchestrator.store import Store
from orchestrator.view.library import Snapshot
from tests.conformance.servers import KINDS, MODEL, Running, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SPEAKS = {
    "dialect_sglang": "sglang",
    "dialect_vllm_v1": "vllm",
    "dialect_llama_server": "llamacpp",
    "dialect_tgi": "tgi",
    "fake": "openai",
    "embedded": "embedded",
    "vllm": "vllm",
    "llamacpp": "llamacpp",
}
N = 3


@pytest.fixture(
    scope="module", params=[pytest.param(one, marks=KINDS[one].marks, id=one) for one in SPEAKS]
)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server that a recipe names by its address, and a run of it that is copied elsewhere."""
    folder: Path = tmp_path_factory.mktemp("run")
    with (
        running(KINDS[request.param], folder / "server.log") as found,
        pytest.MonkeyPatch.context() as env,
    ):
        env.setenv("THE_KEY", found.server.api_key)
        kept = folder / "kept"
        api.run(recipe(folder, found, request.param), run_dir=kept)
        n_before = outcomes(kept)
        again = api.run(recipe(folder, found, request.param), run_dir=kept)
        assert (again.ok, outcomes(kept)) == (True, n_before)
    shutil.copytree(kept, folder / "copy")
    shutil.rmtree(kept)
    return request.param, folder / "copy"


def recipe(folder: Path, found: Running, name: str) -> Path:
    model: dict[str, Any] = {
        "base_url": found.server.base_url,
        "model": MODEL,
        "backend": SPEAKS[name],
        "api_key_env": "THE_KEY",
    }
    if not found.server.api_key:
        del model["api_key_env"]
    path = folder / "recipe.json"
    answer = {"max_tokens": 10, "temperature": 0.7 if name == "fake" else 0.0}
    path.write_text(
        json.dumps(
            {
                "name": "kept",
                "models": {"there": model},
                "dataset": {"kind": "demo", "n": N},
                "methods": [{"kind": "answers", "top_logprobs": 3, "answer": answer}],
                "probe": False,
            }
        ),
        encoding="utf-8",
    )
    return path


def outcomes(path: Path) -> int:
    with Store.open(path / "store.sqlite", read_only=True) as store:
        return sum(count.n for count in store.counts())


def texts(path: Path) -> Iterator[tuple[str, pl.DataFrame]]:
    result = api.load(path)
    for row in result.frames["answers"].iter_rows(named=True):
        yield row["text"], result.tokens(row["item"]).filter(kind="drawn")


def test_the_tokens_of_each_answer_spell_it(served):
    _, path = served
    for text, tokens in texts(path):
        assert tokens["position"].to_list() == list(range(len(tokens)))
        assert "".join(tokens["token"].to_list()).strip() == text.strip()
        assert tokens["logprob"].is_not_null().all()


def test_alternatives_are_spelled_and_nothing_is_missing(served):
    name, path = served
    for _, tokens in texts(path):
        listed = tokens.select(pl.col("alternatives").explode()).unnest("alternatives")
        assert len(listed) == 3 * len(tokens)
        assert listed["token"].is_not_null().all()
        assert listed["id"].is_null().all() == (name == "fake")
        missing = tokens["missing"].to_list()
        expected = ["Log-probabilities are those after"] if name == "fake" else []
        assert [[one[:33] for one in some] for some in missing] == [expected] * len(tokens)


def test_the_viewer_shows_the_same(served, tmp_path):
    _, path = served
    result = api.load(path)
    trace = Snapshot("1", result, tmp_path).trace(1)
    (asked,) = trace["asks"]
    tokens = result.tokens(result.frames["items"]["item"][1])
    assert asked["tokens"]["pieces"] == tokens["token"].to_list()
    assert asked["missing"] == tokens["missing"][0].to_list()


def test_an_item_that_is_not_there_is_a_mistake(served):
    _, path = served
    with pytest.raises(UsageError, match="no item 'nothing' in this run"):
        api.load(path).tokens("nothing")
