"""`orchestrator labels`: a sheet of a run, filled in, back in the report."""

import csv
import io
import json
from pathlib import Path

import pytest

METHODS = [{"kind": "pairwise_ranking", "judges": ["judge"], "answer": {"max_tokens": 4}}]


@pytest.fixture
def made(command, recipe):
    """A complete run of 30 items; its recipe takes analyses."""

    def again(**changes):
        data = {"dataset": {"kind": "demo", "n": 30}, "methods": METHODS, **changes}
        path = recipe(**data)
        assert command("run", path, "--display", "none")[0] == 0
        return "made"

    again()
    return again


def rows_of(path):
    return list(csv.DictReader(io.StringIO(Path(path).read_bytes().decode("utf-8-sig"))))


def fill(path, label):
    rows = rows_of(path)
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row | {"label": label(row)} for row in rows)


def test_a_sheet_is_blind_and_its_labels_reach_the_report(command, made):
    code, out, _ = command("labels", "made", "--to", "labels.csv", "--n", "25", "--seed", "7")
    assert code == 0
    assert "labels.csv: 25 pairs of 30; write 1, 2 or tie into the column 'label'" in out
    assert "weak" not in Path("labels.csv").read_text(encoding="utf-8")
    lines = Path("labels.key.jsonl").read_text(encoding="utf-8").splitlines()
    key = [json.loads(line) for line in lines]
    sides = {one["code"]: one["model_a"] for one in key}
    assert set(sides.values()) == {"weak", "strong"}
    fill("labels.csv", lambda row: "1" if sides[row["code"]] == "strong" else "2")
    # The analysis that the command prints is the one to use.
    (line,) = [line for line in out.splitlines() if "analyses:" in line]
    made(analyses=json.loads(line.partition("analyses: ")[2]))
    found = json.loads(command("report", "made", "--format", "json")[1])
    (table,) = [one for one in found["tables"] if one["table"] == "human_labels"]
    (row,) = table["rows"]
    assert (row["pair"], row["labels"]) == ("strong against weak", 25)
    assert row["labels alone"]["value"] == 1.0


def test_a_sheet_with_labels_is_not_overwritten(command, made):
    assert command("labels", "made", "--to", "labels.csv")[0] == 0
    before = Path("labels.csv").read_bytes()
    code, _, err = command("labels", "made", "--to", "labels.csv", "--seed", "1")
    assert code == 2
    assert "exists, and may hold labels; choose another name" in err
    assert Path("labels.csv").read_bytes() == before
    assert command("labels", "made", "--to", "labels.csv", "--seed", "1", "--force")[0] == 0
    assert Path("labels.csv").read_bytes() != before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "nothing"], "unknown method 'nothing'; available: pairwise_ranking"),
        (["--n", "0"], "expected a whole number of at least 1, not '0'"),
        (["--n", "x"], "expected a whole number of at least 1, not 'x'"),
    ],
)
def test_a_wrong_option_is_named(command, made, arguments, said):
    code, _, err = command("labels", "made", "--to", "labels.csv", *arguments)
    assert code == 2
    assert said in err
    assert not Path("labels.csv").exists()


def test_wrong_labels_of_a_sheet_are_found_by_check(command, made, recipe):
    assert command("labels", "made", "--to", "labels.csv", "--n", "5")[0] == 0
    fill("labels.csv", lambda row: "3" if row["code"] == "r2" else "1")
    analysis = {"kind": "human_labels", "labels": "labels.csv"}
    path = recipe(dataset={"kind": "demo", "n": 30}, methods=METHODS, analyses=[analysis])
    code, _, err = command("check", path)
    assert code == 2
    assert "labels.csv:3: the label of a pair is 1, 2 or tie, not '3'" in err
