"""Stores that were damaged after they were written: by bad disks, bad copies and helping hands."""

import contextlib
import random
import shutil
import sqlite3
import time

import pytest

from orchestrator import cli
from orchestrator.errors import EXIT_COMPLETE, EXIT_FAILED, EXIT_USAGE
from tests.chaos.arena import FULL, Arena, Ended, outcomes, same_frames
from tests.e2e.runs import frames

SECTION = "The file"
N_RANDOM = 20 if FULL else 3
PAGE = 8192


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    return Arena(tmp_path_factory.mktemp("arena"), n=30)


def flip(path, rng, n, start=PAGE):
    content = bytearray(path.read_bytes())
    for _ in range(n):
        content[rng.randrange(start, len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def overwrite(path, rng, n, start=PAGE):
    content = bytearray(path.read_bytes())
    for _ in range(n):
        at = rng.randrange(start, len(content) - PAGE)
        content[at : at + PAGE] = rng.randbytes(PAGE)
    path.write_bytes(content)


def cut(path, rng, n):
    for _ in range(n):
        with path.open("r+b") as file:
            file.truncate(rng.randrange(2 * PAGE, path.stat().st_size))


def sql(*statements):
    def act(path, rng, n):
        with sqlite3.connect(path) as store:
            for _ in range(n):
                for statement in statements:
                    store.execute(statement, {"one": rng.randrange(1, 200)})
        store.close()

    return act


DAMAGE = {
    "one bit flipped": (flip, 1),
    "ten bits flipped": (flip, 10),
    "a hundred bits flipped": (flip, 100),
    "a page overwritten": (overwrite, 1),
    "five pages overwritten": (overwrite, 5),
    "the file cut short": (cut, 1),
    "outcomes overwritten with garbage": (
        sql("UPDATE outcome SET head=randomblob(40) WHERE id=:one"), 5,
    ),
    "rows overwritten with garbage": (sql("UPDATE unit SET rows=randomblob(40) WHERE id=:one"), 5),
    "outcomes swapped": (
        sql("UPDATE outcome SET head=(SELECT head FROM outcome WHERE id=:one+1) WHERE id=:one"), 3,
    ),
    "outcomes deleted": (sql("DELETE FROM outcome WHERE id=:one"), 5),
    "units' frames changed": (sql("UPDATE unit SET frame=frame+1 WHERE id=:one"), 2),
    "the index of keys deleted": (sql("DELETE FROM outcome_key"), 1),
    "places of units moved": (
        sql("UPDATE place SET unit=unit+1 WHERE position=:one"), 3,
    ),
}  # fmt: skip


def damaged_copy(arena, name, rng):
    """A complete run whose store is damaged and whose frames have to be written again.

    Half of them have lost their units too, so that all outcomes are read.
    """
    run_dir = arena.new_run()
    shutil.copytree(arena.folder / "whole", run_dir)
    shutil.rmtree(run_dir / "results")
    store = run_dir / "store.sqlite"
    act, n = DAMAGE[name]
    act(store, rng, n)
    if rng.random() < 0.5:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(store)) as file:
            file.execute("DELETE FROM place")
            file.execute("DELETE FROM unit")
            file.commit()
    return run_dir


def repair(run_dir, capsys):
    capsys.readouterr()
    code = cli.main(["runs", "repair", str(run_dir)])
    captured = capsys.readouterr()
    return Ended(code, captured.out + captured.err)


def go_on(arena, run_dir):
    """The command, and what it advises where a bit made it take a server for another one."""
    ended = arena.run(run_dir)
    if ended.code == EXIT_USAGE:
        assert "Continue with --accept-server-change" in ended.words, ended
        ended = arena.run(run_dir, "--accept-server-change")
    return ended


def settled(arena):
    """Return the requests sent, once the server has met those in flight at the command's end."""
    while True:
        found = arena.sent()
        time.sleep(0.05)
        if arena.sent() == found:
            return found


def numbers(run_dir):
    """Head and arrays of each outcome by key."""
    return {key: row[-2:] for key, row in outcomes(run_dir).items()}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", DAMAGE)
def test_no_damage_becomes_a_number_and_what_can_be_read_is_kept(arena, note, capsys, name):
    rng, before = random.Random(name), numbers(arena.folder / "whole")
    exits, n_lost, n_sent, n_refused = set(), 0, 0, 0
    for _ in range(N_RANDOM):
        run_dir = damaged_copy(arena, name, rng)
        with arena.serving():
            log = arena.sent()
            ended = go_on(arena, run_dir)
            exits.add(str(ended.code))
            assert "Traceback" not in ended.words
            if ended.code != EXIT_COMPLETE:
                assert ended.code == EXIT_FAILED, ended
                assert "`orchestrator runs repair " in ended.words, ended
                n_refused += 1
                log = settled(arena)
                repaired = repair(run_dir, capsys)
                assert repaired.code == EXIT_COMPLETE, repaired
                kept = numbers(run_dir)
                assert all(before[key] == row for key, row in kept.items())
                n_lost += len(before) - len(kept)
                again = go_on(arena, run_dir)
                assert again.code == EXIT_COMPLETE
                assert (arena.sent() - log).total() <= len(before) - len(kept)
            n_sent += (arena.sent() - log).total()
        # A bit of what is known of the server makes it another one, which the rows then say.
        found, expected = (
            {name: frame.drop("server_epoch", strict=False) for name, frame in of_run.items()}
            for of_run in (frames(run_dir), arena.expected)
        )
        same_frames(found, expected)
    said = "… damaged … `orchestrator runs repair RUN` keeps the rest" if n_refused else "nothing"
    note(
        name, times=N_RANDOM, exit=", ".join(sorted(exits)), said=said,
        recorded=N_RANDOM * len(before), lost=n_lost, asked_again=n_sent,
        then=f"{n_refused} refused and repaired; same command: frames equal",
    )  # fmt: skip
