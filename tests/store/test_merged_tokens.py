"""Token texts of merged runs: no number gets the text of another run."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.backend import Provenance
from orchestrator.errors import StoreError
from orchestrator.records import Generation
from orchestrator.store import RunDirectory, Store
from tests.store.helpers import key
from tests.store.test_merging import OTHER, SERVER, merged
from tests.store.test_vocabulary import MODEL, drawn, spoil, texts


def make(
    path: Path,
    outcomes: Mapping[int, Generation],
    ids: Mapping[int, bytes] | None = None,
    server: Provenance = SERVER,
) -> Path:
    with RunDirectory.lock(path) as directory, Store.open(directory.store_path) as store:
        number = store.server_id(MODEL, server)
        for at, outcome in outcomes.items():
            store.put_outcome(
                key(at), "generate", "judge", outcome,
                server=number, prompt_hash=key(-at), attempts=1, latency_s=0.1,
            )  # fmt: skip
        store.vocabulary.put(number, ids or {})
    return path


def stored(path: Path) -> dict[bytes, tuple[bytes, bytes]]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT key, head, arrays FROM outcome")
        return {key: (head, arrays) for key, head, arrays in found}


def test_each_outcome_keeps_the_texts_of_its_own_run(tmp_path):
    one = make(tmp_path / "one", {1: drawn("a", " b", named=True)})
    two = make(tmp_path / "two", {2: drawn("x", "a", named=True), 3: drawn("y")})
    new, _ = merged(tmp_path, one, two)
    with Store.open(new) as store:
        assert [texts(store, n) for n in (1, 2, 3)] == [["a", " b"], ["x", "a"], ["y"]]
        made = store.get(key(2))
        assert isinstance(made, Generation)
        assert made.named is not None
        assert store.tokens(MODEL)[int(made.named[0])] == b"x"
        store.check()
    before = stored(one / "store.sqlite")
    assert {at: stored(new)[at] for at in before} == before


def test_the_same_outcome_by_other_numbers_is_no_conflict(tmp_path):
    one = make(tmp_path / "one", {5: drawn("q"), 1: drawn("a", "b")})
    two = make(tmp_path / "two", {1: drawn("a", "b")})
    new, (_, second) = merged(tmp_path, one, two)
    assert (second.n_same, second.n_conflicts) == (1, 0)
    with Store.open(new) as store:
        assert (texts(store, 1), texts(store, 5)) == (["a", "b"], ["q"])


def test_ids_keep_their_texts_by_server(tmp_path):
    one = make(tmp_path / "one", {1: drawn("a")}, {7: b"x", 8: b"y"})
    two = make(tmp_path / "two", {2: drawn("a")}, {7: b"z", 8: b"y"}, OTHER)
    three = make(tmp_path / "three", {3: drawn("a")}, {9: b"w", 7: b"x"})
    new, _ = merged(tmp_path, one, two, three)
    with Store.open(new) as store:
        found = store.tokens(MODEL)
        # Id 7 is another token for each of the model's two servers.
        assert {number: text for number, text in found.items() if number >= 0} == {
            8: b"y",
            9: b"w",
        }


def test_damaged_texts_refuse_the_merge(tmp_path):
    one = make(tmp_path / "one", {1: drawn("a")})
    spoil(one / "store.sqlite", 1)
    with pytest.raises(StoreError, match="checksum differs"):
        merged(tmp_path, one, make(tmp_path / "two", {2: drawn("b")}))


def test_more_outcomes_than_are_read_at_once(tmp_path):
    one = make(tmp_path / "one", {1: drawn("first")})
    many = {n: drawn(f"t{n % 7}", "u") for n in range(2, 1203)}
    new, _ = merged(tmp_path, one, make(tmp_path / "two", many))
    with Store.open(new) as store:
        assert all(texts(store, n) == [f"t{n % 7}", "u"] for n in (2, 999, 1001, 1002, 1202))
