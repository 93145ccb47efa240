"""Frames for pandas, Arrow and Hugging Face."""

import importlib.util
import json
import subprocess
import sys

import pytest
import yaml

import orchestrator
from tests.cli.conftest import command, here, recipe  # noqa: F401 (fixtures)


@pytest.fixture
def result(command, recipe):  # noqa: F811 (fixtures)
    """A complete run."""
    path = recipe(methods=[{"kind": "answers", "answer": {"max_tokens": 4}}])
    assert command("run", path, "--display", "none")[0] == 0
    return orchestrator.load("runs/made")


def need(module):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is absent")


def test_frames_are_those_of_pandas_and_arrow_by_polars(result):
    need("pyarrow")
    need("pandas")
    frame = result.frames["answers"]
    found = frame.to_pandas(use_pyarrow_extension_array=True)
    whole = next(name for name, kind in frame.schema.items() if kind.is_integer())
    assert str(found[whole].dtype) == "int64[pyarrow]"
    # A cause is missing where nothing failed: not NaN, not a text.
    assert found["cause"].isna().sum() == frame["cause"].null_count() > 0
    assert frame.to_arrow().column_names == frame.columns


def test_a_dataset_folder_has_the_documented_layout(result, command, here):  # noqa: F811
    assert command("export", "made", "--format", "hf", "--to", "set")[0] == 0
    text = (here / "set" / "README.md").read_text(encoding="utf-8")
    _, head, rest = text.split("---\n", 2)
    card = yaml.safe_load(head)
    assert [one["config_name"] for one in card["configs"]] == ["answers", "items"]
    assert [one.get("default", False) for one in card["configs"]] == [True, False]
    for one in card["configs"]:
        (files,) = one["data_files"]
        assert (here / "set" / files["path"]).is_file()
    assert "@misc{selfeval-orchestrator" in rest


@pytest.mark.slow
def test_the_library_of_hugging_face_loads_the_folder(result, command, here):  # noqa: F811
    need("datasets")
    assert command("export", "made", "--format", "hf", "--to", "set")[0] == 0
    code = (
        "import datasets, json; found = {n: datasets.load_dataset('set', n)['train'].num_rows "
        "for n in datasets.get_dataset_config_names('set')}; "
        "found['default'] = datasets.load_dataset('set')['train'].num_rows; "
        "print(json.dumps(found))"
    )
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    n_answers = result.frames["answers"].height
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "answers": n_answers, "items": result.frames["items"].height, "default": n_answers,
    }  # fmt: skip
