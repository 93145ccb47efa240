"""Paths with the signs of patterns, markup, URLs and templates name what they say."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from orchestrator.contracts.method import schema_of
from orchestrator.frames import columns_of, polars_schema
from orchestrator.methods import answers
from tests.view.runs import SETTINGS, answers_frame, items_frame, make_run

ODD = "a[1]*? {x} é %41#~&'\"<b>$HOME`"
DECOYS = ("a1", "a1-- {x} é", "aA")
KINDS: dict[str, Callable[[pl.DataFrame, Path], object]] = {
    "parquet": pl.DataFrame.write_parquet,
    "csv": pl.DataFrame.write_csv,
    "jsonl": pl.DataFrame.write_ndjson,
    "json": pl.DataFrame.write_json,
}


def run_of(path, n):
    frames = {"items": items_frame(n), "answers": answers_frame(n)}
    return make_run(path, frames, SETTINGS | {"description": ""})


@pytest.fixture
def runs(here):
    """A run in an oddly named folder, and others that its name would match as a pattern."""
    for name in DECOYS:
        run_of(here / name / "runs" / "v2", 5)
    return run_of(here / ODD / "runs" / "v[2]", 60).relative_to(here)


def test_a_report_is_of_the_run_that_was_named(command, runs):
    code, out, err = command("report", str(runs), "--format", "json")
    assert code == 0, err
    expected = command("report", str(runs.parents[2] / "a1/runs/v2"), "--format", "json")[1]
    assert out != expected
    assert '"n": 60' in out or "60" in out


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_an_export_goes_where_it_is_said(command, runs, here, form):
    to = f"out[1]/{ODD[:12]}"
    code, out, err = command("export", str(runs), "--to", to, "--format", form)
    assert code == 0, err
    assert "120 rows" in out
    assert sorted(path.name for path in (here / to).iterdir()) == [
        f"answers.{form}",
        "export.json",
        f"items.{form}",
    ]


def test_a_report_as_html_goes_where_it_is_said(command, runs, here):
    code, _, err = command("report", str(runs), "--html", "r[1]*.html")
    assert code == 0, err
    assert f"{here / 'r[1]*.html'}".endswith(err.strip().splitlines()[-1])
    page = (here / "r[1]*.html").read_text(encoding="utf-8")
    assert "<b>$HOME" not in page
    # The page names the folder of the run alone: a reader elsewhere has no such path.
    assert str(here) not in page


def test_runs_are_listed_with_their_names(command, runs, here):
    code, out, _ = command("runs", "list", str(runs.parent))
    assert code == 0
    assert "v[2]" in out
    assert "v2" not in out.replace("v[2]", "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_is_the_file_that_was_named(command, recipe, here, kind):
    for name, n in (("a1", 3), ("a[1]", 7)):
        (here / name).mkdir()
        for file in ("d1", "d[1]"):
            rows = n if file == "d[1]" else 2
            frame = pl.DataFrame({"key": [str(k) for k in range(rows)], "prompt": ["?"] * rows})
            KINDS[kind](frame, here / name / f"{file}.{kind}")
    made = recipe(dataset={"path": f"a[1]/d[1].{kind}"})
    code, out, err = command("plan", made, "--json")
    assert code == 0, err
    assert '"n_items":7' in out


def test_a_path_that_is_no_text_is_refused_before_anything_is_sent(command, recipe):
    code, _, err = command("run", recipe(), "--run-dir", "r\udcff", "--display", "none")
    assert code == 2
    assert "is not UTF-8" in err


def test_a_run_of_two_frames_is_read_by_its_own_columns(runs):
    # The schema of a frame was read by a path that was taken for a pattern.
    from orchestrator.frames import FrameFiles  # noqa: PLC0415

    frames = FrameFiles(runs / "results")
    found = columns_of(frames, "answers", ("model", "status"))
    assert found.columns == ["model", "status"]
    assert set(polars_schema(schema_of(answers.Kind))) > {"model", "status"}


@pytest.mark.parametrize("words", ["run", "check", "plan", "report", "status", "runs list", "gate",
                                   "view", "pause", "cite", "export --to x"])  # fmt: skip
def test_a_path_that_no_file_system_takes_is_a_slip_in_the_command(command, words):
    code, _, err = command(*words.split(), "x" * 5000)
    assert code == 2
    assert err.endswith("File name too long\n")
    assert len(err) < 300
