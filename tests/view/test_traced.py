"""Requests of an item, replayed over the store of a real run against a fake server."""

import pytest
import yaml

from orchestrator.interface import api
from orchestrator.runner.results.requests import Replay, StoredItems
from orchestrator.store import Store
from orchestrator.view.library import Snapshot
from tests.e2e.runs import fake_server, run, write_recipe

pytestmark = pytest.mark.slow

N_ITEMS = 5


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    methods = [
        {"kind": "answers", "top_logprobs": 3, "answer": {"max_tokens": 8}},
        {
            "kind": "pairwise_ranking",
            "judges": ["judge"],
            "prompt": "compact",
            "answer": {"max_tokens": 8},
        },
        {
            "kind": "probdiff",
            "rounds": 2,
            "prompt": "compact",
            "candidates": ["weak"],
            "answer": {"max_tokens": 8, "temperature": 0},
            "revision": {"max_tokens": 8, "temperature": 0.7},
        },
    ]
    with fake_server() as url:
        recipe = write_recipe(folder / "recipe.json", url, n=N_ITEMS, methods=methods)
        done = run(recipe, folder / "made")
        assert done.returncode == 0, done.stderr
    return folder / "made"


@pytest.fixture
def snapshot(path, tmp_path):
    return Snapshot("1", api.read(path), tmp_path)


def asks(trace, unit, kind):
    return [one for at in unit["asks"] if (one := trace["asks"][at])["kind"] == kind]


def unit_of(trace, method, *models):
    return next(u for u in trace["units"] if u["method"] == method and u["models"] == [*models])


def test_every_request_of_the_run_is_found_again(path, snapshot):
    replay = Replay(path, snapshot.result.frames)
    with Store.open(path / "store.sqlite", read_only=True) as store:
        n_outcomes = sum(count.n for count in store.counts())
    asked = {ask for k in range(N_ITEMS) for _, played in replay.units(k) for ask, _ in played}
    assert len(asked) == n_outcomes


def test_what_the_judge_was_asked_gives_what_the_row_says(snapshot):
    rows = snapshot.result.frames["judgments"].to_dicts()
    trace = snapshot.trace(2)
    row = next(one for one in rows if one["item"] == snapshot.items.keys[2])
    unit = unit_of(trace, "pairwise_ranking", row["model_a"], row["model_b"])
    ab, ba = asks(trace, unit, "choose")
    known = [p for _, p, _ in ab["labels"]]
    assert [p / sum(known) for p in known] == pytest.approx(row["p_ab"])
    assert sum(known) == pytest.approx(row["coverage_ab"])
    known = [p for _, p, _ in ba["labels"]]
    assert [p / sum(known) for p in reversed(known)] == pytest.approx(row["p_ba"])
    assert "Answer A" in ab["messages"][0][1]


def test_tokens_of_an_answer_have_its_mean_log_probability(snapshot):
    (row, *_) = snapshot.result.frames["answers"].filter(method="answers").to_dicts()
    trace = snapshot.trace(0)
    (drawn,) = asks(trace, unit_of(trace, "answers", row["model"]), "generate")
    logprobs = drawn["tokens"]["logprobs"]
    assert sum(logprobs) / len(logprobs) == pytest.approx(row["mean_logprob"], abs=1e-3)
    assert all(1 <= len(top) <= 3 for top in drawn["tokens"]["top"])


def test_rounds_of_rewriting_come_in_their_order_with_where_they_were_scored(snapshot):
    (row, *_) = snapshot.result.frames["probdiff"].to_dicts()
    trace = snapshot.trace(0)
    unit = unit_of(trace, "probdiff", "weak")
    first, *_, last = asks(trace, unit, "generate")
    assert (first["text"], last["text"]) == (row["answer"], row["rewriting"])
    scored = [trace["asks"][at] for at in last["scored"]]
    (under,) = [one for one in scored if one["messages"] == first["messages"]]
    logprobs = under["tokens"]["logprobs"]
    assert sum(logprobs) / len(logprobs) == pytest.approx(row["ell_last"], abs=1e-3)


def test_a_run_whose_recipe_is_not_understood_says_why(path, tmp_path):
    copy = tmp_path / "copy"
    (copy / "results").mkdir(parents=True)
    for name in ("run.json", "store.sqlite", "results/items.parquet"):
        (copy / name).write_bytes((path / name).read_bytes())
    revision = yaml.safe_load((path / "revisions" / "1.yaml").read_text(encoding="utf-8"))
    revision["recipe"]["methods"][0]["kind"] = "of_another_version"
    (copy / "revisions").mkdir()
    (copy / "revisions" / "1.yaml").write_text(yaml.safe_dump(revision), encoding="utf-8")
    trace = Snapshot("1", api.read(copy, apart=tmp_path / "apart"), tmp_path).trace(0)
    assert trace["asks"] == []
    assert "of_another_version" in trace["why"]


def test_items_read_back_are_the_items_of_the_run(snapshot):
    items = StoredItems(snapshot.result.frames)
    assert len(items) == N_ITEMS
    assert [items.item(k).key for k in range(N_ITEMS)] == snapshot.items.keys.to_list()
