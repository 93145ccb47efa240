import json
import re
from pathlib import Path

import jsonschema
import pytest
from pydantic import ValidationError

from orchestrator import plugins
from orchestrator.plugins.base import Settings
from orchestrator.recipe.load import available, load
from orchestrator.recipe.source import parse
from tools.recipe_reference import replaced
from tools.recipe_schema import json_schema

SCHEMA_FILE = Path(__file__).parents[2] / "recipes" / "schema.json"
RECIPE = {
    "name": "x",
    "models": {
        "a": {"server": "fake", "weights": "x"},
        "b": {"server": {"kind": "fake", "start_timeout_s": 3}, "weights": "x"},
        "c": {"base_url": "http://127.0.0.1:8000", "backend": {"kind": "my.backend", "x": 1}},
    },
    "dataset": {"path": "x.JsonL", "fields": {"prompt": "q", "key": None}},
    "methods": [{"kind": "answers"}, {"kind": "my.method", "anything": 1}],
}


@pytest.fixture(scope="module")
def schema():
    return json_schema()


@pytest.fixture(scope="module")
def validator(schema):
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def changed(**changes):
    return {**RECIPE, **changes}


def test_the_file_for_editors_is_up_to_date(schema):
    written = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    assert written == schema, "run: make schema"


def test_a_good_recipe_is_good(validator):
    validator.validate(RECIPE)


@pytest.mark.usefixtures("schema")
def test_true_is_no_number_in_any_settings():
    kinds = [Settings]
    for kind in kinds:  # grows
        kinds += kind.__subclasses__()
    numbers = [
        (kind, name, given)
        for kind in kinds
        for name, field in kind.model_fields.items()
        if re.search(r"\b(int|float)\b", str(field.annotation) + repr(field.annotation))
        for given in (True, [True], {"a": True})
    ]
    assert len(numbers) > 100
    for kind, name, given in numbers:
        key = kind.model_fields[name].alias or name
        with pytest.raises(ValidationError) as refused:
            kind.model_validate({key: given})
        assert key in [error["loc"][0] for error in refused.value.errors()], (kind, name)


@pytest.mark.parametrize(
    "wrong",
    [
        changed(nme="y"),
        changed(name="a b"),
        changed(models={"a": {}}),
        changed(models={"a": {"server": "fake"}}),
        changed(models={"a": {"server": "fak", "weights": "x"}}),
        changed(models={"a": {"server": {"kind": "fake", "no": 1}, "weights": "x"}}),
        changed(models={"a/b": {"server": "fake", "weights": "x"}}),
        changed(models={"a": {"base_url": "http://x", "limits": {"max_inflight": 1}}}),
        changed(dataset={"path": "x.txt"}),
        changed(dataset={"kind": "demo", "path": "x.jsonl"}),
        changed(dataset={"n": 3}),
        changed(methods=[]),
        changed(methods=["answers"]),
        changed(methods=[{"kind": "answer"}]),
        changed(methods=[{"kind": "answers", "answer": {"max_token": 3}}]),
    ],
)
def test_a_wrong_recipe_is_wrong(validator, wrong):
    assert not validator.is_valid(wrong)


def test_every_plug_in_is_in_the_schema(schema):
    names = schema["$defs"].keys()
    kinds = [f"method.{kind}" for kind in plugins.kinds(plugins.METHODS)]
    kinds += [f"server.{kind}" for kind in plugins.kinds(plugins.LAUNCH)]
    kinds += [f"backend.{kind}" for kind in plugins.kinds(plugins.BACKENDS)]
    assert set(kinds) <= set(names)


def test_every_setting_of_a_recipe_is_described(schema):
    parts = [schema, *(schema["$defs"][name] for name in ("ModelEntry", "Limits", "Budget"))]
    for part in parts:
        for name, setting in part["properties"].items():
            assert setting.get("description") or "default" in setting, name


def test_recipes_that_come_with_the_project_fit_the_schema(validator):
    for file in available():
        validator.validate(parse(file.read_bytes(), file.name).data)
        validator.validate(load(file).resolved())


def test_the_page_about_recipes_is_up_to_date():
    page = SCHEMA_FILE.parents[1].joinpath("docs", "recipes.md").read_text(encoding="utf-8")
    assert replaced(page) == page, "run: make schema"


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="no marks"):
        replaced("# Recipes")
