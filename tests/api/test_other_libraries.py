"""Frames for pandas, Arrow and Hugging Face."""

import importlib.util
import json
import subprocess
import sys

import polars as pl
import pytest
import yaml

import orchestrator
from orchestrator.errors import UsageError
from orchestrator.report.export.inspect_log import logs
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


def test_pandas_keeps_whole_numbers_and_what_is_missing(result):
    need("pyarrow")
    frame = result.frames["answers"]
    found = result.to_pandas("answers")
    assert list(found.columns) == frame.columns
    whole = next(name for name, kind in frame.schema.items() if kind.is_integer())
    assert str(found[whole].dtype) == "int64[pyarrow]"
    # A cause is missing where nothing failed: not NaN, not a text.
    assert found["cause"].isna().sum() == frame["cause"].null_count() > 0
    assert found[whole].to_list() == frame[whole].to_list()


def test_arrow_has_the_types_of_the_frame(result):
    need("pyarrow")
    table = result.to_arrow("answers")
    assert table.num_rows == result.frames["answers"].height
    assert table.column_names == result.frames["answers"].columns


@pytest.mark.parametrize(("call", "extra"), [("to_pandas", "pandas"), ("to_arrow", "arrow")])
def test_a_missing_extra_is_named(result, monkeypatch, call, extra):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "pyarrow" else real(name, *a)
    )
    with pytest.raises(UsageError, match=rf"{call} needs pyarrow: .*\[{extra}\]"):
        getattr(result, call)("answers")


def test_an_unknown_frame_names_the_nearest(result):
    need("pyarrow")
    with pytest.raises(UsageError, match=r"no frame 'answer'.*did you mean 'answers'"):
        result.to_arrow("answer")


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


def test_logs_of_inspect_have_every_answer_and_its_scores(result, command, here):  # noqa: F811
    assert command("export", "made", "--format", "inspect", "--to", "logs")[0] == 0
    answers = result.frames["answers"]
    found = {}
    for path in sorted((here / "logs").iterdir()):
        log = json.loads(path.read_text(encoding="utf-8"))
        assert (log["version"], log["status"]) == (2, "success")
        found[log["eval"]["model"].rpartition("/")[2]] = log
    assert set(found) == set(answers["model"])
    for model, log in found.items():
        rows = {row["item"]: row for row in answers.to_dicts() if row["model"] == model}
        assert {sample["id"] for sample in log["samples"]} == set(rows)
        for sample in log["samples"]:
            row = rows[sample["id"]]
            assert sample["output"]["choices"][0]["message"]["content"] == row["text"]
            assert sample["scores"]["exact_match"]["value"] == ("C" if row["exact_match"] else "I")
            assert sample["scores"]["mean_logprob"]["value"] == row["mean_logprob"]
        (exact,) = [one for one in log["results"]["scores"] if one["name"] == "exact_match"]
        share = sum(row["exact_match"] for row in rows.values()) / len(rows)
        assert exact["metrics"]["accuracy"]["value"] == pytest.approx(share)


def test_a_failed_answer_is_an_error_and_not_a_score():
    rows = pl.DataFrame({
        "method": ["answers"], "item": ["a"], "model": ["m"], "turn": [1], "prompt": ["p"],
        "text": [None], "exact_match": [None], "status": ["failed"], "cause": ["refused"],
        "message": ["no"],
    })  # fmt: skip
    about = {"recipe": "r", "version": "1", "created": "", "dataset": "d", "complete": True}
    ((_, log),) = logs(rows, about)
    (sample,) = log["samples"]
    assert sample["error"]["message"] == "refused: no"
    assert "scores" not in sample
    assert log["results"] == {"total_samples": 1, "completed_samples": 0, "scores": []}


@pytest.mark.slow
def test_inspect_reads_its_logs(result, command, here):  # noqa: F811
    need("inspect_ai")
    assert command("export", "made", "--format", "inspect", "--to", "logs")[0] == 0
    code = (
        "from inspect_ai.log import list_eval_logs, read_eval_log; "
        "print(*(len(read_eval_log(one).samples) for one in list_eval_logs('logs')))"
    )
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    n_models = result.frames["answers"]["model"].n_unique()
    assert done.stdout.split() == [str(result.frames["items"].height)] * n_models
