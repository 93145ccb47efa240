"""`orchestrator runs rm` deletes runs, and nothing else, after a question."""

import json
import os
import shutil
import sys

import pytest

from orchestrator import numbers
from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE
from orchestrator.interface import api
from orchestrator.runner.results.runs import describe
from orchestrator.store import RunDirectory
from tests.launched import recipe_data
from tests.terminals import Terminal

DAY_S = 24 * 3600


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A run, and one begun after it with `--fresh`."""
    folder = tmp_path_factory.mktemp("kept")
    recipe = folder / "made.json"
    recipe.write_text(json.dumps(recipe_data("made", methods=[{"kind": "answers"}])))
    for fresh in (False, True):
        assert api.run(recipe, run_dir=folder / "runs" / "made", fresh=fresh).ok
    return folder / "runs"


@pytest.fixture
def made(here, kept):
    """Runs `runs/made`, `runs/made.2` and one elsewhere, and a file beside them."""
    shutil.copytree(kept, here / "runs")
    shutil.copytree(kept / "made", here / "elsewhere")
    (here / "runs" / "notes.txt").write_text("mine")
    return here / "runs"


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def age(run, days):
    for path in run.rglob("*"):
        moment = path.stat().st_mtime - days * DAY_S
        os.utime(path, (moment, moment))


def test_exactly_the_named_run_goes(command, made):
    code, out, err = command("runs", "rm", "made", "--yes")
    assert (code, err) == (EXIT_COMPLETE, "")
    assert out.startswith("runs/made: complete, ")
    assert "deleted 1 run" in out
    assert left(made) == ["made.2", "notes.txt"]
    assert command("runs", "rm", "elsewhere", "runs/made.2", "--yes")[0] == EXIT_COMPLETE
    assert left(made) == ["notes.txt"]
    assert not (made.parent / "elsewhere").exists()


@pytest.mark.parametrize(("answer", "n"), [("y", 0), ("yes\n", 0), ("", 1), ("n\n", 1), ("x", 1)])
def test_only_a_yes_deletes(command, made, monkeypatch, answer, n):
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert command("runs", "rm", "made")[0] == EXIT_COMPLETE
    assert left(made).count("made") == n


def test_nobody_can_be_asked_without_a_terminal(command, made):
    code, _, err = command("runs", "rm", "made")
    assert code == EXIT_USAGE
    assert "delete with --yes" in err
    assert command("runs", "rm")[0] == EXIT_USAGE
    assert left(made) == ["made", "made.2", "notes.txt"]


@pytest.mark.parametrize(
    ("less", "more"), [("8", "10"), ("8d", "10d"), ("1w", "2w"), ("190h", "240h")]
)
def test_those_older_go_alone(command, made, less, more):
    age(made / "made", 9)
    age(made.parent / "elsewhere", 9)
    assert "nothing was deleted" in command("runs", "rm", "--older-than", more, "--yes")[1]
    assert (
        "nothing was deleted" in command("runs", "rm", "made.2", "--older-than", less, "--yes")[1]
    )
    assert "deleted 1 run" in command("runs", "rm", "--older-than", less, "--yes")[1]
    assert left(made) == ["made.2", "notes.txt"]
    assert (made.parent / "elsewhere").is_dir()


@pytest.mark.parametrize("age", ["", "d", "-1", "nan", "inf", "1e3", "30 d", "30m", "٣", "9" * 9])
def test_an_age_is_a_number_and_a_unit(command, made, age):
    code, _, err = command("runs", "rm", f"--older-than={age}", "--yes")
    assert code == EXIT_USAGE
    assert "expected an age such as 30d" in err
    assert left(made) == ["made", "made.2", "notes.txt"]


def test_what_was_freed_is_said(command, made):
    size = numbers.size(describe(made / "made")["size"])
    assert f"deleted 1 run: {size} freed" in command("runs", "rm", "made", "--yes")[1]


def a_link(made):
    (made / "link").symlink_to(made.parent / "elsewhere")
    return "link"


def a_link_inside(made):
    (made / "made" / "results" / "link").symlink_to(made.parent / "elsewhere")
    return "made"


def no_run(made):
    (made / "empty").mkdir()
    return "empty"


def the_folder_of_runs(_):
    return "runs"


@pytest.mark.parametrize("prepared", [a_link, a_link_inside, no_run, the_folder_of_runs])
def test_nothing_else_is_deleted_and_no_run_beside_it(command, made, prepared):
    named = prepared(made)
    code, _, err = command("runs", "rm", "made.2", named, "--yes")
    assert code != EXIT_COMPLETE
    assert named.partition("/")[0] in err
    assert {"made", "made.2", "notes.txt"} <= set(left(made))
    assert (made.parent / "elsewhere" / "store.sqlite").is_file()


def test_not_from_within(command, made, monkeypatch):
    monkeypatch.chdir(made / "made" / "results")
    code, _, err = command("runs", "rm", str(made / "made"), "--yes")
    assert code != EXIT_COMPLETE
    assert "holds the working directory" in err
    assert (made / "made" / "store.sqlite").is_file()


def test_a_run_that_is_written_stays(command, made):
    age(made / "made", 9)
    with RunDirectory.lock(made / "made", exactly=True):
        code, _, err = command("runs", "rm", "made.2", "made", "--yes")
        assert code != EXIT_COMPLETE
        assert "made is in use by process" in err
    assert left(made) == ["made", "made.2", "notes.txt"]


def test_a_damaged_run_can_go(command, made):
    (made / "made" / "run.json").write_text("{")
    (made / "made.2" / "store.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    assert "deleted 2 runs" in command("runs", "rm", "made", "made.2", "--yes")[1]
    assert left(made) == ["notes.txt"]


def test_the_list_says_how_old_they_are(command, made):
    age(made / "made", 9)
    assert "9 d 0 h ago" in command("runs")[1]
