"""A writer that is killed at any moment loses nothing that it was told is on the disk."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.store import Store
from tests.store.helpers import choice, key, outcomes_of

WRITER = """
import sys
from pathlib import Path
from orchestrator.store import Store
from tests.store.helpers import key, put

store = Store.open(Path(sys.argv[1]))
plan = store.open_plan(b"p" * 16, 10**6)
start = store.done_bitmap(plan, 10**6).count(1)
for number in range(start, 10**6):
    put(store, number)
    store.put_unit(key(number), plan, number, 0, "frame", [(number,)])
    if number % 37 == 0:
        store.flush()
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()
"""


def write_until_killed(path: Path, lines: int) -> int:
    """The last number that the child was told is on the disk."""
    repository = Path(__file__).parents[2]
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=repository) as child:
        assert child.stdout is not None
        last = -1
        for _ in range(lines):
            last = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        # What was still in the pipe was acknowledged too.
        rest = child.stdout.read().split("\n")[:-1]
    return int(rest[-1]) if rest else last


def check_what_is_there(path: Path, last: int) -> int:
    """Count the units; all are as they were put, and no acknowledged one is missing."""
    with Store.open(path) as store:
        store.check()
        plan = store.current_plan
        assert plan is not None
        found = [unit.rows[0][0] for unit in store.iter_rows(plan, "frame")]
        outcomes = outcomes_of(store, (key(number) for number in range(len(found) + 100)))
    assert found == list(range(len(found)))
    assert len(found) > last
    assert all(outcomes[key(number)] == choice(number) for number in found)
    return len(found)


def test_killed_writer_loses_nothing_acknowledged(path: Path) -> None:
    check_what_is_there(path, write_until_killed(path, 5))


@pytest.mark.slow
def test_writer_killed_again_and_again_goes_on_where_it_was(path: Path) -> None:
    rng = random.Random(3)
    n = 0
    for _ in range(12):
        last = write_until_killed(path, rng.randint(1, 40))
        now = check_what_is_there(path, last)
        assert now > n
        n = now
