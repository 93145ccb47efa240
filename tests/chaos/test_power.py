"""Power cuts, played from a record of every write and sync; and a wall clock that jumps."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import EXIT_COMPLETE
from orchestrator.store import Store
from tests.chaos.arena import FULL, LONG_S, Arena, Oracle, end_of, until_recorded, until_sent
from tests.chaos.power import Disk, changes
from tests.e2e.runs import ROOT
from tests.store.helpers import choice, key, outcomes_of

SECTION = "The file"
N_CUTS = 40 if FULL else 4
N_STORE_CUTS = 400 if FULL else 60
DAY_S = 24 * 3600

WRITER = """
import sys, time
from pathlib import Path
from orchestrator.store import Store
from tests.store.helpers import key, put

folder = Path(sys.argv[1])
with Store.open(folder / "store.sqlite") as store, (folder / "marks").open("wb", 0) as marks:
    plan = store.open_plan(b"p" * 16, 10**6)
    for number in range(1200):
        put(store, number)
        store.put_unit(key(number), plan, number, 0, "frame", [(number,)])
        if number % 40 == 39:
            store.flush()
            # What was acknowledged, in the same record as the writes and syncs.
            marks.write(number.to_bytes(4, "little"))
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("cc is absent")
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    source = str(Path(__file__).with_name("shim.c"))
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library), source, "-ldl",
         "-lpthread"], check=True,
    )  # fmt: skip
    return library


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    return Arena(tmp_path_factory.mktemp("arena"), n=30, limits={"max_in_flight": 6})


def recorded(shim, log, folder):
    return {"LD_PRELOAD": str(shim), "CHAOS_LOG": str(log), "CHAOS_BELOW": str(folder)}


def leave(files, folder, run_dir):
    """Write the files that a power cut leaves into a folder of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    for path, content in files.items():
        target = folder / Path(path).relative_to(run_dir)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def test_what_was_acknowledged_survives_a_power_cut_at_any_moment(shim, note, tmp_path):
    folder, log = tmp_path / "written", tmp_path / "log"
    folder.mkdir()
    subprocess.run(
        [sys.executable, "-c", WRITER, str(folder)], cwd=ROOT, check=True, timeout=LONG_S,
        env={**os.environ, **recorded(shim, log, folder)},
    )  # fmt: skip
    history = changes(log)
    rng = random.Random(9)
    cuts = set(rng.sample(range(len(history)), min(N_STORE_CUTS, len(history))))
    disk, acknowledged, n_checked, n_kept = Disk(), -1, 0, 0
    for place, change in enumerate(history):
        disk.change(change)
        if change.path.endswith("marks") and change.kind == "W":
            acknowledged = int.from_bytes(change.data, "little")
        if place not in cuts:
            continue
        leave(disk.cut(rng), tmp_path / "cut", folder)
        n = number_kept(tmp_path / "cut" / "store.sqlite")
        assert n > acknowledged, f"{n} of {acknowledged + 1} acknowledged after change {place}"
        n_checked += acknowledged >= 0
        n_kept += acknowledged + 1
    assert n_checked > N_STORE_CUTS / 2
    note("power cut while writing to a store", times=len(cuts), exit="", said="", recorded=n_kept,
         lost=0, asked_again=0, then="all acknowledged outcomes are there, in order")  # fmt: skip


def number_kept(path):
    """Count the outcomes in a row that are kept, each as it was put, with their units."""
    if not path.exists():
        return 0
    with Store.open(path) as store:
        store.check()
        found = outcomes_of(store, (key(number) for number in range(1200)))
        plan = store.current_plan
        units = [] if plan is None else list(store.iter_rows(plan, "frame"))
    assert all(found[key(number)] == choice(number) for number in range(len(found)))
    assert [unit.rows for unit in units] == [[(number,)] for number in range(len(units))]
    assert len(units) <= len(found)
    return len(units)


@pytest.mark.timeout(900)
def test_a_run_goes_on_after_a_power_cut_at_any_moment(shim, arena, note, tmp_path):
    rng, log, run_dir = random.Random(4), tmp_path / "log", tmp_path / "run"
    with arena.serving([{"latency_s": [0.01, 0.05]}]) as url:
        process = arena.start(run_dir, **recorded(shim, log, run_dir))
        until_sent(process, url, 100)
        process.kill()
        end_of(process)
        ended = end_of(arena.start(run_dir, **recorded(shim, log, run_dir)))
        assert ended.code == EXIT_COMPLETE, ended
    history = changes(log)
    # The end too, when frames are written and the log is moved into the file.
    cuts = sorted(
        {*rng.sample(range(len(history)), N_CUTS - 2), len(history) - 20, len(history) - 1}
    )
    disk, n_recorded, n_lost, n_again = Disk(), 0, 0, 0
    for place, change in enumerate(history):
        disk.change(change)
        if place not in cuts:
            continue
        left = arena.new_run()
        leave(disk.cut(rng), left, run_dir)
        oracle = Oracle(arena, left)
        oracle.look()
        n_recorded += oracle.n_recorded
        with arena.serving():
            ended = arena.run(left)
        assert ended.code == EXIT_COMPLETE, f"cut after change {place} of {len(history)}: {ended}"
        oracle.check()
        n_lost, n_again = n_lost + len(oracle.lost), n_again + len(oracle.asked_again)
    note("power cut during a run", times=len(cuts), exit="", said="",
         recorded=n_recorded, lost=n_lost, asked_again=n_again,
         then="same command: frames equal")  # fmt: skip


@pytest.mark.parametrize("jump_s", [3 * DAY_S, -3 * DAY_S, -50 * 365 * DAY_S])
def test_a_wall_clock_that_jumps(shim, arena, note, jump_s):
    run_dir = arena.new_run()
    oracle = Oracle(arena, run_dir)
    clock = {"LD_PRELOAD": str(shim), "CHAOS_CLOCK": str(jump_s)}
    with arena.serving([{"latency_s": 0.02}, {"fault": "503", "every": 9}]) as url:
        process = arena.start(run_dir, **clock)
        until_sent(process, url, 60)
        until_recorded(process, run_dir)
        process.kill()
        end_of(process)
        oracle.look()
        recorded_then = oracle.n_recorded
        assert recorded_then
        ended = end_of(arena.start(run_dir, **clock))
        assert ended.code == EXIT_COMPLETE, ended
        oracle.check()
    note(f"wall clock set back and forth by {jump_s // DAY_S:,} days, and kill -9", times=1,
         exit="0", said="complete", recorded=recorded_then, lost=len(oracle.lost),
         asked_again=len(oracle.asked_again), then="frames equal")  # fmt: skip
