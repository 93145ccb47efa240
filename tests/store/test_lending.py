"""Outcomes of other runs are found, copied byte for byte, and nothing is written there."""

import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.backend import Provenance
from orchestrator.errors import RunDirectoryError, StoreError
from orchestrator.records import Failure, Generation, Outcome, TopLogprobs
from orchestrator.store import Lender, RunDirectory, ServerUse, Store, StoredServer
from tests.store.helpers import choice, key, origin, put
from tests.store.test_codec import alternatives, generations

SERVER = Provenance(backend="fake", base_url="http://127.0.0.1:1", model="m", version="1")


def make_run(path: Path, outcomes: Sequence[Outcome | Failure]) -> None:
    """A run whose store holds outcomes by the keys 0, 1, …"""
    with RunDirectory.lock(path) as directory, Store.open(directory.store_path) as store:
        server = store.server_id("judge 00", SERVER)
        for number, outcome in enumerate(outcomes):
            store.put_outcome(
                key(number), "generate", "judge", outcome,
                server=server, prompt_hash=key(-number), attempts=3, latency_s=0.125,
            )  # fmt: skip


def rows(path: Path) -> list[tuple[object, ...]]:
    """All of the outcomes that must stay as it is, by key."""
    columns = "SELECT key, attempts, latency_s, at_ms, prompt_hash, head, arrays FROM outcome"
    with closing(sqlite3.connect(path / "store.sqlite")) as connection:
        return sorted(connection.execute(columns).fetchall())


def borrow(lender: Lender, store: Store, numbers: range) -> int:
    """Copy what is there of these keys; how many that is."""
    n = 0
    for number in numbers:
        lent = lender.find(key(number))
        if lent is not None:
            server = store.server_id("mine 00", SERVER, run=str(lender.path))
            store.copy_outcome("generate", "mine", lent, server)
            n += 1
    return n


def unnumbered(outcome: Outcome) -> Outcome:
    """The outcome without numbers that a run has given to texts."""
    assert isinstance(outcome, Generation)
    top = outcome.top
    if top is not None:
        top = TopLogprobs(np.maximum(top.token_ids, -1), top.logprobs)
    return msgspec.structs.replace(outcome, top=top)


@given(st.lists((generations | alternatives).map(unnumbered), max_size=4))
@settings(max_examples=25, deadline=None)
def test_a_copy_has_every_byte_of_the_original(outcomes: list[Outcome]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        there, here = Path(folder, "there"), Path(folder, "here")
        make_run(there, outcomes)
        make_run(here, [])
        with closing(Lender(there)) as lender, Store.open(here / "store.sqlite") as store:
            assert borrow(lender, store, range(len(outcomes) + 1)) == len(outcomes)
        assert rows(here) == rows(there)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    make_run(tmp_path / "there", [choice(number) for number in range(20)])
    return tmp_path / "there"


def test_a_copy_is_visible_at_once_and_can_be_read_after_closing(there: Path, path: Path) -> None:
    with closing(Lender(there)) as lender, Store.open(path) as store:
        borrow(lender, store, range(20))
        assert store.get(key(7)) == choice(7)
    with Store.open(path) as store:
        assert store.get(key(7)) == choice(7)
        assert origin(store, 7)[1:4] == ("mine", 3, 0.125)
        [use] = store.servers_used("mine 00")
        assert use == ServerUse(SERVER, str(there), 20)


def test_a_key_that_has_an_outcome_keeps_it(there: Path, path: Path) -> None:
    with closing(Lender(there)) as lender, Store.open(path) as store:
        put(store, 3, choice(99))
        borrow(lender, store, range(20))
        assert store.get(key(3)) == choice(99)


def test_failures_are_not_lent(tmp_path: Path) -> None:
    make_run(tmp_path / "there", [Failure("too_long", "too long", permanent=True), choice()])
    with closing(Lender(tmp_path / "there")) as lender:
        assert lender.find(key(0)) is None
        assert lender.find(key(1)) is not None


def test_outcomes_that_are_not_sorted_yet_are_found(tmp_path: Path, there: Path) -> None:
    with Store.open(there / "store.sqlite") as writing:
        put(writing, 50)
        writing.flush()
        with closing(Lender(there)) as lender:
            assert lender.find(key(50)) is not None
            assert lender.find(key(7)) is not None
            assert lender.find(key(51)) is None


def test_what_comes_after_the_first_look_up_is_not_lent(there: Path) -> None:
    with closing(Lender(there)) as lender, Store.open(there / "store.sqlite") as writing:
        assert lender.find(key(50)) is None
        put(writing, 50)
        writing.flush()
        assert lender.find(key(50)) is None


def test_a_reader_keeps_no_log_from_being_moved_into_the_file(there: Path) -> None:
    with closing(Lender(there)) as lender, Store.open(there / "store.sqlite") as writing:
        lender.find(key(7))
        put(writing, 50)
        writing.flush()
        with closing(sqlite3.connect(there / "store.sqlite")) as connection:
            busy, in_log, moved = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert (busy, in_log, moved) == (0, 0, 0)


def test_the_file_that_lends_stays_as_it_is(there: Path, path: Path) -> None:
    before = (there / "store.sqlite").read_bytes()
    with closing(Lender(there)) as lender, Store.open(path) as store:
        borrow(lender, store, range(20))
    assert (there / "store.sqlite").read_bytes() == before


def test_a_changed_bit_is_never_lent(there: Path) -> None:
    with closing(sqlite3.connect(there / "store.sqlite")) as connection, connection:
        ((head,),) = connection.execute("SELECT head FROM outcome WHERE key=?", (key(7),))
        changed = head[:-1] + bytes((head[-1] ^ 1,))
        connection.execute("UPDATE outcome SET head=? WHERE key=?", (changed, key(7)))
    with closing(Lender(there)) as lender:
        assert lender.find(key(6)) is not None
        with pytest.raises(StoreError, match="damaged"):
            lender.find(key(7))


def test_a_server_that_answered_another_run_does_not_answer_last(store: Store) -> None:
    other = Provenance(backend="fake", base_url="http://127.0.0.1:2", model="m")
    store.server_id("judge 00", SERVER)
    lent = store.server_id("judge 00", other, run="/other")
    assert store.server_id("judge 00", other, run="/other") == lent
    assert store.server_of_model("judge 00") == StoredServer("judge 00", SERVER)
    assert store.servers.known("judge 00") == [SERVER, other]


def test_a_server_keeps_the_run_that_it_answered(path: Path) -> None:
    with Store.open(path) as store:
        number = store.server_id("judge 00", SERVER, run="/other")
        assert store.server_id("judge 00", SERVER) != number
    with Store.open(path) as store:
        assert store.server_id("judge 00", SERVER, run="/other") == number


@pytest.mark.parametrize("name", ["run.json", "store.sqlite"])
def test_a_folder_without_a_run_lends_nothing(there: Path, name: str) -> None:
    (there / name).unlink()
    with pytest.raises(RunDirectoryError):
        Lender(there)


def test_a_store_of_a_newer_schema_lends_nothing(there: Path) -> None:
    with closing(sqlite3.connect(there / "store.sqlite")) as connection:
        connection.execute("PRAGMA user_version=99")
    with pytest.raises(RunDirectoryError, match="schema 99"):
        Lender(there)


def test_a_file_that_is_no_database_lends_nothing(there: Path) -> None:
    (there / "store.sqlite").write_bytes(b"no database, " * 1000)
    with pytest.raises(StoreError, match="damaged or not a store"):
        Lender(there)
