"""The values of a run are those that were written, or it is said which one is not."""

import contextlib
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orchestrator.errors import StoreError
from orchestrator.store import Store, lending, values
from orchestrator.store.salvage import salvage

WRITTEN = {"spent": '{"requests":120}', "units": "1000", "revision": "a: 1\nb: é\n", "limits": ""}


def write(path: Path) -> None:
    with Store.open(path) as store:
        store.open_plan(b"p" * 16, 10, {"units": WRITTEN["units"]})
        for key, value in WRITTEN.items():
            store.set_meta(key, value)
            store.flush()


def read(path: Path) -> dict[str, str | None]:
    with Store.open(path, read_only=True) as store:
        return {key: store.meta.get(key) for key in WRITTEN}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("values") / "store.sqlite"
    write(path)
    assert read(path) == WRITTEN
    return path.read_bytes()


@settings(deadline=None)
@given(
    row=st.sampled_from([*WRITTEN, values.CHECKSUMS]),
    column=st.sampled_from(["key", "value"]),
    at=st.integers(0, 300),
    byte=st.integers(0, 255),
)
def test_no_byte_of_any_value_changes_what_is_read(whole, row, column, at, byte) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        path.write_bytes(whole)
        with closing(sqlite3.connect(path)) as connection, connection:
            asked = f"SELECT CAST({column} AS BLOB) FROM meta WHERE key=?"  # noqa: S608
            ((found,),) = connection.execute(asked, (row,)).fetchall()
            assume(found)
            changed = bytearray(found)
            changed[at % len(changed)] = byte
            sql = f"UPDATE OR IGNORE meta SET {column}=CAST(? AS TEXT) WHERE key=?"  # noqa: S608
            connection.execute(sql, (bytes(changed), row))
        try:
            found = read(path)
        except StoreError as error:
            found = str(error)
        assert found == WRITTEN or "orchestrator runs repair " in found
        # Who writes sees what readers see.
        with contextlib.ExitStack() as stack:
            if found != WRITTEN:
                stack.enter_context(pytest.raises(StoreError))
            Store.open(path).close()


@pytest.mark.parametrize("key", WRITTEN)
def test_a_value_that_is_gone_is_named(path: Path, key: str) -> None:
    write(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM meta WHERE key=?", (key,))
    with pytest.raises(StoreError, match=f"'{key}'"):
        read(path)


def test_a_store_without_checksums_is_read_and_gets_them_with_the_next_value(path: Path) -> None:
    write(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM meta WHERE key=?", (values.CHECKSUMS,))
    assert read(path) == WRITTEN
    with Store.open(path) as store:
        store.set_meta("late", "x")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value='1001' WHERE key='units'")
    with pytest.raises(StoreError, match="'units'"):
        read(path)


def test_repair_leaves_out_what_is_not_as_it_was_written_and_nothing_else(path: Path) -> None:
    write(path)
    assert salvage(path).damaged is None
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value='{\"requests\":20}' WHERE key='spent'")
    assert salvage(path).values_lost == ("spent",)
    assert read(path) == WRITTEN | {"spent": None}


def test_damaged_checksums_lose_no_value(path: Path) -> None:
    write(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value=replace(value, 'units', 'unitz')")
    with pytest.raises(StoreError, match=values.CHECKSUMS):
        read(path)
    found = salvage(path)
    assert found.damaged is not None
    assert found.values_lost == ()
    assert read(path) == WRITTEN


def test_checksums_are_no_value_of_a_run_that_has_ended(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"name":"run","number":1,"format":1}', encoding="utf-8")
    write(tmp_path / "store.sqlite")
    with lending.opened(tmp_path, tmp_path) as store:
        assert store.meta == WRITTEN
