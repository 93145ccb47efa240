"""Recipes built in Python: the checks and messages of YAML, and datasets that are in memory."""

import importlib
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import orchestrator
from orchestrator import DatasetError, Recipe, RecipeError, UsageError
from orchestrator.plugins.base import Plugin
from tests.api.made import METHODS, MODELS, ROWS, recipe

# It ships no types.
pd: Any = importlib.import_module("pandas")


def items(result):
    return result.frames["items"].drop("place")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("settings", "place", "message"),
    [
        (
            {"budget": {"tokes": 3}},
            "budget.tokes",
            "unknown setting 'tokes'; did you mean 'tokens'?",
        ),
        ({"methods": ["probdif"]}, "methods[0].kind", "did you mean 'probdiff'?"),
        (
            {"methods": [{**METHODS[0], "judges": ["jugde"]}]},
            "methods[0].judges[0]",
            "unknown model 'jugde'; did you mean 'judge'?",
        ),
        ({"models": {"a": {"server": "fake"}}}, "models.a", "'weights' is missing"),
        ({"name": "a b"}, "name", "must consist of letters, digits"),
        ({"statistics": {"confidence_level": 2}}, "statistics.confidence_level", "less than 1"),
        ({"seed": object()}, "seed", "must be plain data"),
        ({"models": [{"server": "fake", "weights": "a:1"}]}, "models[0]", "'name' is missing"),
    ],
)
def test_a_fault_names_the_argument(settings, place, message):
    with pytest.raises(RecipeError) as caught:
        recipe(**settings)
    assert any(
        str(fault).startswith(f"Recipe({place}): ") and message in str(fault)
        for fault in caught.value.faults
    ), str(caught.value)


def test_the_messages_are_those_of_yaml(tmp_path):
    wrong: dict[str, Any] = {
        "models": MODELS,
        "dataset": {"kind": "demo", "m": 3},
        "methods": METHODS,
    }
    wrong |= {"budget": {"tokes": 3}, "probe": "perhaps"}
    (tmp_path / "untitled.yaml").write_text(json.dumps(wrong))
    with pytest.raises(RecipeError) as of_yaml:
        Recipe.from_yaml(tmp_path / "untitled.yaml")
    with pytest.raises(RecipeError) as of_python:
        Recipe(**wrong)
    assert {fault.message for fault in of_python.value.faults} == {
        fault.message for fault in of_yaml.value.faults
    }
    assert all(fault.line == 1 for fault in of_yaml.value.faults)


def test_an_unknown_argument_is_pythons_own_error():
    with pytest.raises(TypeError, match="budgets"):
        recipe(budgets={})


def test_models_may_be_a_list():
    listed = [{"name": name, **entry} for name, entry in MODELS.items()]
    assert recipe(models=listed).settings["models"] == MODELS


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        pl.DataFrame(ROWS),
        pd.DataFrame(ROWS),
        {"rows": pl.DataFrame(ROWS), "fields": {"prompt": "question", "reference": "answer"}},
    ],
    ids=["list", "polars", "pandas", "mapping"],
)
def test_every_form_of_a_dataset_gives_the_same_items(given, tmp_path):
    expected = tmp_path / "rows.jsonl"
    expected.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    loaded = orchestrator.run(recipe(expected), run_dir=tmp_path / "file")
    result = orchestrator.run(recipe(given), run_dir=tmp_path / "memory")
    assert items(result).equals(items(loaded))
    assert result.frames["judgments"].equals(loaded.frames["judgments"])


def test_missing_values_of_pandas_are_null(tmp_path):
    given = pd.DataFrame(
        {
            "question": ["a", "b", "c"],
            "answer": ["x", None, "z"],
            "when": pd.to_datetime(["2026-01-02", None, None]),
            "count": [1.0, float("nan"), 3.0],
        }
    )
    result = orchestrator.run(recipe(given), run_dir=tmp_path / "run")
    assert result.frames["items"]["reference"].to_list() == ["x", None, "z"]
    fields = [json.loads(text) for text in result.frames["items"]["fields"]]
    assert fields[1] == {"count": None, "when": None}
    assert fields[0] == {"count": 1.0, "when": "2026-01-02T00:00:00"}


def test_a_frame_that_exports_itself_by_arrow_is_enough(tmp_path):
    class Exported:
        def __init__(self, frame):
            self._frame = frame

        def __arrow_c_stream__(self, requested_schema=None):
            return self._frame.__arrow_c_stream__(requested_schema)

    result = orchestrator.run(recipe(Exported(pl.DataFrame(ROWS))), run_dir=tmp_path / "run")
    assert result.frames["items"]["prompt"].to_list() == [row["question"] for row in ROWS]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "has no items"),
        (pl.DataFrame(ROWS).lazy(), "collect"),
        ([1, 2], "row 0 is a int"),
        (3, "must be a frame, a list of mappings"),
    ],
)
def test_what_is_no_dataset_is_refused(given, message):
    with pytest.raises(DatasetError, match=message):
        recipe(given)


def test_a_fault_of_a_row_names_the_dataset_and_the_row():
    with pytest.raises(
        DatasetError, match=r"^Recipe\(dataset\):2: 'question', which is the prompt"
    ):
        orchestrator.check(recipe([{"question": "a"}, {"question": " "}]))


def test_the_same_rows_resume_and_changed_rows_ask_only_what_is_new(tmp_path):
    orchestrator.run(recipe(pl.DataFrame(ROWS)), run_dir=tmp_path / "run")
    again = orchestrator.run(recipe(list(ROWS)), run_dir=tmp_path / "run")
    assert again.ended is not None
    assert again.ended.progress is None
    more = orchestrator.plan(
        recipe([*ROWS, {"question": "One more?", "answer": "1", "level": 9}]),
        run_dir=tmp_path / "run",
    )
    assert more.left == 4  # two answers, and a judgment in two orders


def test_the_run_directory_keeps_the_recipe_and_its_rows(tmp_path):
    run = tmp_path / "run"
    first = orchestrator.run(recipe(pl.DataFrame(ROWS)), run_dir=run).frames["judgments"]
    moved = run.rename(tmp_path / "moved")
    assert orchestrator.check(moved / "recipe.yaml") == ()
    again = orchestrator.run(moved / "recipe.yaml", run_dir=moved)
    assert again.ended is not None
    assert again.ended.progress is None
    assert again.frames["judgments"].equals(first)


def test_yaml_round_trips(tmp_path):
    text = recipe("demo").to_yaml(tmp_path / "written.yaml")
    assert (tmp_path / "written.yaml").read_text() == text
    found = Recipe.from_yaml(tmp_path / "written.yaml")
    assert found.settings == recipe("demo").settings
    assert found.to_yaml() == text
    assert repr(found) == "<Recipe 'made': 3 models, 1 methods>"


def test_rows_are_written_beside_the_yaml(tmp_path):
    with pytest.raises(UsageError, match="give a file"):
        recipe().to_yaml()
    recipe().to_yaml(tmp_path / "there.yaml")
    found = Recipe.from_yaml("there.yaml")
    assert found.settings["dataset"] == {"kind": "jsonl", "path": "there.items.jsonl"}
    assert orchestrator.plan(found).n_items == len(ROWS)


def test_overrides_and_a_limit_apply_to_a_recipe_of_python():
    counted = orchestrator.plan(recipe(), limit=2, overrides=["methods.0.answer.max_tokens=2"])
    assert counted.n_items == 2
    with pytest.raises(RecipeError, match=r"^--set budget.tokes=3: "):
        orchestrator.plan(recipe(), overrides=["budget.tokes=3"])


def test_the_temporary_file_goes_with_the_recipe():
    made = recipe()
    path = Path(made.settings["dataset"]["path"])
    assert path.is_file()
    del made
    assert not path.parent.exists()


def test_a_key_is_refused_in_python_too():
    with pytest.raises(RecipeError, match="environment variable") as caught:
        recipe(models={"a": {"base_url": "http://127.0.0.1:1", "api_key": "sk-secret"}})
    assert "sk-secret" not in str(caught.value)


def test_a_plug_in_with_its_settings_stands_for_its_kind():
    kind = importlib.import_module("launch.fake").Launch
    server = kind(kind.Config.model_validate({"start_timeout_s": 9.0}))
    models = {name: {**entry, "server": server} for name, entry in MODELS.items()}
    given = recipe(models=models).settings["models"]["weak"]["server"]
    assert given == {"kind": "fake", "start_timeout_s": 9.0}


def test_a_plug_in_from_elsewhere_is_named_by_its_module_and_class():
    class Mine(Plugin):
        pass

    with pytest.raises(RecipeError, match=f"{__name__}:test_a_plug_in_from_elsewhere"):
        recipe(methods=[Mine(Mine.Config())])


@pytest.mark.parametrize("call", [orchestrator.run, orchestrator.plan, orchestrator.check])
@pytest.mark.parametrize("given", [{"name": "x"}, [], 3, None])
def test_what_is_no_recipe_is_refused_with_what_is_one(call, given):
    with pytest.raises(UsageError, match=r"a path, a name or an orchestrator\.Recipe"):
        call(given)
