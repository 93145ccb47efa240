"""`orchestrator export`: tables of the report and frames, to a folder or stdout."""

import csv
import importlib.util
import io
import json
import xml.etree.ElementTree as ET

import polars as pl
import pytest

import orchestrator
from orchestrator.errors import EXIT_USAGE


@pytest.fixture
def made(command, recipe):
    """A complete run with a table of answers."""
    path = recipe(methods=[{"kind": "answers", "answer": {"max_tokens": 4}}])
    assert command("run", path, "--display", "none")[0] == 0
    return "made"


def test_the_list_names_tables_and_frames(command, made):
    code, out, _ = command("export", made, "--list", "--json")
    listed = json.loads(out)
    assert code == 0
    tables = {one["name"]: one for one in listed["tables"]}
    assert tables["answers"]["title"] == "Answers"
    assert [one["name"] for one in listed["frames"]] == ["answers", "items"]
    assert "tables of the report" in command("export", made, "--list")[1]


def test_tables_of_a_ranking_are_named_by_method_and_judge(command, recipe):
    assert command("run", recipe(), "--display", "none")[0] == 0
    _, out, _ = command("export", "made", "--list", "--json")
    names = {one["name"] for one in json.loads(out)["tables"]}
    assert {"ratings-pairwise-ranking-judge", "wins-pairwise-ranking-judge"} <= names


def test_a_table_goes_to_stdout_in_each_text_format(command, made):
    out = {
        form: command("export", made, "--table", "answers", "--format", form)[1]
        for form in ("latex", "markdown", "html", "csv", "jsonl")
    }
    assert r"\toprule" in out["latex"]
    assert r"\label{tab:answers}" in out["latex"]
    assert out["markdown"].startswith("## Answers\n")
    assert out["html"].startswith("<!doctype html>")
    (first, *_) = list(csv.DictReader(io.StringIO(out["csv"])))
    (same, *_) = [json.loads(line) for line in out["jsonl"].splitlines()]
    assert first["model"] == same["model"]
    assert int(first["answers"]) == same["answers"] > 0


def test_an_unknown_table_or_frame_names_the_nearest(command, made):
    code, out, err = command("export", made, "--table", "anwsers", "--format", "latex")
    assert (code, out) == (EXIT_USAGE, "")
    assert "no table 'anwsers' in this run; did you mean 'answers'?" in err
    code, _, err = command("export", made, "--frame", "itms", "--to", "x")
    assert code == EXIT_USAGE
    assert "no frame 'itms' in this run; did you mean 'items'?" in err


def test_runs_stand_side_by_side_in_one_table(command, made, recipe):
    again = recipe("again", methods=[{"kind": "answers", "answer": {"max_tokens": 2}}])
    assert command("run", again, "--display", "none")[0] == 0
    wanted = ("--table", "answers", "--column", "model", "answers", "--across", "run", "--average")
    code, out, _ = command("export", made, "again", *wanted, "--format", "csv")
    assert code == 0
    header, *rows = csv.reader(io.StringIO(out))
    assert header == ["model", "made", "again", "Average"]
    assert rows
    for _, one, two, average in rows:
        assert float(average) == (int(one) + int(two)) / 2
    assert command("export", made, "again", *wanted, "--to", "x", "--format", "latex")[0] == 0
    code, _, err = command("export", made, "again", "--to", "x")
    assert code == EXIT_USAGE
    assert "need a --table" in err


def test_without_a_folder_the_command_says_what_to_give(command, made):
    code, _, err = command("export", made)
    assert code == EXIT_USAGE
    assert "--to DIR" in err
    assert "--table NAME" in err
    code, _, err = command("export", made, "--table", "answers")
    assert code == EXIT_USAGE
    assert "parquet does not fit on stdout" in err


def test_a_table_and_a_frame_of_one_name_are_two_files(command, made, here):
    code, out, _ = command("export", made, "--table", "answers", "--frame", "answers", "--to", "x")
    assert code == 0
    assert [line.split(":")[0] for line in out.splitlines()] == [
        "x/answers.parquet", "x/answers-2.parquet",
    ]  # fmt: skip
    assert "status" in pl.read_parquet(here / "x" / "answers.parquet").columns
    assert "exact match.low" in pl.read_parquet(here / "x" / "answers-2.parquet").columns


def test_every_table_of_the_report_is_written_as_latex(command, made, here):
    code, out, _ = command("export", made, "--format", "latex", "--to", "tex")
    assert code == 0
    written = sorted((here / "tex").iterdir())
    assert len(written) == len(out.splitlines()) >= 3
    assert all(r"\bottomrule" in path.read_text(encoding="utf-8") for path in written)


def test_figures_are_vector_and_raster_files(command, made, here):
    if importlib.util.find_spec("vl_convert") is None:
        pytest.fail("the extra [report] is part of the set-up")
    code, out, _ = command("export", made, "--figures", "drawn")
    assert code == 0
    begins = {".svg": b"<svg", ".pdf": b"%PDF-1.", ".png": b"\x89PNG\r\n"}
    paths = [here / line for line in out.splitlines()]
    assert {path.suffix for path in paths} == set(begins)
    for path in paths:
        assert path.read_bytes().startswith(begins[path.suffix])
        if path.suffix == ".svg":
            ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 (our own file)


JUDGING = {"judges": ["judge"], "answer": {"max_tokens": 4}}
JUDGED = [
    {
        "kind": "pairwise_ranking",
        **JUDGING,
        "chain_of_thought": True,
        "reasoning": {"max_tokens": 8},
    },
    {"kind": "pairwise_scoring", **JUDGING, "prompt": "compact"},
    {"kind": "pointwise", **JUDGING},
    {"kind": "mt_bench_judge", **JUDGING, "prompts": "compact"},
    {"kind": "mt_bench_judge", **JUDGING, "prompts": "compact", "mode": "pairwise"},
]


@pytest.mark.parametrize(
    "method",
    JUDGED,
    ids=lambda method: (
        method["kind"] + method.get("mode", "") + "-reasons" * ("reasoning" in method)
    ),
)
def test_people_read_what_was_judged_beside_its_texts(command, recipe, method):
    path = recipe(methods=[method])
    code, _, err = command("run", path, "--display", "none")
    assert code in (0, 3), err
    code, out, err = command("export", "made", "--frame", "side_by_side", "--format", "csv")
    assert code == 0, err
    read = list(csv.DictReader(io.StringIO(out)))
    frames = orchestrator.load("runs/made").frames
    (rows,) = [frame for name, frame in frames.items() if name not in ("answers", "items")]
    assert len(read) == len(rows) > 0
    said = {(row["item"], row["model"]): row for row in frames["answers"].to_dicts()}
    for line, row in zip(read, rows.to_dicts(), strict=True):
        assert line["prompt"] == said[row["item"], line["model_a"]]["prompt"]
        for side in "ab" if row.get("model_b") else "a":
            model = row[f"model_{side}"] if row.get("model_b") else row["model"]
            assert line[f"model_{side}"] == model
            assert line[f"answer_{side}"] == said[row["item"], model]["text"]
        if row["status"] == "ok" and row.get("prefer_a") is not None:
            order = {1: row["model_a"], -1: row["model_b"], 0: "tie"}
            assert line["verdict"] == order[(row["prefer_a"] > 0.5) - (row["prefer_a"] < 0.5)]
        elif row["status"] == "ok" and "winner" in row:
            winner = {"A": row["model_a"], "B": row["model_b"], "tie": "tie"}
            assert line["verdict"] == (winner.get(row["winner"]) or f"{row['rating']:g}")
        has_reason = method.get("chain_of_thought") or method["kind"] == "mt_bench_judge"
        assert bool(line["reason"]) == bool(has_reason)
    assert "side_by_side" in command("export", "made", "--list")[1]


def test_an_answer_of_a_judge_that_is_a_candidate_is_no_reason_of_its(command, recipe):
    candidates = ["weak", "judge"]
    path = recipe(methods=[{"kind": "pointwise", **JUDGING, "candidates": candidates}])
    assert command("run", path, "--display", "none")[0] == 0
    out = command("export", "made", "--frame", "side_by_side", "--format", "csv")[1]
    read = list(csv.DictReader(io.StringIO(out)))
    assert {row["model_a"] for row in read} == set(candidates)
    assert all(row["answer_a"] and not row["reason"] for row in read)


ABOUT_NOTHING = """
from orchestrator.plugin import Method, typed


class Flat(Method):
    unit_columns = typed("model: str")
    columns = typed("good: f64")

    @property
    def scores(self):
        return {"good": 1}

    async def evaluate(self, unit, ask):
        return {"good": 0.5}
"""


def test_a_method_about_no_item_in_a_run_without_answers_has_its_lines(command, recipe, here):
    (here / "flat.py").write_text(ABOUT_NOTHING, encoding="utf-8")
    path = recipe(methods=[{"kind": "./flat.py"}])
    code, _, err = command("run", path, "--display", "none", "--allow-code")
    assert code == 0, err
    wanted = ("export", "made", "--frame", "side_by_side", "--format", "csv", "--allow-code")
    code, out, err = command(*wanted)
    assert code == 0, err
    read = list(csv.DictReader(io.StringIO(out)))
    assert read
    assert {(row["item"], row["answer_a"], row["verdict"]) for row in read} == {("", "", "0.5")}
