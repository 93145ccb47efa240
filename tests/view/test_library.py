"""Runs of several folders in one viewer, also those that another process makes meanwhile."""

import shutil

import pytest

from orchestrator.errors import RunDirectoryError
from orchestrator.view.library import Library
from tests.view.runs import made


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    above = tmp_path_factory.mktemp("above")
    made(above / "first" / "made", 2)
    shutil.copytree(above / "first" / "made", above / "second" / "made")
    shutil.copytree(above / "first" / "made", above / "second" / "other")
    return above


def test_runs_of_several_folders_are_listed_and_told_apart(folders, viewer):
    shown = viewer(folders / "first", folders / "second" / "made", folders / "second").enter()
    listed = shown.json("/api/runs")
    names = {one["name"] for one in listed["runs"]}
    assert names == {"made (first)", "made (second)", "other"}
    assert listed["single"] is None
    for name in names:
        assert shown.json(f"/api/runs/{name}/state")["left"] == 0


def test_one_run_is_shown_alone(folders, viewer):
    shown = viewer(folders / "second" / "other").enter()
    assert shown.json("/api/runs")["single"] == "other"


def test_a_run_that_begins_later_is_found(folders, tmp_path):
    (tmp_path / "runs").mkdir()
    library = Library([tmp_path / "runs"], tmp_path / "side")
    assert library.listing() == []
    with pytest.raises(RunDirectoryError):
        library.run("late")
    shutil.copytree(folders / "first" / "made", tmp_path / "runs" / "late")
    assert [one["name"] for one in library.listing()] == ["late"]
    assert library.run("late").state()["left"] == 0
