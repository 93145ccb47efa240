"""Models whose answers exist already, from recipe to frames: judged like any, asked nothing."""

import json

import pytest

import orchestrator
from orchestrator.errors import DatasetError, UsageError
from orchestrator.recipe.load import load
from orchestrator.recipe.settings import GivenAnswers
from orchestrator.runner.models.identity import open_given
from orchestrator.runner.planning.prepare import prepare

QUESTIONS = [
    {"id": "a", "prompt": "Reverse: a b c", "reference": "c b a", "x": "c b a", "y": "a b c"},
    {"id": "b", "prompt": "Reverse: d e f", "reference": "f e d", "x": "f e d", "y": "d e f"},
    {"id": "c", "prompt": "Reverse: d e f", "reference": "f e d", "x": "d e f", "y": "f e d"},
]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def recipe(tmp_path):
    """Writes a recipe beside a dataset and a file of answers."""
    (tmp_path / "questions.jsonl").write_text(lines(QUESTIONS), encoding="utf-8")
    answers = [{"key": row["id"], "text": row["x"], "model": "gpt"} for row in QUESTIONS]
    (tmp_path / "answers.jsonl").write_text(lines(answers), encoding="utf-8")

    def write(**changes):
        data = {
            "name": "made",
            "models": {
                "old": {"answers": "answers.jsonl"},
                "new": {"server": "scripted", "weights": "n:0.2"},
                "judge": {"server": "scripted", "weights": "j:1.0"},
            },
            "dataset": {"path": "questions.jsonl"},
            "methods": [
                {
                    "kind": "pairwise_ranking",
                    "judges": ["judge"],
                    "prompt": "compact",
                    "answer": {"max_tokens": 8},
                }
            ],
            "statistics": {"n_resamples": 50},
            **changes,
        }
        path = tmp_path / "made.yaml"
        path.write_text(json.dumps(data), encoding="utf-8")
        return path

    return write


def pair(**entry):
    return {
        "first": {"answers": {"field": "x"}},
        "second": {"answers": {"field": "y"}},
        "judge": {"server": "scripted", "weights": "j:1.0"},
        **entry,
    }


def prepared(path):
    return prepare(load(path))


def test_given_answers_are_judged_beside_those_of_a_served_model(recipe, tmp_path):
    result = orchestrator.run(recipe(), run_dir=tmp_path / "run")
    answers = result.frames["answers"]
    given = answers.filter(answers["model"] == "old")
    assert given["text"].to_list() == [row["x"] for row in QUESTIONS]
    assert given["finish_reason"].unique().to_list() == ["given"]
    assert given["n_tokens"].null_count() == 3
    assert result.frames["judgments"]["status"].to_list() == ["ok"] * 3


def test_items_with_the_same_words_keep_their_own_given_answers(recipe, tmp_path):
    result = orchestrator.run(recipe(models=pair()), run_dir=tmp_path / "run")
    answers = result.frames["answers"]
    rows = answers.filter(answers["model"] == "second").sort("item")
    assert rows["text"].to_list() == [row["y"] for row in QUESTIONS]


def test_nothing_is_sent_to_a_model_whose_answers_are_given(recipe, tmp_path):
    result = orchestrator.run(recipe(models=pair()), run_dir=tmp_path / "run")
    assert result.ended is not None
    assert result.ended.progress is not None
    sent = {model.name: model.done for model in result.ended.progress.models}
    assert (sent["first"], sent["second"]) == (0, 0)
    assert result.ended.progress.requests_sent == sent["judge"] > 0


def test_the_plan_counts_nothing_to_send_for_them(recipe, tmp_path):
    from orchestrator.interface.api import plan  # noqa: PLC0415

    counted = plan(recipe(), run_dir=tmp_path / "run")
    asked = {stage.model: stage.left for stage in counted.stages if stage.name == "answers"}
    assert "old" not in asked
    assert asked["new"] > 0


def test_a_run_on_changed_answers_shows_the_new_ones(recipe, tmp_path):
    path = recipe()
    orchestrator.run(path, run_dir=tmp_path / "run")
    changed = [{"key": row["id"], "text": "?", "model": "gpt"} for row in QUESTIONS]
    (tmp_path / "answers.jsonl").write_text(lines(changed), encoding="utf-8")
    result = orchestrator.run(path, run_dir=tmp_path / "run")
    answers = result.frames["answers"]
    assert answers.filter(answers["model"] == "old")["text"].to_list() == ["?"] * 3


def test_an_item_without_answer_is_a_failed_row_with_its_cause(recipe, tmp_path):
    path = recipe()
    (tmp_path / "answers.jsonl").write_text(lines([{"key": "a", "text": "c b a"}]), "utf-8")
    result = orchestrator.run(path, run_dir=tmp_path / "run")
    judged = result.frames["judgments"].sort("item")
    assert judged["status"].to_list() == ["ok", "failed", "failed"]
    assert judged["cause"].to_list() == [None, "no_answer", "no_answer"]


def test_answers_that_fit_no_item_are_refused_before_anything_is_sent(recipe, tmp_path):
    path = recipe()
    (tmp_path / "answers.jsonl").write_text(lines([{"key": "z", "text": "x"}]), encoding="utf-8")
    with pytest.raises(DatasetError, match="model 'old': no answer fits an item of"):
        prepared(path)


def test_how_many_items_have_no_answer_is_said_before_anything_is_sent(recipe, tmp_path):
    path = recipe()
    rows = [{"key": "A", "text": "x"}, {"key": "b", "text": "y"}]
    (tmp_path / "answers.jsonl").write_text(lines(rows), encoding="utf-8")
    (said,) = prepared(path).read_as
    assert "2 of 3 items have no answer, such as: " in said
    assert "it has one to 'A', not to 'a'" in said


def test_a_column_that_is_not_there_is_refused_before_anything_is_sent(recipe):
    with pytest.raises(DatasetError, match="has no 'z' for turn 1"):
        prepared(recipe(models=pair(second={"answers": {"field": "z"}})))


@pytest.mark.parametrize("kind", ["probdiff"])
def test_a_method_that_needs_the_model_itself_names_both(recipe, kind):
    methods = [{"kind": kind, "candidates": ["old"]}]
    with pytest.raises(UsageError, match=rf"{kind}: .* by 'old': only its answers are given"):
        prepared(recipe(methods=methods))


def test_a_judge_whose_answers_are_given_is_refused(recipe):
    methods = [{"kind": "pairwise_ranking", "candidates": ["new", "judge"], "judges": ["old"]}]
    with pytest.raises(UsageError, match="judgments by 'old': only its answers are given"):
        prepared(recipe(methods=methods))


def test_a_recipe_with_answers_resolves_to_itself(recipe):
    loaded = load(recipe())
    assert loaded.models["old"].resolved() == {
        "answers": {"path": str(recipe().parent / "answers.jsonl")}
    }
    assert loaded.resolved()["models"]["old"]["answers"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"answers": "no.jsonl"}, "no such file: 'no.jsonl'"),
        ({"answers": "answers.jsonl", "base_url": "http://127.0.0.1:1"}, "give only one of"),
        (
            {"answers": "answers.jsonl", "system": "Be brief."},
            "can be used only with 'server' or 'base_url'",
        ),
        (
            {"answers": "answers.jsonl", "backend": "openai"},
            "can be used only with 'server' or 'base_url'",
        ),
        ({"answers": {"path": "answers.jsonl", "feild": "x"}}, "feild"),
        ({"answers": 7}, "answers"),
    ],
)
def test_a_wrong_entry_is_a_fault_with_its_line(recipe, entry, said):
    with pytest.raises(UsageError, match=said):
        load(recipe(models={"old": entry, "judge": {"server": "scripted", "weights": "j:1.0"}}))


def test_a_budget_of_money_does_not_want_a_price_for_given_answers(recipe):
    models = pair(judge={"server": "scripted", "weights": "j:1.0", "price": {"output": 1.0}})
    loaded = load(recipe(models=models, budget={"money": 5}))
    assert all(spec.price is not None for spec in loaded.models.values())


def test_models_that_are_served_are_not_looked_for(recipe):
    spec = load(recipe()).models["new"]
    assert open_given({"new": spec}) == {}
    assert isinstance(load(recipe()).models["old"].answers, GivenAnswers)
