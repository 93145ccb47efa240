"""Servers whose machines vanish from the network: no reset, no refusal, no packet at all."""

import contextlib
import json
import signal
import subprocess
import time

import pytest

from orchestrator.errors import EXIT_COMPLETE, EXIT_INTERRUPTED
from tests.e2e.runs import MODELS, ROOT, command, frames, write_recipe
from tests.nodes import nodes

pytestmark = [pytest.mark.slow, pytest.mark.namespaces, pytest.mark.timeout(300)]
# In which it is noticed that a server has gone or is back, and what a busy machine adds.
BOUND_S = 30.0 + 15.0
RULES = json.dumps([{"latency_s": 0.05}])
JUDGED = 3 * 400


@contextlib.contextmanager
def served(n):
    """Nodes with a server of all models each."""
    names = [word for model in MODELS for word in ("--model", model)]
    with nodes(n) as made, contextlib.ExitStack() as stack:
        for node in made:
            server = stack.enter_context(node.serve("--rules", RULES, *names))
            stack.callback(server.kill)
        yield made


@contextlib.contextmanager
def running(recipe, run_dir):
    process = subprocess.Popen(
        command(recipe, run_dir), cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def status(run_dir):
    with contextlib.suppress(OSError, ValueError):
        return json.loads((run_dir / "status.json").read_text())["values"]
    return {"requests_sent": 0, "units_done": 0, "models": []}


def until(run_dir, condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition(status(run_dir)):
        assert time.monotonic() < end, status(run_dir)
        time.sleep(0.1)


def log(run_dir):
    return (run_dir / "log.jsonl").read_text()


def is_judging(values):
    return any(one["name"] == "judge" and one["done"] > 100 for one in values["models"])


def is_down(values):
    return any(one["state"] == "down" for one in values["models"])


def judge_at(recipe, urls, **changes):
    """The judge at several addresses."""
    made = json.loads(recipe.read_text())
    made["models"]["judge"] |= {"base_url": urls, **changes}
    recipe.write_text(json.dumps(made))
    return recipe


def test_a_replica_that_vanishes_loses_nothing_and_holds_nobody_up_for_long(tmp_path):
    run_dir = tmp_path / "run"
    with served(2) as (stays, goes):
        recipe = write_recipe(tmp_path / "r.yaml", stays.url, n=400)
        judge_at(recipe, [stays.url, goes.url])
        with running(recipe, run_dir) as process:
            until(run_dir, is_judging)
            goes.vanish()
            until(run_dir, lambda _: "server 2 is unreachable" in log(run_dir), BOUND_S)
            output, errors = process.communicate(timeout=200)
    assert process.returncode == EXIT_COMPLETE, output + errors
    judgments = frames(run_dir)["judgments"]
    assert judgments.height == JUDGED
    assert set(judgments["status"]) == {"ok"}
    # What was in flight there was sent twice.
    values = status(run_dir)
    assert values["requests_sent"] > sum(one["done"] for one in values["models"])


def test_a_lone_server_that_vanishes_for_a_while_loses_nothing(tmp_path):
    run_dir = tmp_path / "run"
    with served(1) as [node]:
        recipe = write_recipe(tmp_path / "r.yaml", node.url, n=400)
        with running(recipe, run_dir) as process:
            until(run_dir, is_judging)
            node.vanish()
            until(run_dir, is_down)
            node.come_back()
            until(run_dir, lambda values: not is_down(values), BOUND_S)
            output, errors = process.communicate(timeout=200)
    assert process.returncode == EXIT_COMPLETE, output + errors
    assert set(frames(run_dir)["judgments"]["status"]) == {"ok"}


def test_asking_begins_while_one_server_can_not_be_reached_yet(tmp_path):
    run_dir = tmp_path / "run"
    with served(2) as (stays, late):
        late.vanish()
        recipe = write_recipe(tmp_path / "r.yaml", stays.url, n=4000)
        judge_at(recipe, [stays.url, late.url], limits={"max_in_flight": 16})
        with running(recipe, run_dir) as process:
            until(run_dir, is_judging)
            late.come_back()
            # Its share of the limit comes with it.
            until(run_dir, lambda values: values["models"][-1]["limit"] == 32)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
    assert process.returncode == EXIT_INTERRUPTED
