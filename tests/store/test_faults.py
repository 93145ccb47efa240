"""Full disks, damaged and foreign files: said clearly, and nothing committed is lost."""

import sqlite3
from pathlib import Path

import pytest

from orchestrator.errors import RunDirectoryError, StoreError
from orchestrator.records import Generation
from orchestrator.store import Store
from tests.store.helpers import choice, key, outcomes_of, put


def fill_up(store: Store) -> None:
    """Let no page be added to the file."""
    assert store._writer is not None
    store._writer.call(lambda connection: connection.execute("PRAGMA max_page_count=1").fetchall())


def large(number: int) -> Generation:
    return Generation("".join(chr(0x4E00 + (n * number) % 20_000) for n in range(9000)), "stop")


def put_many(store: Store) -> None:
    for number in range(100, 200):
        put(store, number, large(number))
        store.flush()


def put_until_it_fails(store: Store) -> StoreError:
    with pytest.raises(StoreError) as caught:
        put_many(store)
    return caught.value


def test_full_disk_is_told_with_path_and_advice(path: Path) -> None:
    store = Store.open(path)
    fill_up(store)
    error = put_until_it_fails(store)
    assert str(path) in str(error)
    assert "free space" in str(error)
    store.close()


def test_every_caller_after_a_failed_write_is_told(path: Path) -> None:
    store = Store.open(path)
    fill_up(store)
    put_until_it_fails(store)
    with pytest.raises(StoreError, match="full"):
        put(store, 1)
    with pytest.raises(StoreError, match="full"):
        store.flush()
    store.close()


def test_closing_tells_of_a_failed_write_that_nobody_met(path: Path) -> None:
    store = Store.open(path)
    fill_up(store)
    put(store, 1, large(1))
    put(store, 2, large(7))
    with pytest.raises(StoreError, match="full"):
        store.close()


def test_what_was_committed_survives_a_full_disk(path: Path) -> None:
    store = Store.open(path)
    for number in range(50):
        put(store, number)
    store.flush()
    fill_up(store)
    put_until_it_fails(store)
    store.close()
    with Store.open(path) as again:
        again.check()
        assert len(outcomes_of(again, (key(n) for n in range(50)))) == 50
        put(again, 100)
        again.flush()


def fail_in_a_block(path: Path) -> None:
    with Store.open(path) as store:
        fill_up(store)
        put(store, 1, large(1))
        put(store, 2, large(7))
        raise KeyError


def test_error_of_the_block_is_not_hidden_by_closing(path: Path) -> None:
    with pytest.raises(KeyError):
        fail_in_a_block(path)


@pytest.mark.parametrize("read_only", [False, True])
def test_file_that_is_no_database_is_refused(path: Path, *, read_only: bool) -> None:
    path.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(StoreError, match="damaged"):
        Store.open(path, read_only=read_only)
    assert path.read_bytes().startswith(b"not a database")


@pytest.mark.parametrize("read_only", [False, True])
def test_database_of_another_program_is_refused_untouched(path: Path, *, read_only: bool) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(RunDirectoryError, match="another program"):
        Store.open(path, read_only=read_only)
    assert path.read_bytes() == before


@pytest.mark.parametrize("read_only", [False, True])
def test_newer_schema_is_refused(path: Path, *, read_only: bool) -> None:
    Store.open(path).close()
    with sqlite3.connect(path) as later:
        later.execute("PRAGMA user_version=99")
    later.close()
    with pytest.raises(RunDirectoryError, match="schema 99"):
        Store.open(path, read_only=read_only)


def test_page_that_was_overwritten_is_a_store_error(path: Path) -> None:
    with Store.open(path) as store:
        for number in range(2000):
            put(store, number)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        Store.open(path)


def test_damaged_file_is_found_by_checking(path: Path) -> None:
    with Store.open(path) as store:
        for number in range(2000):
            put(store, number)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    # More than the free pages, whose content is nobody's.
    content[middle : middle + 32 * 4096] = bytes(32 * 4096)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"), Store.open(path) as store:
        store.check()


@pytest.mark.parametrize("read_only", [True, False])
def test_a_damaged_record_is_told_with_its_file_and_the_command_for_it(
    path: Path, *, read_only: bool
) -> None:
    with Store.open(path) as store:
        put(store, 1)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE outcome SET head = head || x'00'")
    connection.close()
    with (
        pytest.raises(StoreError, match="damaged") as caught,
        Store.open(path, read_only=read_only) as store,
    ):
        outcomes_of(store, [key(1)])
    assert str(caught.value).startswith(f"{path}: ")
    assert f"`orchestrator runs repair {path.parent}` keeps" in str(caught.value)


def test_empty_file_left_by_a_kill_becomes_a_store(path: Path) -> None:
    path.touch()
    with Store.open(path) as store:
        put(store, 1)


def test_missing_store_can_not_be_read(path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="no run has been started"):
        Store.open(path, read_only=True)
    assert not path.exists()


def test_missing_folder_is_a_store_error(path: Path) -> None:
    with pytest.raises(StoreError, match="folder"):
        Store.open(path.parent / "nowhere" / "store.sqlite")


def test_store_in_a_folder_that_can_not_be_written_is_read(path: Path) -> None:
    with Store.open(path) as store:
        put(store, 1)
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        with Store.open(path, read_only=True) as reader:
            assert reader.get(key(1)) == choice(1)
    finally:
        path.parent.chmod(0o700)
