"""The process is ended at random moments, by every signal that can end it."""

import random
import signal
import time

import pytest

from orchestrator.errors import EXIT_COMPLETE, EXIT_INTERRUPTED
from tests.chaos.arena import FULL, Arena, Oracle, end_of, until_sent

SECTION = "The process"
N_KILLS = 100 if FULL else 10
N_STOPS = 6 if FULL else 2
# Slow enough that a call meets several commits, which come each 100 ms.
RULES = [{"latency_s": [0.02, 0.1]}]


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    n = 400 if FULL else 40
    return Arena(tmp_path_factory.mktemp("arena"), n=n, limits={"max_in_flight": 6})


def strike(arena, oracle, run_dir, url, rng, numbers):
    """Start the command, send it signals after some requests; how it ended."""
    process = arena.start(run_dir)
    until_sent(process, url, rng.randint(1, 30))
    # Twice as long as a commit waits: about half of the calls end with one behind them.
    time.sleep(rng.random() * 0.2)
    for place, number in enumerate(numbers):
        if place:
            time.sleep(0.01 + rng.random() * 0.05)
        process.send_signal(number)
    ended = end_of(process)
    oracle.look()
    return ended


def go_to_the_end(arena, oracle, run_dir):
    ended = arena.run(run_dir)
    assert ended.code == EXIT_COMPLETE, ended
    oracle.check()


@pytest.mark.timeout(1800)
def test_kill_at_random_moments(arena, note):
    rng, run_dir = random.Random(5), arena.new_run()
    oracle = Oracle(arena, run_dir)
    with arena.serving(RULES) as url:
        for n in range(N_KILLS):
            ended = strike(arena, oracle, run_dir, url, rng, [signal.SIGKILL])
            assert ended.code == -signal.SIGKILL, f"it ended before kill {n + 1}: {ended}"
        recorded = oracle.n_recorded
        go_to_the_end(arena, oracle, run_dir)
    assert recorded > N_KILLS
    note(
        "kill -9 at a random moment", times=N_KILLS, exit="killed", said="nothing",
        recorded=recorded, lost=len(oracle.lost), asked_again=len(oracle.asked_again),
        then="same command: frames equal",
    )  # fmt: skip


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("SIGTERM", [signal.SIGTERM]),
        ("Ctrl-C once", [signal.SIGINT]),
        ("Ctrl-C twice", [signal.SIGINT, signal.SIGINT]),
        ("Ctrl-C five times", [signal.SIGINT] * 5),
        ("Ctrl-C, then kill -9", [signal.SIGINT, signal.SIGKILL]),
    ],
)
def test_signals_at_random_moments(arena, note, name, numbers):
    rng, run_dir = random.Random(name), arena.new_run()
    oracle = Oracle(arena, run_dir)
    codes, words = set(), set()
    with arena.serving(RULES) as url:
        for _ in range(N_STOPS):
            ended = strike(arena, oracle, run_dir, url, rng, numbers)
            codes.add(ended.code)
            words.add(ended.words)
            assert "Traceback" not in ended.words, ended
        recorded = oracle.n_recorded
        go_to_the_end(arena, oracle, run_dir)
    if signal.SIGKILL not in numbers:
        assert codes == {EXIT_INTERRUPTED}, words
        assert all("resume with the same command" in said for said in words), words
    note(
        name, times=N_STOPS, exit=", ".join(map(str, sorted(codes))),
        said="interrupted; all answers are saved in …; resume with the same command",
        recorded=recorded, lost=len(oracle.lost), asked_again=len(oracle.asked_again),
        then="same command: frames equal",
    )  # fmt: skip
