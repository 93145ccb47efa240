"""Records come back as put: at once, after closing, once, and in order."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from orchestrator.backend import Provenance
from orchestrator.errors import StoreError
from orchestrator.records import Failure, Generation
from orchestrator.store import Store, StoredServer, connections
from tests.store.helpers import choice, key, origin, outcomes_of, put

SERVER = Provenance(backend="fake", base_url="http://127.0.0.1:1", model="m")


def test_outcome_is_visible_before_it_is_committed(store: Store) -> None:
    put(store, 1)
    assert store.pending_bytes > 0
    assert store.get(key(1)) == choice(1)


def test_outcome_is_visible_after_it_is_committed(store: Store) -> None:
    put(store, 1)
    store.flush()
    assert store.pending_bytes == 0
    assert store.get(key(1)) == choice(1)


def test_unknown_key_has_no_outcome(store: Store) -> None:
    assert store.get(key(1)) is None


def test_outcome_survives_closing(path: Path) -> None:
    with Store.open(path) as store:
        put(store, 1)
    with Store.open(path) as store:
        assert store.get(key(1)) == choice(1)


def test_closing_leaves_one_file(path: Path) -> None:
    with Store.open(path) as store:
        put(store, 1)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_generation_with_arrays_comes_back_whole(store: Store) -> None:
    made = Generation(
        "text", "stop", token_ids=np.arange(99, dtype=np.int32), logprobs=np.zeros(99, np.float32)
    )
    put(store, 1, made)
    store.flush()
    back = store.get(key(1))
    assert isinstance(back, Generation)
    np.testing.assert_array_equal(back.token_ids, made.token_ids)


@pytest.mark.parametrize("committed", [False, True])
def test_first_outcome_of_a_key_stays(store: Store, *, committed: bool) -> None:
    put(store, 1)
    if committed:
        store.flush()
    put(store, 1, choice(99))
    assert store.get(key(1)) == choice(1)
    store.flush()
    assert store.get(key(1)) == choice(1)


def test_second_outcome_of_a_key_is_not_counted(store: Store) -> None:
    put(store, 1)
    put(store, 1)
    store.flush()
    assert [count.n for count in store.counts()] == [1]


def test_permanent_failure_comes_back_as_failure(store: Store) -> None:
    failure = Failure("too_long", "40,000 tokens", permanent=True, status=400)
    put(store, 1, failure)
    store.flush()
    assert store.get(key(1)) == failure


def test_a_transient_failure_cannot_be_stored(store: Store) -> None:
    with pytest.raises(StoreError, match="transient"):
        put(store, 1, Failure("timeout", "slow"))


def test_attempts_are_counted_not_kept(store: Store) -> None:
    for number in range(5):
        store.put_attempt(key(number), "judge", Failure("timeout", f"try {number}"))
    store.flush()
    (group,) = store.failures()
    assert (group.cause, group.n, group.last_message) == ("timeout", 5, "try 4")
    assert store.get(key(4)) is None


def test_message_of_an_attempt_is_shortened_and_printable(store: Store) -> None:
    store.put_attempt(key(1), "judge", Failure("timeout", "\ud800" + "x" * 10_000))
    store.flush()
    (group,) = store.failures()
    assert group.last_message.startswith("\\ud800xxx")
    assert len(group.last_message) < 600


def test_counts_sum_what_outcomes_took(store: Store) -> None:
    put(store, 1)
    put(store, 2)
    put(store, 3, Failure("too_long", "", permanent=True))
    store.flush()
    good, failed = store.counts()
    assert (good.cause, good.n, good.n_prompt_tokens, good.n_cached_tokens) == ("", 2, 20, 8)
    assert (failed.cause, failed.n, failed.n_prompt_tokens) == ("too_long", 1, 0)
    assert good.latency_s == 0.5


def test_counts_add_up_over_calls(path: Path) -> None:
    for number in range(3):
        with Store.open(path) as store:
            put(store, number)
    with Store.open(path, read_only=True) as store:
        assert [count.n for count in store.counts()] == [3]


def test_many_keys_are_found_pending_or_not(store: Store) -> None:
    put(store, 1)
    store.flush()
    put(store, 2)
    found = outcomes_of(store, [key(1), key(2), key(3)])
    assert found == {key(1): choice(1), key(2): choice(2)}


def test_origin_tells_where_an_outcome_came_from(store: Store) -> None:
    put(store, 7)
    assert origin(store, 7) == ("choose", "judge", 1, 0.25, key(-7))


def test_same_server_keeps_its_number_over_calls(path: Path) -> None:
    with Store.open(path) as store:
        number = store.server_id("judge", SERVER)
    with Store.open(path) as store:
        assert store.server_id("judge", SERVER) == number
        assert store.servers.known("judge") == [SERVER]


def test_model_has_the_server_that_was_met_last(store: Store) -> None:
    other = Provenance(backend="fake", base_url="http://127.0.0.1:2", model="m")
    for provenance in (SERVER, other, SERVER):
        store.server_id("judge", provenance)
    assert store.server_of_model("judge") == StoredServer("judge", SERVER)
    assert store.server_of_model("nobody") is None


def test_values_of_the_run_survive(path: Path) -> None:
    with Store.open(path) as store:
        store.set_meta("seed", "1")
        store.set_meta("seed", "2")
        assert store.meta.get("seed") == "2"
    with Store.open(path, read_only=True) as store:
        assert store.meta.get("seed") == "2"
        assert store.meta.get("recipe") is None


def test_entries_are_committed_in_order(store: Store, path: Path) -> None:
    """A reader never sees a unit without the outcome it rests on."""
    plan = store.open_plan(b"p" * 16, 3000)
    missing: list[int] = []
    ended = threading.Event()

    def read() -> None:
        with sqlite3.connect(path, timeout=10) as reader:
            while not ended.is_set():
                # One statement is one snapshot.
                ((units, outcomes),) = reader.execute(
                    "SELECT (SELECT count(*) FROM unit), (SELECT count(*) FROM outcome)"
                )
                if units > outcomes:
                    missing.append(units - outcomes)
        reader.close()

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(3000):
        put(store, number)
        store.put_unit(key(number), plan, number, 0, "frame", [(number,)])
    store.flush()
    ended.set()
    thread.join()
    assert missing == []


def test_a_reader_sees_one_moment_whatever_is_written_meanwhile(store: Store, path: Path) -> None:
    plan = store.open_plan(key(999), 300)
    for number in range(0, 300, 50):
        with Store.open(path, read_only=True) as reader:
            for more in range(number, number + 50):
                put(store, more)
                store.put_unit(key(more), plan, more, 0, "frame", [(more,)])
                store.set_meta("n", str(more))
            store.flush()
            assert len(outcomes_of(reader, (key(n) for n in range(300)))) == number
            assert reader.n_ended(plan) == number == len(list(reader.iter_rows(plan, "frame")))
            assert reader.meta.get("n") == (str(number - 1) if number else None)
            reader.check_places(plan, number)
            with ThreadPoolExecutor() as threads:
                assert threads.submit(reader.n_ended, plan).result() == number


def test_many_threads_put_and_get(store: Store) -> None:
    wrong: list[int] = []

    def work(start: int) -> None:
        for number in range(start, start + 300):
            put(store, number)
            if store.get(key(number)) != choice(number):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 200, 400, 600)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.flush()
    assert wrong == []
    assert sum(count.n for count in store.counts()) == 900


def test_store_for_reading_refuses_to_write(path: Path) -> None:
    Store.open(path).close()
    with Store.open(path, read_only=True) as reader:
        with pytest.raises(StoreError, match="reading only"):
            put(reader, 1)
        assert reader.get(key(1)) is None


def test_closed_store_says_so(path: Path) -> None:
    store = Store.open(path)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.get(key(1))


@pytest.fixture
def exclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each store is on a network file system."""
    root = SimpleNamespace(mountpoint="/", fstype="nfs")
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: [root])


@pytest.mark.usefixtures("exclusive")
def test_exclusive_store_reads_and_writes_over_one_connection(path: Path) -> None:
    with Store.open(path) as store:
        for number in range(200):
            put(store, number)
        store.flush()
        assert store.get(key(7)) == choice(7)
        assert not path.with_name(path.name + "-shm").exists()


@pytest.mark.usefixtures("exclusive")
def test_exclusive_store_publishes_a_copy_that_others_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_PUBLISH_S", 0.0)
    with Store.open(path) as store:
        put(store, 1)
        store.flush()
        put(store, 2)
        store.flush()
        with Store.open(path, read_only=True) as reader:
            assert reader.get(key(1)) == choice(1)


def test_log_that_grows_too_long_is_reported_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "WAL_WARNING_BYTES", 1000)
    with Store.open(path) as store:
        for number in range(3):
            put(store, number)
            store.flush()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "write-ahead log" in caplog.text


@pytest.mark.usefixtures("exclusive")
def test_two_exclusive_writers_exclude_each_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.store.schema.BUSY_S", 0.05)
    with Store.open(path), pytest.raises(StoreError, match="another process"):
        Store.open(path)


def test_a_new_server_gets_a_new_number_where_an_earlier_one_is_lost(path: Path) -> None:
    met = [Provenance(backend="fake", base_url="http://127.0.0.1:2", model=m) for m in "mnop"]
    with Store.open(path) as store:
        assert [store.server_id("judge", server) for server in met[:3]] == [1, 2, 3]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM server WHERE id=2")
    with Store.open(path) as store:
        assert store.server_id("judge", met[3]) == 4


@pytest.mark.parametrize("committed", [False, True])
def test_an_outcome_has_the_epoch_of_its_server(path: Path, *, committed: bool) -> None:
    others = [Provenance(backend="fake", base_url="http://127.0.0.1:2", model=m) for m in "mn"]
    with Store.open(path) as store:
        for number, server in enumerate((SERVER, others[0], SERVER, others[1])):
            put(store, number, server=store.server_id("judge", server))
        put(store, 4, server=store.server_id("other", others[0]))
        put(store, 5, server=store.server_id("judge", others[0], run="/lends"))
        if committed:
            store.flush()
        assert [store.epoch(key(number)) for number in range(7)] == [0, 1, 0, 2, 0, 1, 0]
    with Store.open(path) as store:
        assert [store.epoch(key(number)) for number in range(7)] == [0, 1, 0, 2, 0, 1, 0]
        assert [use.epoch for use in store.servers_used("judge")] == [0, 1, 2, 1]
