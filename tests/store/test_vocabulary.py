"""Texts of tokens: each is written down once, survives damage, and is never given to another."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from orchestrator.backend import Provenance
from orchestrator.records import Generation, TopLogprobs
from orchestrator.store import Lender, RunDirectory, Store, interning
from orchestrator.store.salvage import salvage
from tests.store.helpers import key

SERVER = Provenance(backend="openai", base_url="http://127.0.0.1:1", model="m")
MODEL = "judge 00"


def drawn(*names: str, named: bool = False) -> Generation:
    """A draw of one token with these alternatives, named by their texts."""
    ids = np.array([[-2 - place for place in range(len(names))]], dtype=np.int32)
    logprobs = -np.arange(1.0, len(names) + 1, dtype=np.float32).reshape(1, -1)
    return Generation(
        names[0],
        "stop",
        logprobs=logprobs[0, :1],
        top=TopLogprobs(ids, logprobs),
        named=ids[0, :1] if named else None,
        names=tuple(name.encode() for name in names),
    )


def put(store: Store, number: int, made: Generation) -> None:
    server = store.server_id(MODEL, SERVER)
    store.put_outcome(
        key(number), "generate", "judge", made,
        server=server, prompt_hash=key(-number), attempts=1, latency_s=0.1,
    )  # fmt: skip


def texts(store: Store, number: int) -> list[str | None]:
    """The alternatives of an outcome, spelled."""
    made, known = store.get(key(number)), store.tokens(MODEL)
    assert isinstance(made, Generation)
    assert made.top is not None
    assert made.names == ()
    found = [known.get(one) for one in made.top.token_ids[0].tolist()]
    return [None if one is None else one.decode() for one in found]


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (n,) = connection.execute("SELECT count(*) FROM token").fetchone()
    return int(n)


def spoil(path: Path, row: int) -> None:
    """Change a byte of a row of texts."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (blob,) = connection.execute("SELECT texts FROM token WHERE id=?", (row,)).fetchone()
        other = blob[:-1] + bytes((blob[-1] ^ 1,))
        connection.execute("UPDATE token SET texts=? WHERE id=?", (other, row))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunDirectory.lock(tmp_path / "run") as directory, Store.open(directory.store_path):
        return directory.path


def opened(run: Path) -> Store:
    return Store.open(run / "store.sqlite")


def test_a_text_is_written_once_and_spelled_in_every_outcome(run):
    with opened(run) as store:
        put(store, 1, drawn("a", " b"))
        put(store, 2, drawn(" b", "a", named=True))
        assert texts(store, 2) == [" b", "a"]
    assert rows(run / "store.sqlite") == 1
    with opened(run) as store:
        put(store, 3, drawn("c", "a"))
        assert [texts(store, n) for n in (1, 2, 3)] == [["a", " b"], [" b", "a"], ["c", "a"]]
    assert rows(run / "store.sqlite") == 2


def test_texts_of_ids_belong_to_their_server(run):
    with opened(run) as store:
        first = store.server_id(MODEL, SERVER)
        other = store.server_id("other 00", SERVER)
        store.vocabulary.put(first, {7: b" the", 8: b"\xe2\x80"})
        store.vocabulary.put(first, {7: b" never"})
        store.vocabulary.put(other, {7: b"x"})
        assert store.vocabulary.known(first) == {7, 8}
    with opened(run) as store:
        assert store.vocabulary.known(first) == {7, 8}
        assert store.tokens(MODEL) == {7: b" the", 8: b"\xe2\x80"}
        assert store.tokens("other 00") == {7: b"x"}


def test_an_id_that_two_servers_of_a_model_spell_differently_is_not_spelled(run):
    with opened(run) as store:
        store.vocabulary.put(store.server_id(MODEL, SERVER), {7: b"x", 8: b"y"})
        changed = Provenance(backend="openai", base_url="http://127.0.0.1:2", model="m")
        store.vocabulary.put(store.server_id(MODEL, changed), {7: b"other", 8: b"y"})
        assert store.tokens(MODEL) == {8: b"y"}


def test_a_copy_of_another_run_has_this_run_s_numbers(run, tmp_path):
    there = tmp_path / "there"
    with RunDirectory.lock(there) as directory, Store.open(directory.store_path) as store:
        put(store, 1, drawn("a", " b", named=True))
    with opened(run) as store, closing(Lender(there)) as lender:
        put(store, 2, drawn("q", "r", "a"))
        lent = lender.find(key(1))
        assert lent is not None
        server = store.server_id(MODEL, SERVER, run=str(there))
        store.copy_outcome("generate", "judge", lent, server)
        assert (texts(store, 1), texts(store, 2)) == (["a", " b"], ["q", "r", "a"])
    with opened(run) as store:
        copied = store.get(key(1))
        assert isinstance(copied, Generation)
        assert copied.named is not None
        assert store.tokens(MODEL)[int(copied.named[0])] == b"a"


def test_texts_over_the_limit_are_not_kept(run):
    with opened(run) as store:
        put(store, 1, drawn("a", "x" * (interning.MOST_BYTES + 1)))
        server = store.server_id(MODEL, SERVER)
        store.vocabulary.put(server, {7: b"x" * (interning.MOST_BYTES + 1), 8: b"y", -5: b"z"})
        assert texts(store, 1) == ["a", None]
        assert store.vocabulary.known(server) == {8}


@pytest.mark.parametrize("shown", ["{key}", " {key}\n", "Bearer {key}", "{part}", " {part}"])
def test_texts_that_hold_a_key_or_a_long_part_of_it_are_not_kept(run, shown):
    key = "sk-0123456789/abcdef"
    text = shown.format(key=key, part=key[4:12])
    with opened(run) as store:
        store.vocabulary.keep_out(key)
        store.vocabulary.put(1, {5: text.encode(), 6: b"abcdef"})
        put(store, 1, drawn(text, "abcdef"))
        assert texts(store, 1) == [None, "abcdef"]
        assert store.vocabulary.known(1) == {6}
    with closing(sqlite3.connect(run / "store.sqlite")) as connection:
        kept = b"".join(blob for (blob,) in connection.execute("SELECT texts FROM token"))
    assert b"abcdef" in kept
    assert key[4:12].encode() not in kept


@pytest.mark.parametrize(
    "shown",
    [str, lambda key: json.dumps(key)[1:-1], lambda key: quote(key, safe="")],
    ids=["plain", "json", "address"],
)
def test_a_key_is_not_kept_as_texts_and_addresses_spell_it(run, shown):
    key = 'sk-01234"6789/\\abcdef'
    with opened(run) as store:
        store.vocabulary.keep_out(f"another-secret-value\n{key}")
        store.vocabulary.put(
            1, {5: shown(key).encode(), 6: b"x another-secret-value", 7: b"abcdef"}
        )
        assert store.vocabulary.known(1) == {7}


@pytest.mark.parametrize("repaired", [False, True])
def test_a_lost_row_leaves_outcomes_and_gives_its_numbers_to_no_other_text(run, repaired):
    path = run / "store.sqlite"
    with opened(run) as store:
        put(store, 1, drawn("a", "b"))
    spoil(path, 1)
    if repaired:
        found = salvage(path)
        assert found.damaged is not None
        assert (found.n_lost, sum(found.kept.values())) == (0, 1)
    with opened(run) as store:
        put(store, 2, drawn("c", "d"))
        assert (texts(store, 1), texts(store, 2)) == ([None, None], ["c", "d"])
    with opened(run) as store:
        put(store, 3, drawn("e"))
        assert [texts(store, n) for n in (1, 2, 3)] == [[None, None], ["c", "d"], ["e"]]


def test_texts_survive_the_repair_of_a_store(run):
    path = run / "store.sqlite"
    with opened(run) as store:
        store.vocabulary.put(store.server_id(MODEL, SERVER), {7: b"x"})
        put(store, 1, drawn("a", "b"))
        put(store, 2, drawn("c"))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE outcome SET head=x'00' WHERE id=2")
    assert salvage(path).n_lost == 1
    with opened(run) as store:
        assert store.tokens(MODEL)[7] == b"x"
        assert texts(store, 1) == ["a", "b"]


@pytest.mark.parametrize(
    ("numbers", "is_whole", "expected"),
    [
        ((), True, -2),
        ((-2, -3), True, -4),
        ((), False, -2 - 2**20),
        ((-2, -3), False, -2 - 2**20),
        ((-2 - 2**20,), False, -2 - 2**21),
        ((-1 - 2**20,), False, -2 - 2**20),
    ],
)
def test_after_a_loss_numbers_go_on_below_all_that_it_held(
    numbers: Sequence[int],
    is_whole: bool,  # noqa: FBT001 (a case)
    expected: int,
):
    assert interning.next_number(numbers, is_whole=is_whole) == expected
