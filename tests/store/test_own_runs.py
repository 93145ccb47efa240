"""A run is written where its user alone can write, and obeys nobody else."""

import os
import re
import shlex
from pathlib import Path

import pytest

from orchestrator.disk.paths import TRUSTED
from orchestrator.errors import RunDirectoryError
from orchestrator.runner.session import control
from orchestrator.store import RunDirectory, newest
from tests.others import NOBODY, given_to

pytestmark = pytest.mark.others


def owned_by_nobody(path: Path) -> Path:
    return given_to(NOBODY, path)


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.lstat().st_mode, path.lstat().st_mtime_ns)
        for path in sorted([folder, *folder.rglob("*")])
    }


def refused(path: Path, match: str) -> None:
    before = tree(path.parent)
    with pytest.raises(RunDirectoryError, match=match), RunDirectory.lock(path):
        pass
    assert tree(path.parent) == before


def test_a_folder_that_another_user_made_first_is_not_used(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "made"
    run.mkdir(parents=True)
    owned_by_nobody(run)
    refused(run, "belongs to user .*, not to you.*--run-dir")


def test_a_run_of_another_user_is_not_gone_on_with(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "made"
    with RunDirectory.lock(run) as directory:
        directory.write_revision("theirs")
    owned_by_nobody(run)
    refused(run, "belongs to user")


def test_a_run_in_a_folder_of_another_user_could_be_replaced(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "made"
    run.parent.mkdir()
    owned_by_nobody(run.parent).chmod(0o777)
    with pytest.raises(RunDirectoryError, match="who could replace"), RunDirectory.lock(run):
        pass


def test_the_refusal_names_the_way_out_which_works(tmp_path: Path, monkeypatch) -> None:
    # As for root in a container on a mounted folder, or in the folder of a project of several.
    run = tmp_path / "our project" / "runs" / "made"
    run.parent.mkdir(parents=True)
    owned_by_nobody(run.parent)
    with pytest.raises(RunDirectoryError) as caught, RunDirectory.lock(run):
        pass
    found = re.search(rf"set {TRUSTED}=(.*?)\)", str(caught.value))
    assert found
    (folder,) = shlex.split(found[1])
    assert folder == str(run.parent)

    monkeypatch.setenv(TRUSTED, folder)
    with RunDirectory.lock(run):
        assert run.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("said", "is_trusted"),
    [
        ("{}/a", True),
        ("/nowhere:{}", True),
        ("{}/link", True),
        ("{}/a/run", False),
        ("{}/aa", False),
        ("", False),
        (".", False),
        ("a", False),
    ],
)
def test_only_a_named_folder_and_those_in_it_are_trusted(
    tmp_path: Path, monkeypatch, said, is_trusted
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(TRUSTED, said.format(tmp_path))
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    owned_by_nobody(tmp_path / "a")
    if is_trusted:
        with RunDirectory.lock(tmp_path / "a" / "run"):
            pass
    else:
        no_place = pytest.raises(RunDirectoryError, match="who could replace")
        with no_place, RunDirectory.lock(tmp_path / "a" / "run"):
            pass


def test_a_run_of_another_user_is_refused_in_a_trusted_folder_too(
    tmp_path: Path, monkeypatch
) -> None:
    run = tmp_path / "run"
    with RunDirectory.lock(run):
        pass
    owned_by_nobody(run)
    monkeypatch.setenv(TRUSTED, str(tmp_path))
    refused(run, "belongs to user")


@pytest.mark.parametrize(("mode", "is_taken"), [(0o777, False), (0o1777, True)])
def test_where_everybody_writes_only_the_sticky_bit_keeps_a_run(tmp_path, mode, is_taken) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "all").chmod(mode)
    if is_taken:
        with RunDirectory.lock(tmp_path / "all" / "run"):
            pass
    else:
        refused_in_all = pytest.raises(RunDirectoryError, match="anyone could replace")
        with refused_in_all, RunDirectory.lock(tmp_path / "all" / "run"):
            pass


def test_a_run_that_others_could_have_written_to_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunDirectory.lock(run):
        pass
    run.chmod(0o777)
    refused(run, "is writable by others")


def test_an_empty_folder_that_others_could_write_to_becomes_the_users_own(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    run.chmod(0o777)
    with RunDirectory.lock(run):
        assert run.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["control", "results", "status.json", "revisions/1.yaml"])
def test_what_another_user_left_in_a_run_is_refused(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    with RunDirectory.lock(run) as directory:
        directory.write_revision("n: 1")
        directory.write_status({})
    owned_by_nobody(run / name)
    refused(run, f"{name} belongs to user")


def test_a_link_of_another_user_to_a_run_is_not_followed(tmp_path: Path) -> None:
    with RunDirectory.lock(tmp_path / "mine"):
        pass
    (tmp_path / "run").symlink_to(tmp_path / "mine")
    with RunDirectory.lock(tmp_path / "run"):
        pass
    owned_by_nobody(tmp_path / "run")
    refused(tmp_path / "run", "belongs to user")


def test_the_newer_run_of_another_user_does_not_stop_ones_own(tmp_path: Path) -> None:
    for _ in range(2):
        with RunDirectory.lock(tmp_path / "run", fresh=True):
            pass
    owned_by_nobody(tmp_path / "run.2")
    assert newest(tmp_path / "run") == tmp_path / "run"
    with RunDirectory.lock(tmp_path / "run") as directory:
        assert directory.path.name == "run"
    owned_by_nobody(tmp_path / "run")
    assert newest(tmp_path / "run") == tmp_path / "run.2"


def test_folders_above_a_run_are_not_made_for_everybody_to_write(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with RunDirectory.lock(tmp_path / "runs" / "made"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "runs").stat().st_mode & 0o777 == 0o755


def test_a_command_of_another_user_is_not_obeyed(tmp_path: Path) -> None:
    told: list[control.Command] = []

    def obey(command: control.Command) -> str:
        told.append(command)
        return ""

    with RunDirectory.lock(tmp_path / "run") as held:
        command = held.control / "1.json"
        command.write_text('{"action": "stop"}')
        owned_by_nobody(command)
        control.look(held.control, obey)
        assert b"another user" in (held.control / "1.answer").read_bytes()
    assert told == []


def test_the_run_of_another_user_is_given_no_commands(tmp_path: Path) -> None:
    with RunDirectory.lock(tmp_path / "run") as held:
        owned_by_nobody(held.path)
        with pytest.raises(RunDirectoryError, match="another user"):
            control.tell(held, control.Command("pause"))
        assert list(held.control.iterdir()) == []
