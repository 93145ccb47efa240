"""Frames of a run as several readers have them at once."""

import fcntl
import os
import threading
from pathlib import Path

import pytest

from orchestrator.runner.results import readable


def held(folder: Path) -> bool:
    """Return whether somebody gives names in a folder."""
    lock = os.open(folder / readable._LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def test_one_reader_at_a_time_gives_names_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(readable, "_WAIT_S", 600.0)
    begun, order = threading.Event(), []

    def other() -> None:
        begun.set()
        with readable._alone(tmp_path):
            order.append("other")

    thread = threading.Thread(target=other)
    with readable._alone(tmp_path):
        assert held(tmp_path)
        thread.start()
        begun.wait()
        order.append("first")
    thread.join()
    assert order == ["first", "other"]
    assert not held(tmp_path)


def test_who_holds_a_folder_for_too_long_is_passed_over(tmp_path, monkeypatch):
    with readable._alone(tmp_path):
        monkeypatch.setattr(readable, "_WAIT_S", 0.0)
        with readable._alone(tmp_path):
            assert held(tmp_path)


def test_a_folder_is_free_again_after_an_error(tmp_path):
    with pytest.raises(ValueError, match="x"), readable._alone(tmp_path):
        raise ValueError("x")
    assert not held(tmp_path)
