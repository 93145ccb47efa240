"""Runs of several folders in one viewer, also those that another process makes meanwhile."""

import shutil

import pytest

from orchestrator.disk.paths import STORE_NAME
from orchestrator.errors import RunDirectoryError
from orchestrator.store import Store
from orchestrator.view import library as view_library
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


class Clock:
    """Goes on by so many seconds each time that it is read."""

    def __init__(self, now, step):
        self.now = now
        self._step = step

    def monotonic(self):
        self.now += self._step
        return self.now


def test_a_run_rests_in_proportion_to_what_reading_it_took_and_not_to_the_hour(
    tmp_path, monkeypatch
):
    path = made(tmp_path / "made", 2)

    def looks(began, took):
        """Looks at a run that changed, one in the time of a reading, until it is read again."""
        monkeypatch.setattr(view_library, "time", Clock(began, took))
        run = Library([path], tmp_path / "side").run("made")
        before = run.snapshot()
        with Store.open(path / STORE_NAME) as store:
            store.open_plan(f"{began:8.0f}{took:8.0f}".encode(), 0)
        return next((n for n in range(1, 100) if run.snapshot() is not before), None)

    found = {looks(began, took) for began in (0.0, 1e6) for took in (1.0, 64.0)}
    assert len(found) == 1
    assert found.pop() in range(2, 100)


def test_a_run_that_begins_later_is_found(folders, tmp_path):
    (tmp_path / "runs").mkdir()
    library = Library([tmp_path / "runs"], tmp_path / "side")
    assert library.listing() == []
    with pytest.raises(RunDirectoryError):
        library.run("late")
    shutil.copytree(folders / "first" / "made", tmp_path / "runs" / "late")
    assert [one["name"] for one in library.listing()] == ["late"]
    assert library.run("late").state()["left"] == 0
