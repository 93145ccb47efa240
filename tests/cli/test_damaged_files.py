"""Each small file of a run damaged in turn: the right result, or a line that says what to do."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from tests.cli.values import results_of

FILES = (
    "run.json",
    "status.json",
    "lock",
    "log.jsonl",
    "revisions/1.yaml",
    "results/.exported",
    "results/.items",
    "results/answers.parquet",
    "results/judgments.parquet",
    "results/items.parquet",
)
# One of each kind: what is written once, again and again, by revision, and made of the store.
IN_CI = ("run.json", "status.json", "revisions/1.yaml", "results/answers.parquet")


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def zeroed(path):
    path.write_bytes(bytes(max(path.stat().st_size, 10)))


def noise(path):
    path.write_bytes(random.Random(5).randbytes(max(path.stat().st_size, 10)))


def one_byte(path):
    content = bytearray(path.read_bytes() or b"x" * 10)
    content[len(content) // 2] ^= 0x20
    path.write_bytes(content)


def no_text(path):
    path.write_bytes(b"\xff\xfe" + path.read_bytes())


def folder(path):
    path.unlink()
    path.mkdir()
    (path / "x").write_text("y")


def gone(path):
    path.unlink()


DAMAGES = (cut, zeroed, noise, one_byte, no_text, folder, gone)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that is complete, and its recipe."""
    from orchestrator.cli import main  # noqa: PLC0415

    here = tmp_path_factory.mktemp("whole")
    models = {
        name: {"server": "scripted", "weights": weights}
        for name, weights in (("weak", "a:0.2"), ("strong", "b:0.9"), ("judge", "j:1.0"))
    }
    method = {"kind": "pairwise_ranking", "judges": ["judge"], "answer": {"max_tokens": 4}}
    recipe = {
        "name": "made",
        "models": models,
        "dataset": {"kind": "demo", "n": 6},
        "methods": [method],
        "statistics": {"n_resamples": 50},
    }
    (here / "made.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    before = os.getcwd()  # noqa: PTH109
    os.chdir(here)
    try:
        assert main(["run", "made.yaml", "--display", "none", "--format", "json"]) == 0
    finally:
        os.chdir(before)
    return here


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "file",
    [file if file in IN_CI else pytest.param(file, marks=pytest.mark.long) for file in FILES],
)
def test_a_damaged_file_is_mended_or_said(command, here, whole, file):
    shutil.copytree(whole, here, dirs_exist_ok=True)
    expected = results_of(command("report", "made", "--format", "json")[1])
    for damage in DAMAGES:
        if (file, damage) == ("lock", folder):
            continue  # below
        shutil.rmtree(here / "runs")
        shutil.copytree(whole / "runs", here / "runs")
        damage(here / "runs" / "made" / file)
        what = f"{file} {damage.__name__}"
        for arguments in (
            ("report", "made", "--format", "json"),
            ("report", "made", "--html", "r.html"),
            ("export", "made", "--to", "out"),
            ("status", "made"),
            ("runs",),
            ("plan", "made.yaml"),
            ("runs", "gc", "made"),
        ):
            code, out, err = command(*arguments)
            assert code in {0, 1, 2}, (what, arguments, err)
            if arguments[-1] == "json" and code == 0:
                assert results_of(out) == expected, what
            if code:
                advice = ("repair", "orchestrator run", "remove", "once more", "same command")
                assert any(word in err for word in advice), (what, arguments, err)
        code, out, err = command("runs", "repair", "made")
        assert code == 0, (what, out, err)
        code, out, err = command("run", "made.yaml", "--display", "plain", "--format", "json")
        assert code == 0, (what, err)
        assert "nothing to send" in err, (what, err)
        assert results_of(out) == expected, what
        reported = command("report", "made", "--format", "json")[1]
        assert results_of(reported) == expected, what
        assert command("status", "made")[0] == 0, what


def test_what_has_the_place_of_the_lock_is_to_be_removed(command, here):
    from tests.store.hostile import hostile_run  # noqa: PLC0415

    run = hostile_run(here / "runs" / "made")
    folder(run / "lock")
    code, _, err = command("runs", "repair", "made")
    assert code == 2
    assert "remove" in err


def test_the_list_of_runs_tells_the_damaged_ones(command, recipe):
    assert command("run", recipe(methods=[{"kind": "answers"}]), "--display", "none")[0] == 0
    runs = Path("runs")
    for name in ("cut", "empty", "headless"):
        shutil.copytree(runs / "made", runs / name)
    cut(runs / "cut" / "store.sqlite")
    os.truncate(runs / "empty" / "store.sqlite", 0)
    with (runs / "headless" / "store.sqlite").open("r+b") as file:
        file.write(b"\xa5" * 100)
    before = sorted(runs.rglob("*"))
    rows = json.loads(command("runs", "--json")[1])
    # A list writes nothing into runs.
    assert sorted(runs.rglob("*")) == before
    assert [row["state"] for row in rows] == ["damaged", "damaged", "damaged", "complete"]
    assert [row["units_done"] is None for row in rows] == [True, True, True, False]
    assert ["fault" in row for row in rows] == [True, True, True, False]
    code, out, _ = command("runs")
    assert (code, out.count("damaged"), out.count("complete")) == (0, 3, 1)
