"""A key is found wherever it stands: waiting, committed, sorted into the index, or read back."""

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.store import Store, connections
from orchestrator.store.lookup import KeyFilter, n_levels
from orchestrator.store.merging import drop_outcomes
from orchestrator.store.salvage import salvage
from tests.store.helpers import choice, key, outcomes_of, put


@pytest.fixture
def few_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sort keys into the index again and again, not after thousands."""
    monkeypatch.setattr(connections, "_KEYS_TOGETHER", 8)


def n_unsorted(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        ((n,),) = connection.execute("SELECT count(*) FROM outcome_key_new")
    connection.close()
    return int(n)


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=50))
def test_filter_forgets_no_key(keys: list[bytes]) -> None:
    known = KeyFilter()
    for each in keys:
        known.add(each)
    assert all(each in known for each in keys)


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=50))
def test_filter_knows_the_same_whether_keys_are_added_together_or_not(keys: list[bytes]) -> None:
    one, other = KeyFilter(), KeyFilter()
    one.update(keys)
    for each in keys:
        other.add(each)
    assert one._bits == other._bits


def test_filter_seldom_takes_a_key_for_another() -> None:
    rng = np.random.default_rng(5)
    known = KeyFilter()
    for _ in range(100_000):
        known.add(rng.bytes(16))
    wrong = sum(rng.bytes(16) in known for _ in range(20_000))
    # 100,000 of 2^25 bits: 0.3 %.
    assert 0 < wrong < 120


@pytest.mark.usefixtures("few_together")
def test_every_key_is_found_while_others_are_sorted(store: Store) -> None:
    for number in range(200):
        put(store, number)
        if number % 7 == 0:
            store.flush()
        assert store.get(key(number // 2)) == choice(number // 2)
    assert store.get(key(200)) is None


@pytest.mark.usefixtures("few_together")
def test_a_key_keeps_its_first_outcome_wherever_that_is(path: Path) -> None:
    for _ in range(3):
        with Store.open(path) as store:
            for number in range(50):
                put(store, number)
                put(store, number, choice(-1.0))
                if number % 10 == 0:
                    store.flush()
            put(store, 3, choice(-1.0))
    with Store.open(path) as store:
        assert sum(count.n for count in store.counts()) == 50
        assert outcomes_of(store, map(key, range(60))) == {key(n): choice(n) for n in range(50)}


def places_of_keys(path: Path) -> dict[int, int]:
    """Return the number of keys in each level, 0 for the index."""
    with sqlite3.connect(path) as connection:
        levels = connection.execute("SELECT level, count(*) FROM outcome_key_level GROUP BY 1")
        found = dict(levels.fetchall())
        ((found[0],),) = connection.execute("SELECT count(*) FROM outcome_key")
    connection.close()
    return found


@pytest.mark.usefixtures("few_together")
def test_keys_of_a_large_store_pass_the_levels_and_are_found_in_each(path: Path) -> None:
    n = 6_000
    with Store.open(path) as store:
        for number in range(n):
            put(store, number)
            if number % 8 == 7:
                store.flush()
        assert outcomes_of(store, map(key, range(n))) == {key(k): choice(k) for k in range(n)}
        assert not any(store.get(key(k)) is None for k in range(0, n, 7))
        store.check()
    places = places_of_keys(path)
    assert sum(places.values()) == n
    assert set(places) == {0, 1, 2}
    # At most as many batches as a level has slices.
    assert places[1] <= 16 * 8
    assert places[2] <= 256 * 8
    with Store.open(path) as store:
        for number in range(0, n, 50):
            put(store, number, choice(-1.0))
        assert sum(count.n for count in store.counts()) == n
    with Store.open(path, read_only=True) as reader:
        assert len(outcomes_of(reader, map(key, range(n + 10)))) == n
        assert all(reader.get(key(k)) == choice(k) for k in range(0, n, 11))


@pytest.mark.usefixtures("few_together")
def test_outcomes_whose_keys_are_in_a_level_are_repaired_and_dropped_as_others(path: Path) -> None:
    with Store.open(path) as store:
        for number in range(200):
            put(store, number)
            store.flush()
    assert places_of_keys(path)[1] > 0
    assert salvage(path).damaged is None
    with sqlite3.connect(path, isolation_level=None) as connection:
        in_level = "SELECT k.row FROM outcome_key_level k"
        rows = [row for (row,) in connection.execute(in_level)]
        drop_outcomes(connection, rows)
        assert connection.execute(in_level).fetchall() == []
    connection.close()
    with Store.open(path) as store:
        assert len(outcomes_of(store, map(key, range(200)))) == 200 - len(rows)
        for number in range(200):
            put(store, number)
        assert len(outcomes_of(store, map(key, range(200)))) == 200


def test_levels_bound_the_pages_that_a_key_changes() -> None:
    """Count the ranges of 200 keys that a batch meets: one of them is about a page."""
    assert [n_levels(n, 16_384) for n in (0, 100_000, 10**6, 10**7, 10**8)] == [0, 0, 1, 2, 3]
    for n in (10**5, 10**6, 10**7, 10**8):
        held = [16_384 * 16**level for level in range(1, n_levels(n, 16_384) + 1)]
        # A batch is spread over the whole first level; a slice of a level over as much of the next.
        met = [keys / 16**at for at, keys in enumerate([*held, n])]
        assert sum(min(one / 200, 16_384) for one in met) / 16_384 < 0.35


def test_a_closed_store_has_every_key_in_its_index(path: Path) -> None:
    with Store.open(path) as store:
        for number in range(20):
            put(store, number)
        store.flush()
        assert n_unsorted(path) == 20
    assert n_unsorted(path) == 0
    with Store.open(path, read_only=True) as store:
        assert len(outcomes_of(store, map(key, range(30)))) == 20


def test_keys_that_a_kill_left_unsorted_are_found(path: Path, tmp_path: Path) -> None:
    left = tmp_path / "left" / path.name
    left.parent.mkdir()
    with Store.open(path) as store:
        for number in range(20):
            put(store, number)
        store.flush()
        for file in path.parent.glob(path.name + "*"):
            shutil.copy(file, left.parent)
    assert n_unsorted(left) == 20
    with Store.open(left, read_only=True) as store:
        assert store.get(key(3)) == choice(3)
        assert len(outcomes_of(store, map(key, range(30)))) == 20
    with Store.open(left) as store:
        assert store.get(key(3)) == choice(3)
        put(store, 3, choice(-1.0))
        put(store, 20)
        assert outcomes_of(store, [key(3), key(20)]) == {key(3): choice(3), key(20): choice(20)}
    assert n_unsorted(left) == 0


def test_a_reader_finds_keys_of_a_running_store(store: Store, path: Path) -> None:
    put(store, 1)
    store.flush()
    with Store.open(path, read_only=True) as reader:
        assert reader.get(key(1)) == choice(1)
        assert outcomes_of(reader, [key(1), key(2)]) == {key(1): choice(1)}


def test_adoption_leaves_no_index_behind(store: Store, path: Path) -> None:
    first = store.open_plan(b"a" * 16, 5)
    for number in range(5):
        store.put_unit(key(number), first, number, 0, "frame", [(number,)])
    other = store.open_plan(b"b" * 16, 5)
    store.adopt(other, [(number, key(number + 1)) for number in range(5)])
    assert store.n_ended(other) == 4
    with sqlite3.connect(path) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
    connection.close()
    assert "unit_by_hash" not in names


def test_of_equal_units_the_one_that_is_done_is_adopted(store: Store) -> None:
    first = store.open_plan(b"a" * 16, 2)
    store.put_unit(key(0), first, 0, 2, "frame", [("failed",)])
    store.put_unit(key(0), first, 1, 0, "frame", [("done",)])
    other = store.open_plan(b"b" * 16, 1)
    store.adopt(other, [(0, key(0))])
    assert store.n_ended(other) == 1
    assert [unit.rows for unit in store.iter_rows(other, "frame")] == [[("done",)]]


@pytest.mark.parametrize("n", [1, 5, 63, 64, 65, 300, 1500])
def test_any_number_of_units_ends_at_once_and_again(store: Store, n: int) -> None:
    plan = store.open_plan(b"a" * 16, n)
    for status in (2, 0, 0):
        for number in range(n):
            store.put_unit(key(number), plan, number, status, "frame", [(number, status)])
    store.flush()
    found = [(unit.status, unit.rows) for unit in store.iter_rows(plan, "frame")]
    assert found == [(0, [(number, 0)]) for number in range(n)]
