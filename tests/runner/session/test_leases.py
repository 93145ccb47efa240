"""Blocks of items are leased once, and taken from clients that were revoked."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StoreError
from orchestrator.runner.session.leases import Block, Leases, portion
from orchestrator.store import Store


@pytest.fixture
def leases(tmp_path):
    made = Leases.create(tmp_path / "leases.sqlite", [(0, 4), (4, 8), (8, 10)])
    made.add(1)
    made.add(2)
    return made


def test_a_block_is_leased_once(leases):
    assert leases.lease(1) == Block(1, 0, 4)
    assert leases.lease(2) == Block(2, 4, 8)
    assert leases.lease(1) == Block(3, 8, 10)
    assert leases.lease(2) is None


def test_what_a_revoked_client_had_goes_to_others_with_its_number(leases):
    first = leases.lease(1)
    second = leases.lease(1)
    assert first is not None
    leases.end(1, first)
    assert leases.revoke(1) == 1
    assert leases.n_free == 2
    # What had ended stays so.
    assert leases.lease(2) == second._replace(earlier=(1,))


def test_a_revoked_client_may_neither_lease_nor_write(leases):
    block = leases.lease(1)
    leases.check(1)
    leases.revoke(1)
    with pytest.raises(StoreError, match="client 1 lost its items"):
        leases.lease(1)
    with pytest.raises(StoreError, match="writes nothing more"):
        leases.check(1)
    # Nor can it say that the block has ended.
    leases.end(1, block)
    assert leases.n_free == 3


def test_the_store_of_a_revoked_client_writes_nothing_more(leases, tmp_path):
    path = tmp_path / "store.sqlite"
    store = Store.open(path, check_owned=lambda: leases.check(1))
    store.set_meta("before", "1")
    store.flush()
    leases.revoke(1)
    store.set_meta("after", "1")
    with pytest.raises(StoreError, match="client 1 lost its items"):
        store.flush()
    store.close()
    with Store.open(path, read_only=True) as kept:
        assert (kept.get_meta("before"), kept.get_meta("after")) == ("1", None)


def test_beats_are_those_of_clients_that_live(leases):
    leases.beat(2)
    leases.beat(2)
    assert leases.beats() == {1: 0, 2: 2}
    leases.revoke(1)
    assert leases.live() == [2]


def test_clients_at_once_never_get_the_same_block(tmp_path):
    leases = Leases.create(tmp_path / "leases.sqlite", [(at, at + 1) for at in range(60)])
    got: dict[int, list[int]] = {number: [] for number in range(1, 5)}

    def take(number):
        leases.add(number)
        while (block := leases.lease(number)) is not None:
            got[number].append(block.number)

    threads = [threading.Thread(target=take, args=(number,)) for number in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(block for taken in got.values() for block in taken) == [*range(1, 61)]


@given(st.integers(1, 500), st.integers(1, 20))
def test_parts_of_a_limit_are_fair_and_make_it_up(total, n):
    parts = [portion(total, rank, n) for rank in range(n)]
    assert max(parts) - min(parts) <= 1
    assert sum(parts) == max(total, n)
