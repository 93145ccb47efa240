"""A store whose first page is damaged is read all the same."""

import random
import sqlite3
from contextlib import closing

import pytest

from orchestrator.errors import RunDirectoryError, StoreError
from orchestrator.store import Store, schema
from orchestrator.store.merging import unplanned
from orchestrator.store.salvage import salvage
from tests.store.helpers import outcomes_of
from tests.store.test_checkpoints import key, put

PAGE = 8192
N = 300


def zeroed(page):
    return bytes(len(page))


def noise(page):
    return random.Random(3).randbytes(len(page))


def no_header(page):
    return bytes(100) + page[100:]


def no_tables(page):
    return page[:100] + bytes(len(page) - 100)


def store_of(path):
    with Store.open(path) as store:
        put(store, 0, N)
    return path


def held(path):
    with Store.open(path, read_only=True) as store:
        return len(outcomes_of(store, map(key, range(N))))


@pytest.mark.parametrize("damage", [zeroed, noise, no_header, no_tables])
def test_a_store_without_its_first_page_keeps_every_outcome(tmp_path, damage):
    path = store_of(tmp_path / "store.sqlite")
    content = path.read_bytes()
    path.write_bytes(damage(content[:PAGE]) + content[PAGE:])
    found = salvage(path)
    assert found.damaged is not None
    assert found.n_lost == 0
    assert sum(found.kept.values()) == N
    assert held(path) == N


def test_so_does_one_that_was_written_anew_by_gc(tmp_path):
    path = store_of(tmp_path / "store.sqlite")
    unplanned(path, {key(number) for number in range(0, N, 2)}, drop=True)
    content = path.read_bytes()
    path.write_bytes(bytes(PAGE) + content[PAGE:])
    assert sum(salvage(path).kept.values()) == N // 2


def test_other_damage_beside_it_loses_what_it_hits(tmp_path):
    path = store_of(tmp_path / "store.sqlite")
    content = bytearray(path.read_bytes())
    content[:PAGE] = bytes(PAGE)
    content[-2 * PAGE : -PAGE] = bytes(PAGE)
    path.write_bytes(content)
    assert 0 < sum(salvage(path).kept.values()) <= N


@pytest.mark.parametrize("content", [b"", b"x" * 100_000, bytes(100_000)])
def test_a_file_that_is_no_store_does_not_become_one(tmp_path, content):
    path = tmp_path / "store.sqlite"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="None of it can be read"):
        salvage(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("version", [1, schema.SCHEMA_VERSION + 1])
def test_a_store_of_another_version_is_no_damaged_one(tmp_path, version):
    path = store_of(tmp_path / "store.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version={version}")
    before = path.read_bytes()
    with pytest.raises(RunDirectoryError, match=f"has schema {version}") as caught:
        salvage(path)
    assert "None of it can be read" not in str(caught.value)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
