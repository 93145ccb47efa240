"""A server that is replaced while a run goes on: by the same name, with something else behind it.

Spoken to as an endpoint of unknown kind, whose word nobody takes, so that it is probed.
"""

import time

import pytest

from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE
from tests.chaos.arena import LONG_S, Arena, end_of, outcomes, same_frames
from tests.e2e.runs import MODELS, frames

SECTION = "The server"
SAID = "its server behaves differently than before: …"
SLOW = {"route": "chat", "latency_s": 0.15}
N = 40
IN_FLIGHT = 4
# What stands at the address after the restart, and how the user is told.
REPLACED = {
    "fewer alternatives": ({"rules": [SLOW], "top_logprobs": 5}, MODELS, "cap was 20, is 5"),
    "another model behind the name": (
        {"rules": [SLOW], "seed": 7}, MODELS, "log-probabilities of the same prompts differ by",
    ),
    "another name for its model": ({"rules": [SLOW]}, MODELS[1:], "the server has no model"),
}  # fmt: skip


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    methods = [{"kind": "answers", "top_logprobs": 20, "answer": {"max_tokens": 8}}]
    return Arena(
        tmp_path_factory.mktemp("arena"), n=N, backend="openai", methods=methods,
        limits={"max_in_flight": IN_FLIGHT, "dead_after_s": 20.0},
    )  # fmt: skip


def until_recorded(process, run_dir, n):
    """Wait until `n` outcomes are on the disk: the server was probed, and is being asked."""
    deadline = time.monotonic() + LONG_S
    while process.poll() is None and len(outcomes(run_dir)) < n:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def replaced(arena, name, gap_s):
    """A run whose server is another one from some time on, and how it ended."""
    rules, models, words = REPLACED[name]
    run_dir = arena.new_run()
    with arena.serving([SLOW]):
        process = arena.start(run_dir)
        until_recorded(process, run_dir, 24)
    time.sleep(gap_s)
    with arena.serving(rules, models=models):
        ended = end_of(process)
    assert ended.code == EXIT_USAGE, ended
    assert words in ended.words
    recorded = len(outcomes(run_dir))
    with arena.serving():
        assert arena.run(run_dir).code == EXIT_COMPLETE
    return run_dir, recorded


@pytest.mark.parametrize("name", REPLACED)
def test_a_server_that_comes_back_as_another_stops_the_run_and_nothing_is_mixed(arena, note, name):
    run_dir, recorded = replaced(arena, name, gap_s=0.5)
    same_frames(frames(run_dir), arena.expected)
    said = SAID if "was" in REPLACED[name][2] else f"… {REPLACED[name][2]} …"
    note(f"restarted mid-run with {name}", times=1, exit="2", said=said, recorded=recorded,
         then="same command, right server: frames equal")  # fmt: skip


def test_a_server_that_is_swapped_at_once_is_noticed_by_the_connections_that_break(arena, note):
    name = "another model behind the name"
    run_dir, recorded = replaced(arena, name, gap_s=0.0)
    (found, expected) = (all_frames["answers"] for all_frames in (frames(run_dir), arena.expected))
    n_mixed = found.height - found.join(expected, on=["model", "item", "text"], how="semi").height
    # Of each model, at most what was in flight.
    assert n_mixed <= len(MODELS) * IN_FLIGHT
    note(f"replaced at once by {name}", times=1, exit="2", said=SAID, recorded=recorded,
         then=f"{n_mixed} answers are from the other model")  # fmt: skip
