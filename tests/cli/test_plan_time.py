"""The time in `orchestrator plan`, before and after a run of the same models."""

import json

import pytest


def test_without_an_earlier_run_it_is_not_known(command, recipe):
    code, out, _ = command("plan", recipe())
    assert code == 0
    assert "Time: not known yet; no earlier run here asked" in out
    assert json.loads(command("plan", recipe(), "--json")[1])["duration"]["low_s"] is None


@pytest.mark.slow
def test_an_earlier_run_of_the_same_models_tells(command, recipe, here):
    answers = {"kind": "answers", "answer": {"max_tokens": 4}}
    models = {
        "weak": {"server": "scripted", "weights": "a:0.2"},
        "strong": {"server": "scripted", "weights": "b:0.9"},
    }
    first = recipe("first", models=models, methods=[answers], dataset={"kind": "demo", "n": 40})
    assert command("run", "-q", first)[0] == 0
    # Another recipe, in which one of them has another name.
    renamed = {"poor": models["weak"], "strong": models["strong"]}
    second = recipe("second", models=renamed, methods=[answers], dataset={"kind": "demo", "n": 80})
    found = json.loads(command("plan", second, "--json")[1])["duration"]
    assert found["runs"] == ["first"]
    assert 0 < found["low_s"] < found["high_s"]
    assert "by the pace of the same models in first" in " ".join(command("plan", second)[1].split())
    # Another model is another pace.
    other = {**models, "strong": {"server": "scripted", "weights": "c:0.9"}}
    third = recipe("third", models=other, methods=[answers])
    assert json.loads(command("plan", third, "--json")[1])["duration"]["missing"] == ["strong"]
    # A call that sent nothing tells no pace, and a damaged run is passed over.
    assert command("run", "-q", first)[0] == 0
    (here / "runs" / "first" / "status.json").write_text("{")
    assert json.loads(command("plan", second, "--json")[1])["duration"]["low_s"] is None
