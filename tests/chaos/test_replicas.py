"""One bad server of two of a judge, with real servers: it costs no unit, whatever it does and when.

Every kind and time on a faked clock stands in `tests/runner/servers/test_bad_replica.py`.
"""

import contextlib
import time

import pytest

from orchestrator.errors import EXIT_COMPLETE
from tests.chaos.arena import FULL, Arena, Oracle, end_of, free_port, until_sent
from tests.e2e.runs import MODELS, stats

SECTION = "The server"
N = 40
IN_FLIGHT = 6
SLOW = {"route": "choose", "latency_s": 0.02}
FAULTS: dict[str, dict[str, object]] = {
    "400": {"fault": "status", "status": 400},
    "401": {"fault": "status", "status": 401},
    "404": {"fault": "status", "status": 404},
    "429": {"fault": "429"},
    "500": {"fault": "500"},
    "503 with Retry-After": {"fault": "503", "retry_after_s": 0.3},
    "NaN for log-probabilities": {"fault": "nan"},
    "JSON of another shape": {"fault": "wrong_types"},
    "malformed JSON": {"fault": "malformed"},
    "connection closed before any reply": {"fault": "close"},
    "connection reset before any reply": {"fault": "reset"},
    "no reply": {"fault": "hang"},
}
# After how many judgments of its own the bad server goes bad.
TIMES = {"from the first contact": 0, "mid-run": 20} if FULL else {"from the first contact": 0}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """An arena whose judge has two servers, and the port of the second."""
    ports = free_port(), free_port()
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    models: dict[str, dict[str, object]] = {
        name: {"base_url": urls[0], "backend": "fake", "model": model}
        for name, model in zip(("weak", "mid", "strong"), MODELS[:3], strict=True)
    }
    models["judge"] = {"base_url": urls, "backend": "fake", "model": MODELS[3]}
    limits = {"max_in_flight": IN_FLIGHT, "silent_after_s": 1.0, "timeout_s": 30.0}
    folder = tmp_path_factory.mktemp("arena")
    return Arena(folder, n=N, port=ports[0], models=models, limits=limits), ports[1]


@pytest.mark.parametrize("when", TIMES)
@pytest.mark.parametrize("name", FAULTS)
def test_one_bad_server_of_two_costs_no_unit(two, note, name, when):
    arena, port = two
    run_dir = arena.new_run()
    oracle = Oracle(arena, run_dir)
    bad = [{"route": "choose", **FAULTS[name], "after": TIMES[when]}, SLOW]
    with arena.serving([SLOW]), arena.serving(bad, port=port) as url:
        started = time.monotonic()
        ended = arena.run(run_dir)
        took_s = time.monotonic() - started
        struck = sum(stats(url)["faults"].values())
    assert ended.code == EXIT_COMPLETE, ended
    assert "Traceback" not in ended.words
    # What it had when it went bad, and trials; a busy machine is late with everything.
    assert 0 < struck <= 6 * IN_FLIGHT + took_s
    oracle.check()
    note(f"one of two servers of a judge: {name}, {when}", times=struck, exit="0", said="complete",
         recorded=oracle.n_recorded, lost=len(oracle.lost), asked_again=len(oracle.asked_again),
         then="frames equal")  # fmt: skip


def test_a_bad_server_that_is_well_again_has_its_share(two):
    arena, port = two
    run_dir = arena.new_run()
    slow = {"route": "choose", "latency_s": 0.3}
    with contextlib.ExitStack() as stack:
        stack.enter_context(arena.serving([slow]))
        with arena.serving([{"route": "choose", "fault": "500"}, slow], port=port) as url:
            process = arena.start(run_dir)
            until_sent(process, url, 3)
        # It is gone for a moment, as one that is mended is, and sought.
        with arena.serving([slow], port=port) as url:
            ended = end_of(process)
            n_after = stats(url)["total"]
    assert ended.code == EXIT_COMPLETE, ended
    assert n_after > 0


@pytest.mark.parametrize("rules", [[{"fault": "503"}], [{"fault": "429"}]], ids=["503", "429"])
def test_a_server_that_refuses_everything_for_a_while_is_waited_for(arena, note, rules):
    run_dir = arena.new_run()
    oracle = Oracle(arena, run_dir)
    slow = {"latency_s": 0.05}
    with arena.serving([slow]) as url:
        process = arena.start(run_dir)
        until_sent(process, url, 5)
    with arena.serving(rules) as url:
        until_sent(process, url, 1)
        # Five attempts with their waits would be over by then.
        time.sleep(30.0 if FULL else 8.0)
        struck = sum(stats(url)["faults"].values())
    with arena.serving():
        ended = end_of(process)
    assert ended.code == EXIT_COMPLETE, ended
    oracle.check()
    status = rules[0]["fault"]
    note(f"{status} to everything for a while, after a restart", times=struck, exit="0",
         said="waiting for …, up to 600 s (limits.dead_after_s): …",
         recorded=oracle.n_recorded, lost=len(oracle.lost),
         asked_again=len(oracle.asked_again), then="frames equal")  # fmt: skip
