"""Advice that names a setting: written into the recipe as it stands, it is taken and helps."""

import json
import re

import polars as pl
import pytest
import yaml

from orchestrator.errors import DatasetError
from orchestrator.recipe.load import load
from orchestrator.records import Failure, Item, Message
from orchestrator.runner.models.answers import AnswerFile
from orchestrator.runner.models.identity import open_given
from orchestrator.runner.planning.prepare import open_dataset
from tests.datasets.test_answers import ask

SETTING = re.compile(r"(dataset|models): (?=\{)")
"""How each advice begins; what follows is a mapping of YAML."""


def fragments(message):
    """Yield every setting that a message advises, as a recipe would hold it."""
    for found in SETTING.finditer(message):
        depth, end = 0, found.end()
        while not (depth == 0 and end > found.end()):
            depth += {"{": 1, "}": -1}.get(message[end], 0)
            end += 1
        yield yaml.safe_load(message[found.start() : end])


def merged(recipe, fragment):
    if not (isinstance(recipe, dict) and isinstance(fragment, dict)):
        return fragment
    both = {name: merged(recipe[name], fragment[name]) for name in recipe.keys() & fragment.keys()}
    return recipe | fragment | both


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Opens the dataset and the answers of a recipe; returns the message of what is refused."""
    monkeypatch.chdir(tmp_path)

    def run(recipe):
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
        read = load(tmp_path / "recipe.yaml")
        try:
            open_dataset(read.dataset, tmp_path)
            open_given(read.models)
        except DatasetError as error:
            return str(error)
        return ""

    return run


def write(path, content):
    path.parent.mkdir(exist_ok=True, parents=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in content), encoding="utf-8")
    elif path.suffix == ".parquet":
        pl.DataFrame(content).write_parquet(path)
    else:
        path.write_text(json.dumps(content), encoding="utf-8")


SERVER = {"server": "fake", "weights": "any"}


def recipe(dataset, answers="a.jsonl"):
    return {
        "dataset": dataset,
        "models": {"given": {"answers": answers}, "b": SERVER, "j": SERVER},
        "methods": [{"kind": "pairwise_ranking", "judges": ["j"], "labels": "two"}],
    }


ANSWERS = [{"id": 1, "text": "x"}]
ITEMS = [{"id": 1, "prompt": "Why?"}]
DATASETS = {
    "no prompt": [{"Question": "a", "ID": 1}],
    "blanks": [{" prompt": "a", "it's: {1}": 2}],
    "two prompts": [{"prompt": "a", "input": "b"}],
    "two keys": [{"prompt": "a", "key": "b", "id": "c"}],
    "prompt and turns": [{"prompt": "a", "turns": ["b"]}],
    "key given twice": [{"prompt": "a", "id": 1}, {"prompt": "b", "id": 1}],
    "key missing": [{"prompt": "a", "id": 1}, {"prompt": "b"}],
    "several references": [{"prompt": "a", "answer": ["b", "c"]}],
    "one text for turns": [{"turns": "a"}],
    "a mapping for a prompt": [{"prompt": {"text": "a"}}],
    "a mapping for a category": [{"prompt": "a", "category": {"text": "x"}}],
}


@pytest.mark.parametrize("name", DATASETS)
def test_each_setting_that_a_refused_dataset_is_advised_opens_it(opened, tmp_path, name):
    write(tmp_path / "q.jsonl", DATASETS[name])
    write(tmp_path / "a.jsonl", ANSWERS)
    before = recipe({"path": "q.jsonl"})
    message = opened(before)
    assert message, "the dataset is refused"
    advice = list(fragments(message))
    assert advice, message
    for fragment in advice:
        assert opened(merged(before, fragment)) == "", (message, fragment)


def test_a_named_column_of_turns_is_replaced_by_what_is_advised(opened, tmp_path):
    write(tmp_path / "q.jsonl", [{"q": "a"}])
    write(tmp_path / "a.jsonl", ANSWERS)
    before = recipe({"path": "q.jsonl", "fields": {"turns": "q"}})
    (fragment,) = fragments(opened(before))
    assert opened(merged(before, fragment)) == ""


def test_a_column_that_is_shown_to_no_model_is_shown_as_is_announced(opened, tmp_path):
    write(tmp_path / "q.jsonl", [{"prompt": "a", "context": "b"}])
    write(tmp_path / "a.jsonl", ANSWERS)
    before = recipe({"path": "q.jsonl"})
    assert opened(before) == ""
    dataset = open_dataset(load(tmp_path / "recipe.yaml").dataset, tmp_path)
    (fragment,) = fragments(dataset.read_as)
    assert opened(merged(before, fragment)) == ""
    dataset = open_dataset(load(tmp_path / "recipe.yaml").dataset, tmp_path)
    assert dataset.item(0).prompt == "b\n\na"


def test_lists_in_a_json_file_are_named_where_the_file_is(opened, tmp_path):
    two = {"one": {"x": [{"id": 1, "prompt": "a", "text": "t"}]}, "other": [{"y": 1}]}
    write(tmp_path / "two.json", two)
    write(tmp_path / "q.jsonl", ITEMS)
    for before in (
        recipe({"path": "two.json"}, "two.json"),
        recipe({"path": "q.jsonl"}, "two.json"),
    ):
        while message := opened(before):
            (fragment,) = fragments(message)
            assert merged(before, fragment) != before
            before = merged(before, fragment)


@pytest.mark.parametrize("setting", ["split", "config"])
def test_splits_and_configs_are_named_in_the_dataset(opened, tmp_path, setting):
    write(tmp_path / "a.jsonl", ANSWERS)
    for name in ("train", "validation"):
        write(tmp_path / "data" / f"{name}.jsonl", ITEMS)
    if setting == "config":
        files = [
            {"config_name": name, "data_files": f"{name}.jsonl"} for name in ("train", "validation")
        ]
        card = yaml.safe_dump({"configs": files})
        (tmp_path / "data" / "README.md").write_text(f"---\n{card}---\n", encoding="utf-8")
    before = recipe({"kind": "folder", "path": "data"})
    (fragment,) = fragments(opened(before))
    assert setting in fragment["dataset"]
    assert opened(merged(before, fragment)) == ""


GIVEN = {
    "two texts": [{"id": 1, "answer": "gold", "response": "x"}],
    "no text": [{"id": 1, "Said": {"Output": "x"}}],
    "no text at all": [{"id": 1, "x": "x"}],
    "text missing": [{"id": 1, "text": "x"}, {"id": 2, "Output": "y"}],
    "no key": [{"ID": 1, "Prompt": "Why?", "text": "x"}],
    "two generators": [
        {"id": 1, "text": "x", "model": "m: 1"},
        {"id": 1, "text": "y", "model": "n"},
    ],
}


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("given", ["sub folder/a.jsonl", {"path": "sub folder/a.jsonl"}])
def test_each_setting_that_refused_answers_are_advised_is_taken_at_its_model(
    opened, tmp_path, name, given
):
    write(tmp_path / "q.jsonl", ITEMS)
    write(tmp_path / "sub folder" / "a.jsonl", GIVEN[name])
    before = recipe({"path": "q.jsonl"}, given)
    message = opened(before)
    advice = list(fragments(message))
    assert advice, message
    assert all(list(one["models"]) == ["given"] for one in advice)
    if "COLUMN" in message or name == "text missing":
        after = [opened(merged(before, one)) for one in advice]
        assert "unknown setting" not in str(after)
    else:
        assert [opened(merged(before, one)) for one in advice] == [""] * len(advice)


def test_what_the_recipe_says_of_a_file_of_answers_stays_in_the_advice(opened, tmp_path):
    write(tmp_path / "q.jsonl", ITEMS)
    rows = [{"id": 1, "answer": "gold", "output": "x", "model": name} for name in "mn"]
    write(tmp_path / "a.json", {"rows": rows, "other": [{"x": 1}]})
    before = recipe({"path": "q.jsonl"}, {"path": "a.json", "rows": "rows", "generator": "n"})
    (fragment,) = fragments(opened(before))
    kept = {"path": "a.json", "rows": "rows", "generator": "n", "text": "output"}
    assert fragment["models"]["given"]["answers"] == kept
    assert opened(merged(before, fragment)) == ""


def test_a_key_that_belongs_to_another_prompt_is_believed_once_it_is_named(opened, tmp_path):
    write(tmp_path / "q.jsonl", ITEMS)
    write(tmp_path / "a.jsonl", [{"id": 1, "prompt": "Who?", "text": "x"}])
    before = recipe({"path": "q.jsonl"})
    item = Item(key="1", messages=(Message("user", "Why?"),))

    def answer(recipe):
        assert opened(recipe) == ""
        given = load(tmp_path / "recipe.yaml").models["given"].answers
        assert given is not None
        return AnswerFile(given, "given").find(item, ask(item))

    refused = answer(before)
    assert isinstance(refused, Failure)
    (fragment,) = fragments(refused.message)
    assert answer(merged(before, fragment)).text == "x"
