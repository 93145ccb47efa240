"""Temporary folders, and what killed processes left of theirs."""

import os
import signal
import subprocess
import sys
import tempfile

import pytest

from orchestrator.disk import files

HOLDING = """
import sys, time
from orchestrator.disk import files
with files.temporary_folder() as folder:
    (folder / "store.sqlite").write_text("secret")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def above(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def age(folder):
    long_ago = folder.stat().st_mtime - 3600
    os.utime(folder, (long_ago, long_ago))


@pytest.fixture
def other(above):
    """A process that holds a folder, which is an hour old."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(above)},
    ) as process:
        assert process.stdout is not None
        folder = above / process.stdout.readline().strip()
        age(folder)
        yield process, folder
        process.kill()


def test_a_folder_is_private_and_goes_at_the_end(above):
    with files.temporary_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.parent == above
    assert [*above.iterdir()] == []


def test_what_a_killed_process_left_goes_with_the_next_folder(other):
    process, left = other
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (left / "store.sqlite").exists()
    with files.temporary_folder():
        assert not left.exists()


def test_what_a_living_process_holds_stays(other):
    with files.temporary_folder():
        assert (other[1] / "store.sqlite").exists()


def test_only_folders_of_ours_that_are_old_go(above):
    young, foreign, link = (above / f"orchestrator-lent-{n}" for n in "abc")
    for folder in (young, foreign):
        folder.mkdir()
    (young / ".lock").touch()
    (above / "elsewhere").mkdir()
    (above / "elsewhere" / ".lock").touch()
    link.symlink_to(above / "elsewhere")
    for folder in (foreign, above / "elsewhere"):
        age(folder)  # one has no lock, the other is reached by a link
    with files.temporary_folder():
        assert {young, foreign, link, above / "elsewhere"} < {*above.iterdir()}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_a_folder_of_another_user_stays(above):
    folder = above / "orchestrator-lent-x"
    folder.mkdir()
    (folder / ".lock").touch()
    os.chown(folder, 65534, 65534)
    age(folder)
    with files.temporary_folder():
        assert folder.exists()
