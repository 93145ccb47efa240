"""Records are soon in the file itself, and a run says when a part of it was left behind."""

import shutil
import threading
import time

import pytest

from orchestrator.errors import RunDirectoryError, StoreError
from orchestrator.interface import api
from orchestrator.records import Choice
from orchestrator.store import RunDirectory, Store, connections
from tests.store.helpers import outcomes_of
from tests.store.hostile import hostile_run

HELD = Choice((-1.0, -2.0), (-1.0, -2.0), "top_logprobs", 3, 0, 1)


def key(number):
    return number.to_bytes(16, "big")


def put(store, first, last):
    for number in range(first, last):
        store.put_outcome(
            key(number), "choose", "m", HELD, server=0, prompt_hash=b"p", attempts=1, latency_s=0.1
        )
    store.flush()


def held(path):
    """Outcomes of a copy of the file alone."""
    copy = path.with_name("copy")
    copy.mkdir(exist_ok=True)
    while True:
        shutil.copy(path, copy / "store.sqlite")
        try:
            with Store.open(copy / "store.sqlite", read_only=True) as store:
                return len(outcomes_of(store, map(key, range(1000))))
        except RunDirectoryError:
            return 0  # not even its tables are in the file yet
        except StoreError:
            continue  # the log was moved into it while it was copied


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(connections, "CHECKPOINT_S", 0.05)


def until(what, expected):
    deadline = time.monotonic() + 60
    while what() != expected:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_log_is_moved_into_the_file_while_a_run_is_idle(tmp_path, often):
    with Store.open(tmp_path / "store.sqlite") as store:
        put(store, 0, 30)
        until(lambda: held(tmp_path / "store.sqlite"), 30)
        put(store, 30, 50)
        until(lambda: held(tmp_path / "store.sqlite"), 50)


def test_the_log_is_moved_into_the_file_while_more_comes(tmp_path, often):
    with Store.open(tmp_path / "store.sqlite") as store:
        # On a busy machine it may take more than the first two hundred.
        for first in range(0, 1000, 10):
            put(store, first, first + 10)
            time.sleep(0.02)
            if first % 200 == 190 and held(tmp_path / "store.sqlite") >= 100:
                break
        else:
            pytest.fail("less than a hundred of a thousand are in the file")


def test_a_clean_end_waits_for_who_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(connections, "_CLOSE_WAIT_S", 60.0)
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    put(store, 0, 5)
    with Store.open(path, read_only=True) as reader:
        put(store, 5, 10)
        end = threading.Thread(target=store.close)
        end.start()
        assert len(outcomes_of(reader, map(key, range(10)))) == 5
    end.join()
    assert held(path) == 10


def lost(tmp_path):
    """A run whose status says more than its file holds."""
    with (
        RunDirectory.lock(tmp_path / "run") as directory,
        Store.open(directory.store_path) as store,
    ):
        put(store, 0, 10)
        directory.write_status({}, last_outcome=store.last_outcome)
    with RunDirectory.lock(tmp_path / "run") as directory:
        before = directory.store_path.read_bytes()
        with Store.open(directory.store_path) as store:
            put(store, 10, 30)
            directory.write_status({}, last_outcome=store.last_outcome)
        directory.store_path.write_bytes(before)
        return directory


def test_a_run_whose_log_was_left_behind_says_so(tmp_path):
    directory = lost(tmp_path)
    with Store.open(directory.store_path, read_only=True) as store:
        assert directory.last_outcome - store.last_outcome == 20
    directory.forget_outcomes()
    assert directory.last_outcome == 0
    status = directory.status()
    assert status is not None
    assert status.values == {}


def test_nothing_is_missing_where_nothing_was_said(tmp_path):
    with RunDirectory.lock(tmp_path / "run") as directory:
        assert directory.last_outcome == 0
        directory.write_status({})
        assert directory.last_outcome == 0
        directory.status_path.write_text('{"last_outcome": "x"}')
        assert directory.last_outcome == 0


def test_a_report_says_what_was_left_behind(tmp_path):
    run = hostile_run(tmp_path / "run")
    with RunDirectory.lock(run) as directory:
        directory.write_status({}, last_outcome=7)
    assert any("7 outcomes" in note for note in api.load(run).notes)
