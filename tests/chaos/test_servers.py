"""Servers that fail in every way: what becomes of the run, what is said, what is asked how often.

A fault of the moment strikes the first attempts of each request, and the run must end as if nothing
had been; or it lasts, and then the run must end in bounded time, say so, and go on when the server
is well again. A deterministic failure must be asked once, and never again.
"""

import re
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from orchestrator.errors import EXIT_COMPLETE, EXIT_PARTIAL, EXIT_USAGE
from tests.chaos.arena import FULL, Arena, Oracle, end_of, same_frames, until_sent
from tests.e2e.runs import MODELS, frames, stats

SECTION = "The server"
MAX_ATTEMPTS = 3
# A deadline that no reply misses on a busy machine, and one for replies that never come.
TIMEOUT_S, SHORT_S = 60.0, 2.0
# Attempts, waits between them, and what the machine is busy with besides; less than one deadline.
BOUND_S = 55.0
N_RESTARTS = 6 if FULL else 2
# Whose requests a fault strikes: pattern of the model's name by what is asked of it.
ANSWERS = {"answers": "*0.6"}
JUDGMENTS = {"judgments": "*1.0"}


@dataclass(frozen=True)
class Fault:
    """A fault and the cause it must be told by."""

    rule: dict[str, Any]
    cause: str
    whose: dict[str, str] = field(default_factory=lambda: {**ANSWERS, **JUDGMENTS})


MOMENTARY = {
    "connection closed before any reply": Fault({"fault": "close"}, "dead_server"),
    "connection reset before any reply": Fault({"fault": "reset"}, "dead_server"),
    "connection reset after the head": Fault({"fault": "reset_head"}, "dead_server"),
    "connection reset in the body": Fault({"fault": "reset_body"}, "dead_server"),
    "connection closed in the body": Fault({"fault": "cut"}, "dead_server"),
    "no reply": Fault({"fault": "hang"}, "timeout"),
    "half a head, then nothing": Fault({"fault": "hang_head"}, "timeout"),
    "half a body, then nothing": Fault({"fault": "hang_body"}, "timeout"),
    "an endless trickle of bytes": Fault({"fault": "drip"}, "timeout"),
    "429 without Retry-After": Fault({"fault": "429"}, "rate_limited"),
    "429 with Retry-After": Fault({"fault": "429", "retry_after_s": 0.3}, "rate_limited"),
    "503 without Retry-After": Fault({"fault": "503"}, "server_error"),
    "503 with Retry-After": Fault({"fault": "503", "retry_after_s": 0.3}, "server_error"),
    "500": Fault({"fault": "500"}, "server_error"),
    "200 with an error in the body": Fault({"fault": "error_200"}, "server_error"),
    "JSON cut short": Fault({"fault": "truncated"}, "unparseable"),
    "malformed JSON": Fault({"fault": "malformed"}, "unparseable"),
    "a finish reason that reports a server abort": Fault({"fault": "abort"}, "server_error"),
}
LASTING = {
    "400, of moderation": Fault(
        {"fault": "status", "status": 400, "message": "flagged"}, "moderation"
    ),
    "too few log-probabilities": Fault({"fault": "fewer_logprobs"}, "unparseable"),
    "too many log-probabilities": Fault({"fault": "more_logprobs"}, "unparseable"),
    "a body declared as one terabyte": Fault({"fault": "huge"}, "unparseable"),
    "an answer cut by a content filter": Fault({"fault": "withheld"}, "no_answer", ANSWERS),
}
OF_THE_SERVER = {
    "400": Fault({"fault": "status", "status": 400}, "bad_request"),
    "JSON of another shape": Fault({"fault": "wrong_types"}, "unparseable"),
    "401": Fault({"fault": "status", "status": 401}, "unauthorised"),
    "402": Fault({"fault": "status", "status": 402}, "no_credit"),
    "403": Fault({"fault": "status", "status": 403}, "unauthorised"),
    "404, as for an unknown model": Fault({"fault": "status", "status": 404}, "not_found"),
    "308": Fault({"fault": "status", "status": 308}, "redirected"),
    "null for a finish reason": Fault({"fault": "unsaid"}, "unparseable", ANSWERS),
    "Infinity for log-probabilities": Fault({"fault": "infinity"}, "no_logprobs"),
    "log-probabilities above zero": Fault({"fault": "positive"}, "no_logprobs"),
    "no log-probabilities": Fault({"fault": "no_logprobs"}, "no_logprobs", ANSWERS),
    "no log-probabilities after two replies": Fault(
        {"fault": "no_logprobs", "after": 2}, "no_logprobs", ANSWERS
    ),
    "NaN for log-probabilities": Fault({"fault": "nan"}, "no_logprobs", JUDGMENTS),
    "null for log-probabilities": Fault({"fault": "null"}, "no_logprobs", JUDGMENTS),
}
"""What lasts until somebody mends the server, or its account."""


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    limits = {
        "max_in_flight": 8, "max_attempts": MAX_ATTEMPTS, "timeout_s": TIMEOUT_S,
        "dead_after_s": 1.0,
    }  # fmt: skip
    return Arena(tmp_path_factory.mktemp("arena"), n=6, limits=limits)


def causes(run_dir):
    """Causes of failed rows, of all frames."""
    found = set()
    for name, frame in frames(run_dir).items():
        if name != "items":
            found |= set(frame.filter(frame["status"] != "ok")["cause"])
    return found


def bounded(arena, run_dir, *more):
    started = time.monotonic()
    ended = arena.run(run_dir, *more)
    assert time.monotonic() - started < BOUND_S
    assert "Traceback" not in ended.words
    return ended


@pytest.mark.parametrize("name", MOMENTARY)
def test_what_passes_leaves_no_trace_and_what_lasts_fails_its_own_units(arena, note, name):
    fault, run_dir = MOMENTARY[name], arena.new_run()
    oracle = Oracle(arena, run_dir)
    passing = {"model": "*0.3", **fault.rule, "first": 1}
    deadline = SHORT_S if fault.cause == "timeout" else TIMEOUT_S
    with arena.serving([passing, {"model": "*0.6", **fault.rule}]) as url:
        ended = bounded(arena, run_dir, "--set", f"limits.timeout_s={deadline}")
        struck = sum(stats(url)["faults"].values())
    assert ended.code == EXIT_PARTIAL, ended
    answers = frames(run_dir)["answers"]
    status = {model: set(rows["status"]) for (model,), rows in answers.group_by("model")}
    assert status == {"weak": {"ok"}, "strong": {"ok"}, "mid": {"failed"}}
    assert causes(run_dir) == {fault.cause}
    oracle.look()
    recorded = oracle.n_recorded
    with arena.serving():
        assert arena.run(run_dir).code == EXIT_COMPLETE
    oracle.check()
    note(name, times=struck, exit="3", said=shown(ended), recorded=recorded,
         lost=len(oracle.lost), asked_again=len(oracle.asked_again),
         then="same command: frames equal")  # fmt: skip


@pytest.mark.parametrize(
    ("name", "whose"),
    [(name, whose) for name, fault in OF_THE_SERVER.items() for whose in fault.whose],
)
def test_what_lasts_until_a_server_is_mended_is_asked_once_and_again_by_the_next_call(
    arena, note, name, whose
):
    fault, run_dir = OF_THE_SERVER[name], arena.new_run()
    oracle = Oracle(arena, run_dir)
    before = arena.sent()
    with arena.serving([{"model": fault.whose[whose], **fault.rule}]) as url:
        ended = bounded(arena, run_dir)
        struck = sum(stats(url)["faults"].values())
    assert ended.code == EXIT_PARTIAL, ended
    assert causes(run_dir) == {fault.cause}
    assert set((arena.sent() - before).values()) == {1}
    oracle.look()
    recorded = oracle.n_recorded
    with arena.serving():
        assert arena.run(run_dir).code == EXIT_COMPLETE
    oracle.check()
    note(f"{name}: {whose}", times=struck, exit="3", said=shown(ended), recorded=recorded,
         lost=len(oracle.lost), asked_again=len(oracle.asked_again),
         then="same command: frames equal")  # fmt: skip


def shown(ended):
    """Return the failed units by cause, as the command prints them."""
    n_failed = re.search(r"orchestrator: \d+ units? failed", ended.words)
    table = re.search(r"failed units ((?:· \w+ \d+ ?)+)", ended.words)
    assert n_failed, ended.words
    assert table, ended.words
    return f"{n_failed[0]} {table[1]}".strip()


@pytest.mark.parametrize(
    ("name", "whose"), [(name, whose) for name, fault in LASTING.items() for whose in fault.whose]
)
def test_a_deterministic_failure_is_asked_once_and_never_again(arena, note, name, whose):
    fault, run_dir = LASTING[name], arena.new_run()
    oracle = Oracle(arena, run_dir)
    before = arena.sent()
    with arena.serving([{"model": fault.whose[whose], **fault.rule}]) as url:
        ended = bounded(arena, run_dir)
        struck = sum(stats(url)["faults"].values())
    assert ended.code == EXIT_PARTIAL, ended
    assert causes(run_dir) == {fault.cause}
    assert set((arena.sent() - before).values()) == {1}
    oracle.look()
    recorded = oracle.n_recorded
    with arena.serving():
        before = arena.sent()
        assert arena.run(run_dir).code == EXIT_PARTIAL
        assert arena.sent() == before
        oracle.look()
        fresh = run_dir.with_name(f"{run_dir.name}-fresh")
        assert arena.run(fresh).code == EXIT_COMPLETE
    same_frames(frames(fresh), arena.expected)
    assert not oracle.lost
    assert not oracle.asked_again
    note(f"{name}: {whose}", times=struck, exit="3", said=shown(ended), recorded=recorded,
         lost=len(oracle.lost), asked_again=len(oracle.asked_again),
         then="kept as failures; --fresh requests them: frames equal")  # fmt: skip


def test_a_reply_that_streams_without_a_length_is_refused_at_the_bound(arena, note):
    run_dir = arena.new_run()
    # Of the model "mid" alone.
    with arena.serving([{"model": "*0.6", "route": "chat", "fault": "flood", "first": 1}]) as url:
        ended = arena.run(run_dir)
        struck = sum(stats(url)["faults"].values())
    assert ended.code == EXIT_PARTIAL, ended
    assert causes(run_dir) == {"unparseable"}
    # Asked once: it would be as long the next time.
    assert struck == 6
    messages = frames(run_dir)["answers"]["message"].drop_nulls().unique().to_list()
    assert messages
    assert all("larger than 64 MiB" in message for message in messages), messages
    note("an endless body of undeclared length", times=struck, exit="3",
         said=shown(ended))  # fmt: skip


def test_nobody_listens(arena, note):
    run_dir = arena.new_run()
    ended = bounded(arena, run_dir)
    assert ended.code == EXIT_PARTIAL, ended
    assert causes(run_dir) == {"dead_server"}
    oracle = Oracle(arena, run_dir)
    with arena.serving():
        assert arena.run(run_dir).code == EXIT_COMPLETE
    oracle.check()
    note("no server listens", times=1, exit="3", said=shown(ended), recorded=0, lost=0,
         asked_again=0, then="same command: frames equal")  # fmt: skip


def test_another_model_is_served_there(arena, note):
    run_dir = arena.new_run()
    with arena.serving(models=(*MODELS[:3], "another")):
        ended = bounded(arena, run_dir)
    oracle = Oracle(arena, run_dir)
    oracle.look()
    recorded = oracle.n_recorded
    # Before anything is paid for: who has to act is the user.
    assert ended.code == EXIT_USAGE, ended
    assert "has no model" in ended.words
    with arena.serving():
        assert arena.run(run_dir).code == EXIT_COMPLETE
    oracle.check()
    note("another model is served there", times=1, exit="2", said="the server has no model …; "
         "did you mean …", recorded=recorded, lost=len(oracle.lost),
         asked_again=len(oracle.asked_again), then="same command: frames equal")  # fmt: skip


def test_restarts_in_mid_run(arena, note):
    run_dir = arena.new_run()
    oracle = Oracle(arena, run_dir)
    with arena.serving([{"latency_s": 0.05}]) as url:
        process = arena.start(run_dir, "--set", "limits.dead_after_s=30")
        until_sent(process, url, 5)
    for _ in range(N_RESTARTS):
        time.sleep(0.3)
        with arena.serving([{"latency_s": 0.05}]) as url:
            until_sent(process, url, 5)
    oracle.look()
    with arena.serving():
        ended = end_of(process)
    assert ended.code == EXIT_COMPLETE, ended
    oracle.check()
    note("restarts mid-run", times=N_RESTARTS + 1, exit="0", said="complete",
         recorded=oracle.n_recorded, lost=len(oracle.lost), asked_again=len(oracle.asked_again),
         then="frames equal")  # fmt: skip
