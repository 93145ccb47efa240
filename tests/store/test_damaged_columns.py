"""Whatever column of a store holds what it can't: it is damage, and takes nothing else with it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.store import RunDirectory, Store
from orchestrator.store.salvage import salvage
from tests.store.helpers import choice, key, outcomes_of
from tests.store.test_merging import SERVER, make

N = 12
OTHER = {"TEXT": b"\xff", "INTEGER": "text", "REAL": "text", "BLOB": "text"}
GARBAGE = {"TEXT": "[[", "BLOB": b"\xc1\xff\x00"}
# What is told by more than its type: others are any text or any bytes, or are checked by keys.
TOLD = {
    ("server", "provenance"), ("outcome", "head"), ("outcome", "arrays"), ("unit", "rows"),
    ("token", "texts"), ("outcome", "key"),
}  # fmt: skip
TABLES = ("meta", "name", "server", "outcome", "tally", "failure", "unit", "plan", "token")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    run = make(
        tmp_path_factory.mktemp("whole") / "run",
        {at: choice(at) for at in range(N)},
        {at: (1, at / 2) for at in range(4)},
    )
    with RunDirectory.lock(run) as directory, Store.open(directory.store_path) as store:
        number = store.server_id("judge 00", SERVER)
        store.vocabulary.put(number, {at: b"word %d" % at for at in range(4)})
        store.set_meta("spent", "7")
    with closing(sqlite3.connect(run / "store.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return (run / "store.sqlite").read_bytes()


def columns(path: Path, table: str) -> dict[str, str]:
    """Return the columns and their types, without a row's number, which is never anything else."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(f"PRAGMA table_info({table})").fetchall()
    return {name: kind for _, name, kind, *_ in found if name != "id"}


def damage(path: Path, table: str, column: str, value) -> None:
    """Change a column of the first row of a table."""
    with closing(sqlite3.connect(path)) as connection, connection:
        known = connection.execute(f"PRAGMA table_info({table})").fetchall()
        keys = ", ".join(name for _, name, *_, place in known if place)
        first = f"SELECT {keys} FROM {table} ORDER BY {keys} LIMIT 1"  # noqa: S608 (our own text)
        said = f"UPDATE {table} SET {column}=? WHERE ({keys})=({first})"  # noqa: S608
        assert connection.execute(said, (value,)).rowcount == 1


def check(path: Path) -> None:
    """The store is repaired, with all outcomes but one at most, and is sound then."""
    found = salvage(path)
    assert found.damaged is not None
    with Store.open(path) as store:
        store.check()
        left = outcomes_of(store, map(key, range(N)))
        assert len(left) >= N - 1
        assert all(left[key(at)] == choice(at) for at in range(N) if key(at) in left)
    assert salvage(path).damaged is None


@pytest.mark.parametrize("table", TABLES)
def test_a_value_of_another_type_is_damage(whole, path, table):
    path.write_bytes(whole)
    known = columns(path, table)
    assert known
    for column, kind in known.items():
        path.write_bytes(whole)
        damage(path, table, column, OTHER[kind])
        check(path)


@pytest.mark.parametrize(("table", "column"), sorted(TOLD))
def test_a_value_that_means_nothing_is_damage(whole, path, table, column):
    path.write_bytes(whole)
    damage(path, table, column, GARBAGE[columns(path, table)[column]])
    check(path)


def test_two_plans_that_were_opened_last_are_damage(whole, path):
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as connection, connection:
        known = connection.execute("SELECT * FROM plan").fetchall()
        (number, _, *rest) = known[0]
        row = [number + len(known), b"q" * 16, *rest]
        connection.execute("INSERT INTO plan VALUES (?, ?, ?, ?, ?, ?)", row)
    check(path)
