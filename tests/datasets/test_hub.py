"""Any dataset of the hub: a split as Parquet, or named files of a revision."""

import json

import polars as pl
import pytest

from orchestrator import plugins
from orchestrator.errors import DatasetError
from orchestrator.plugins import DATASETS
from tests.datasets.benchmarks import items, lines, opened, parquet

REPOSITORY = "someone/some-set"
API = f"/api/datasets/{REPOSITORY}/parquet"


def test_a_split_of_the_hub_is_fetched_file_by_file(web):
    web.files[API] = json.dumps({"default": {"test": ["a", "b"]}}).encode()
    for number in range(2):
        frame = pl.DataFrame({"question": [f"q{number}"], "answer": [f"a{number}"]})
        web.files[f"{API}/default/test/{number}.parquet"] = parquet(frame)
    found = items(opened("huggingface", repository=REPOSITORY))
    assert [(item.prompt, item.reference) for item in found] == [("q0", "a0"), ("q1", "a1")]


def test_a_split_that_is_not_there_is_an_error_that_lists_those_that_are(web):
    web.files[API] = json.dumps({"default": {"train": ["a"], "dev": ["b"]}}).encode()
    with pytest.raises(DatasetError, match="no split 'test'; available: train, dev"):
        opened("huggingface", repository=REPOSITORY)


def test_of_several_configs_one_must_be_named(web):
    web.files[API] = json.dumps({"a": {"test": ["x"]}, "b": {"test": ["x"]}}).encode()
    with pytest.raises(DatasetError, match=r"set dataset: {config: a}; available: a, b"):
        opened("huggingface", repository=REPOSITORY)


@pytest.mark.parametrize("name", ["../../../elsewhere", "a/b", ".hidden", ""])
def test_a_config_whose_name_would_leave_the_folder_is_refused(web, tmp_path, name):
    web.files[API] = json.dumps({name: {"test": ["x"]}}).encode()
    with pytest.raises(DatasetError, match="the hub lists a config with the name"):
        opened("huggingface", repository=REPOSITORY)


def test_a_revision_never_leaves_the_folder_of_its_repository():
    with pytest.raises(DatasetError, match="not a file name below its folder"):
        opened("huggingface", repository=REPOSITORY, revision="..", files=("a.jsonl",))


def test_files_of_a_revision_are_fetched_by_their_paths(web):
    for name, prompt in (("a.jsonl", "x"), ("b.jsonl", "y")):
        place = f"/datasets/{REPOSITORY}/resolve/abc/data/{name}"
        web.files[place] = lines({"prompt": prompt}).encode()
    dataset = opened(
        "huggingface",
        repository=REPOSITORY,
        revision="abc",
        files=("data/a.jsonl", "data/b.jsonl"),
    )
    assert [item.prompt for item in items(dataset)] == ["x", "y"]


def test_a_split_may_lie_in_the_users_folder(data):
    data("huggingface/someone--some-set/default/test/0000.parquet", pl.DataFrame({"prompt": ["x"]}))
    assert items(opened("huggingface", repository=REPOSITORY))[0].prompt == "x"


def test_offline_the_place_of_a_split_is_said():
    with pytest.raises(DatasetError, match=r"someone--some-set/default/test/0000.parquet"):
        opened("huggingface", repository=REPOSITORY)


@pytest.mark.parametrize(
    "settings",
    [
        {"repository": "../x"},
        {"repository": "a/b", "files": ("../x.jsonl",)},
        {"repository": "a/b", "files": ("/x.jsonl",)},
        {"repository": "a/b", "split": "../x"},
        {"repository": "a/b", "revision": "abc"},
    ],
)
def test_paths_that_lead_elsewhere_are_refused(settings):
    with pytest.raises(ValueError, match=r"repository|files|split|revision"):
        plugins.load(DATASETS, "huggingface").Config(**settings)
