"""A damaged store is replaced by what can be read of it; nothing false is kept."""

import random
import resource
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.backend import Provenance
from orchestrator.errors import StoreError
from orchestrator.records import Failure
from orchestrator.store import Store, values
from orchestrator.store.salvage import salvage
from tests.store.helpers import choice, key, outcomes_of, put

N = 600
PAGE = 8192


def fill(path: Path, n: int = N) -> None:
    with Store.open(path) as store:
        for number in range(n):
            put(store, number)
        put(store, n, Failure("too_long", "too long", permanent=True))
        store.set_meta("spent", "7")


def change(path: Path, start: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content)


def held(path: Path) -> int:
    """Count the outcomes held; each is as it was put."""
    with Store.open(path) as store:
        store.check()
        found = outcomes_of(store, (key(number) for number in range(N)))
        assert all(
            found[key(number)] == choice(number) for number in range(N) if key(number) in found
        )
        assert sum(count.n for count in store.counts()) == len(found) + len(
            outcomes_of(store, [key(N)])
        )
        return len(found)


def test_a_sound_store_is_left_alone(path: Path) -> None:
    fill(path)
    before = path.read_bytes()
    found = salvage(path)
    assert (found.damaged, found.n_lost) == (None, 0)
    assert found.kept == {("judge", "choose"): N + 1}
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_every_outcome_that_is_looked_at_is_reported(path: Path) -> None:
    fill(path)
    steps: list[int] = []
    salvage(path, steps.append)
    assert sum(steps) == N + 1


def test_pages_that_were_overwritten_lose_what_was_on_them_and_no_more(path: Path) -> None:
    fill(path)
    middle = path.stat().st_size // 2 // PAGE * PAGE
    change(path, middle, b"\xa5" * PAGE)
    found = salvage(path)
    assert found.damaged is not None
    assert found.damaged.exists()
    n_kept = held(path)
    assert n_kept >= N - PAGE // 64
    assert found.kept["judge", "choose"] + found.n_lost >= N + 1
    with Store.open(path) as store:
        assert store.meta.get("spent") == "7"


def test_a_flipped_bit_in_a_number_loses_that_outcome_and_says_whose_it_was(path: Path) -> None:
    fill(path)
    with sqlite3.connect(path) as file:
        head = bytearray(file.execute("SELECT head FROM outcome WHERE id=7").fetchone()[0])
        head[-9] ^= 4
        file.execute("UPDATE outcome SET head=? WHERE id=7", (bytes(head),))
    file.close()
    with Store.open(path) as store, pytest.raises(StoreError, match="orchestrator runs repair"):
        store.get(key(6))
    found = salvage(path)
    assert found.lost == {("judge", "choose"): 1}
    assert held(path) == N - 1
    with Store.open(path) as store:
        assert store.get(key(6)) is None
        assert store.get(key(N)) == Failure("too_long", "too long", permanent=True)


@pytest.mark.parametrize("seed", range(5))
def test_random_damage_leaves_nothing_false(path: Path, seed: int) -> None:
    rng = random.Random(seed)
    fill(path)
    content = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 40)):
        # Past the first page: without it SQLite knows no tables.
        content[rng.randrange(PAGE, len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    found = salvage(path)
    n_kept = held(path)
    assert n_kept >= N // 2
    assert found.damaged is None or n_kept <= sum(found.kept.values())


def test_a_file_that_was_cut_keeps_what_is_left(path: Path) -> None:
    fill(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 3 // 4)
    salvage(path)
    assert held(path) > 0


def test_a_file_without_its_beginning_is_read_all_the_same(path: Path) -> None:
    fill(path)
    change(path, 0, bytes(PAGE))
    assert salvage(path).n_lost == 0


def test_a_file_of_which_nothing_is_left_can_not_be_read_and_says_so(path: Path) -> None:
    fill(path)
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(StoreError, match="--fresh"):
        salvage(path)


def test_pages_in_a_circle_are_not_read_for_ever(path: Path) -> None:
    n = 3 * N
    fill(path, n)
    with sqlite3.connect(path) as connection:
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name='outcome'")
    connection.close()
    content = path.read_bytes()
    page = bytearray(content[(root - 1) * PAGE : root * PAGE])
    # The root's cells name the leaves: https://sqlite.org/fileformat.html, 1.6. All lead to one.
    assert page[0] == 5
    cells = [int.from_bytes(page[at : at + 2]) for at in range(12, 12 + 2 * page[4], 2)]
    for cell in cells:
        page[cell : cell + 4] = page[cells[0] : cells[0] + 4]
    change(path, (root - 1) * PAGE, bytes(page))
    found = salvage(path)
    assert found.kept["judge", "choose"] + found.n_lost == n + 1
    with Store.open(path) as store:
        kept = outcomes_of(store, (key(number) for number in range(n)))
    assert 0 < len(kept) < n
    assert all(kept[key(number)] == choice(number) for number in range(n) if key(number) in kept)


def test_a_server_whose_field_has_another_name_is_damage_although_it_is_json(path: Path) -> None:
    fill(path)
    with Store.open(path) as store:
        store.server_id(
            "judge", Provenance(backend="fake", base_url="http://127.0.0.1:1", model="m")
        )
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "UPDATE server SET provenance=replace(provenance, '\"model\"', '\"mndel\"')"
        )
    found = salvage(path)
    assert found.damaged is not None
    assert held(path) == N
    with Store.open(path) as store:
        assert store.server_of_model("judge") is None


@pytest.mark.parametrize("value", ["[]", "zanswers", '{"answers": 1'])
def test_frames_that_are_no_mapping_are_damage(path: Path, value) -> None:
    fill(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        values.put(connection, {"frames": value})
    assert salvage(path).values_lost == ("frames",)
    assert held(path) == N


def test_an_empty_store_is_named_by_its_own_path(tmp_path):
    (tmp_path / "store.sqlite").touch()
    with pytest.raises(StoreError, match=r"store\.sqlite is empty: no run has been started there"):
        salvage(tmp_path / "store.sqlite")


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_without_room_for_another_file_it_says_so_and_the_store_stays(
    path: Path, share: float
) -> None:
    fill(path)
    change(path, path.stat().st_size - PAGE, b"\xff" * PAGE)
    before = path.read_bytes()
    bound = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(share * len(before)), bound[1]))
    try:
        with pytest.raises(StoreError, match=r"cannot be written|the disk is full"):
            salvage(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, bound)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert salvage(path).damaged is not None


def test_a_table_of_which_nothing_can_be_read_takes_no_other_with_it(path: Path) -> None:
    fill(path)
    whole = path.read_bytes()
    with closing(sqlite3.connect(path)) as connection:
        roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_schema WHERE rootpage"))
    for name, root in roots.items():
        path.write_bytes(whole)
        change(path, (root - 1) * PAGE, b"\xff" * (PAGE if root > 1 else 0))
        found = salvage(path)
        assert found.damaged is not None, name
        assert held(path) == (0 if name in {"name", "outcome"} else N), name
