"""Opening a run that somebody else made writes nowhere, and never without end."""

import os

import polars as pl
import pytest

from tests.store.hostile import hostile_run
from tests.view.runs import made

OUTSIDE = (
    "../../victim/results/answers",
    "/nowhere/x",
    "..",
    "a/b",
    "",
    "a\x00b",
    "Ünï",
    "items",
    "-x",
)


def tree(folder):
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize("frame", OUTSIDE)
@pytest.mark.parametrize("name", ["report", "export"])
def test_the_name_of_a_frame_is_no_path(command, here, frame, name):
    victim = made(here / "runs" / "victim", n=5)
    before = tree(victim)
    hostile_run(here / "runs" / "other", frame=frame)
    more = ("--to", "out") if name == "export" else ()
    code, _, err = command(name, "runs/other", *more)
    assert tree(victim) == before
    assert code == 1, err
    assert "frame" in err
    assert "repair" in err


def test_a_link_in_results_is_replaced_and_not_followed(command, here):
    target = here / "precious.parquet"
    pl.DataFrame({"x": [1]}).write_parquet(target)
    before = target.read_bytes()
    run = hostile_run(here / "runs" / "other")
    for name in ("answers.parquet", "answers.part.parquet", "answers.0.part.parquet", ".exported"):
        (run / "results" / name).symlink_to(target)
    code, _, err = command("report", "runs/other")
    assert code == 0, err
    assert target.read_bytes() == before
    assert not (run / "results" / "answers.parquet").is_symlink()


def test_results_that_are_a_link_are_not_written_into(command, here):
    victim = made(here / "runs" / "victim", n=5)
    before = tree(victim)
    run = hostile_run(here / "runs" / "other")
    (run / "results").rmdir()
    (run / "results").symlink_to(victim / "results")
    code, _, err = command("report", "runs/other")
    assert tree(victim) == before
    assert code == 1
    assert "is a link" in err


@pytest.mark.parametrize("name", ["results", "control", "servers", "revisions"])
def test_a_run_that_holds_links_is_not_gone_on_with(command, recipe, here, name):
    victim = here / "victim"
    victim.mkdir()
    (victim / "20200101-x.json").write_text("precious")
    run = hostile_run(here / "runs" / "made")
    for file in (run / name).iterdir():
        file.unlink()
    (run / name).rmdir()
    (run / name).symlink_to(victim)
    before = tree(victim)
    code, _, err = command("run", recipe(), "--display", "none")
    assert tree(victim) == before
    assert code == 2
    assert "is a link" in err


@pytest.mark.parametrize("name", ["lock", "log.jsonl", "status.json", "run.json", "owner.json"])
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_no_file_of_a_run_is_written_through_a_link(command, recipe, here, name, link):
    victim = here / "victim"
    run = hostile_run(here / "runs" / "made")
    content = (run / "run.json").read_bytes()
    victim.write_bytes(content)
    (run / name).unlink(missing_ok=True)
    link(victim, run / name)
    command("run", recipe(), "--display", "none")
    command("runs", "repair", "runs/made")
    assert victim.read_bytes() == content


def test_a_named_pipe_is_not_waited_for(command, here):
    run = made(here / "runs" / "other", n=5)
    for name in ("status.json", "lock"):
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)
    code, _, err = command("report", "runs/other")
    assert code == 0, err
    code, _, err = command("status", "runs/other")
    assert code == 2
    (run / "run.json").unlink()
    os.mkfifo(run / "run.json")
    code, _, err = command("status", "runs/other")
    assert code == 2


def test_charts_and_reports_follow_no_link_beside_them(command, here):
    made(here / "runs" / "made", n=5)
    victim = here / "victim"
    victim.write_text("precious")
    (here / f".r.html.{os.getpid()}.part").symlink_to(victim)
    (here / "answers.csv.part").symlink_to(victim)
    assert command("export", "runs/made", "--to", ".", "--format", "csv")[0] == 0
    assert victim.read_text() == "precious"
