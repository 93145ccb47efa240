"""The real command, again and again: what is kept, what is asked, what is said."""

import json
import signal
import subprocess
import time

import pytest

from orchestrator.errors import EXIT_COMPLETE, EXIT_INTERRUPTED, EXIT_PARTIAL, EXIT_USAGE
from tests.e2e.runs import (
    MODELS,
    ROOT,
    command,
    fake_server,
    frames,
    run,
    stats,
    write_recipe,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_complete_run_sends_nothing_and_shows_the_same_result(server, tmp_path):
    recipe = write_recipe(tmp_path / "r.json", server, n=8)
    first = run(recipe, tmp_path / "run")
    assert first.returncode == EXIT_COMPLETE, first.stderr
    total = stats(server)["total"]
    again = run(recipe, tmp_path / "run", "--display", "plain")
    assert stats(server)["total"] == total
    assert "complete: nothing to send" in again.stderr
    assert again.stdout == first.stdout


def test_a_changed_judge_prompt_keeps_the_answers_and_says_so(server, tmp_path):
    recipe = write_recipe(tmp_path / "r.json", server, n=8)
    run(recipe, tmp_path / "run")
    before = stats(server)["by_route"]
    changed = run(
        recipe, tmp_path / "run", "--set", "methods.0.prompt=judgment_distribution",
        "--display", "plain",
    )  # fmt: skip
    after = stats(server)["by_route"]
    assert after["chat"] == before["chat"] == 24
    assert after["choose"] == 2 * before["choose"]
    assert "prompt changed" in changed.stderr
    assert "24 answers kept" in changed.stderr
    assert "48 judgments to request" in changed.stderr


def test_going_back_to_an_earlier_recipe_sends_nothing(server, tmp_path):
    recipe = write_recipe(tmp_path / "r.json", server, n=8)
    run(recipe, tmp_path / "run")
    expected = frames(tmp_path / "run")
    run(recipe, tmp_path / "run", "--set", "methods.0.prompt=judgment_distribution")
    total = stats(server)["total"]
    run(recipe, tmp_path / "run")
    assert stats(server)["total"] == total
    assert frames(tmp_path / "run")["judgments"].equals(expected["judgments"])


def test_more_items_keep_what_is_there(server, tmp_path):
    recipe = write_recipe(tmp_path / "r.json", server, n=8)
    run(recipe, tmp_path / "run", "--limit", "4")
    assert frames(tmp_path / "run")["answers"].height == 12
    total = stats(server)["total"]
    run(recipe, tmp_path / "run")
    assert frames(tmp_path / "run")["answers"].height == 24
    assert stats(server)["total"] == 2 * total


def test_a_budget_stops_the_run_and_can_be_raised(server, tmp_path):
    recipe = write_recipe(tmp_path / "r.json", server, n=8)
    stopped = run(recipe, tmp_path / "run", "--set", "budget.requests=30")
    assert stopped.returncode == EXIT_PARTIAL
    assert "budget.requests" in stopped.stderr
    assert stats(server)["total"] == 30
    assert run(recipe, tmp_path / "run").returncode == EXIT_COMPLETE
    assert stats(server)["asked_again"] == 0


def test_the_plan_is_never_exceeded(server, tmp_path):
    recipe = write_recipe(tmp_path / "r.json", server, n=8)
    plan = subprocess.run(
        [*command(recipe, tmp_path / "run")[:3], "plan", str(recipe), "--json"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    counted = {
        (stage["name"], stage["model"]): stage["left"]
        for stage in json.loads(plan.stdout)["stages"]
    }
    assert stats(server)["total"] == 0
    run(recipe, tmp_path / "run")
    by_model = stats(server)["by_model"]
    assert counted["answers", "weak"] == by_model[MODELS[0]]["chat"] == 8
    assert counted["judgments", "judge"] >= by_model[MODELS[3]]["choose"]


def test_ctrl_c_keeps_everything_and_says_how_to_go_on(tmp_path):
    with fake_server({"rules": [{"latency_s": 0.05}]}, MODELS) as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=40, limits={"max_in_flight": 4})
        process = subprocess.Popen(
            command(recipe, tmp_path / "run"), cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        while stats(url)["total"] < 40:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == EXIT_INTERRUPTED
        assert "resume with the same command" in " ".join(said.split())
        assert run(recipe, tmp_path / "run").returncode == EXIT_COMPLETE
        assert stats(url)["asked_again"] == 0


def test_an_even_judge_resolves_nothing(tmp_path):
    rules = {"rules": [{"route": "choose", "judge_evenly": True}]}
    with fake_server(rules, MODELS) as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=25)
        result = run(recipe, tmp_path / "run")
    assert result.returncode == EXIT_COMPLETE, result.stderr
    assert result.stdout.startswith("No ranking yet: whether judge can be trusted")
    assert "strong over" not in result.stdout


def test_a_dead_model_fails_its_units_only_and_is_asked_again_later(server, tmp_path):
    recipe = write_recipe(tmp_path / "r.json", server, n=6)
    made = json.loads(recipe.read_text())
    made["models"]["mid"] |= {"base_url": "http://127.0.0.1:9", "limits": {"dead_after_s": 0.5}}
    recipe.write_text(json.dumps(made))
    result = run(recipe, tmp_path / "run")
    assert result.returncode == EXIT_PARTIAL
    answers = frames(tmp_path / "run")["answers"]
    failed = answers.filter(answers["status"] == "failed")
    assert set(failed["model"]) == {"mid"}
    assert set(failed["cause"]) == {"dead_server"}
    judged = frames(tmp_path / "run")["judgments"]
    assert judged.filter(judged["status"] == "ok").height == 6


def test_two_calls_never_write_the_same_run(tmp_path):
    with fake_server({"rules": [{"latency_s": 0.2}]}, MODELS) as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=20, limits={"max_in_flight": 1})
        first = subprocess.Popen(command(recipe, tmp_path / "run"), cwd=ROOT,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            while stats(url)["total"] < 2:
                time.sleep(0.02)
            second = run(recipe, tmp_path / "run")
        finally:
            first.kill()
            first.wait()
    assert second.returncode == EXIT_USAGE
    assert str(first.pid) in second.stderr


def test_what_stored_answers_lack_is_scored_and_never_drawn_again(server, tmp_path):
    methods = [{"kind": "answers", "answer": {"max_tokens": 8}}]
    recipe = write_recipe(tmp_path / "r.json", server, n=4, methods=methods)
    assert run(recipe, tmp_path / "run").returncode == EXIT_COMPLETE
    before = stats(server)["by_route"]
    texts = frames(tmp_path / "run")["answers"]["text"].to_list()
    again = run(recipe, tmp_path / "run", "--set", "methods.0.top_logprobs=3")
    assert again.returncode == EXIT_COMPLETE, again.stderr
    after = stats(server)["by_route"]
    assert after["chat"] == before["chat"] == 16
    assert after["score"] == 16
    answers = frames(tmp_path / "run")["answers"]
    assert answers["text"].to_list() == texts
    assert set(answers["observed"]) == {"score"}
    assert answers["mean_top_mass"].is_between(0, 1).all()
    fresh = run(recipe, tmp_path / "fresh", "--set", "methods.0.top_logprobs=3")
    assert fresh.returncode == EXIT_COMPLETE
    assert set(frames(tmp_path / "fresh")["answers"]["observed"]) == {"draw"}
