"""`on_end`: a command at the end of a call, with the result in its environment."""

import json
import time

import psutil
import pytest

import orchestrator
from orchestrator.errors import EXIT_USAGE

ANSWERS = [{"kind": "answers", "answer": {"max_tokens": 4}}]


@pytest.fixture
def run(command, recipe):
    """Run a recipe with a command at its end."""

    def call(on_end, *more, **changes):
        path = recipe(methods=ANSWERS, on_end=on_end, **changes)
        return command("run", path, "--allow-code", "--display", "json", *more)

    return call


def notes(said: str) -> list[str]:
    # Also: each line on stderr is JSON, to the last one.
    events = [json.loads(line) for line in said.splitlines()]
    return [one["text"] for one in events if one["event"] == "note"]


def test_the_command_gets_the_result_and_no_secrets(run, here, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "very-secret")
    monkeypatch.setenv("OTHER", "not named")
    monkeypatch.setenv("CHAT_URL", "http://127.0.0.1/chat")
    hook = {"command": "env > told; test -e runs/made/lock", "env_from": ["CHAT_URL"]}
    code, _, said = run(hook)
    assert (code, [note for note in notes(said) if "on_end" in note]) == (0, [])
    told = dict(
        line.partition("=")[::2] for line in (here / "told").read_text("utf-8").splitlines()
    )
    assert told["ORCHESTRATOR_STATE"] == "complete"
    assert told["ORCHESTRATOR_RUN"] == str(here / "runs" / "made")
    assert told["ORCHESTRATOR_UNITS"] == told["ORCHESTRATOR_UNITS_ENDED"] != "0"
    assert told["ORCHESTRATOR_UNITS_FAILED"] == "0"
    assert told["CHAT_URL"] == "http://127.0.0.1/chat"
    assert not {"MY_API_KEY", "OTHER"} & set(told)


def test_without_permission_the_recipe_is_refused(command, recipe):
    path = recipe(methods=ANSWERS, on_end="touch hacked")
    code, _, said = command("run", path)
    assert code == EXIT_USAGE
    assert "on_end: a command of the recipe's choice is not run without permission" in said
    assert "--allow-code" in said


def test_its_failure_is_said_and_changes_nothing(run, here):
    code, _, said = run("echo why; exit 7")
    assert code == 0
    assert notes(said)[-1] == "on_end: exit code 7; its output is in runs/made/on_end.log"
    log = here / "runs" / "made" / "on_end.log"
    assert log.read_text("utf-8") == "why\n"
    assert log.stat().st_mode & 0o777 == 0o600


def test_one_that_hangs_is_ended_with_what_it_started(run, here):
    # More time where it had not begun.
    for timeout_s in (0.3, 3.0, 30.0):
        command = "sleep 600 & echo $! > pid.part; mv pid.part pid; trap '' TERM; sleep 600"
        began = time.monotonic()
        code, _, said = run({"command": command, "timeout_s": timeout_s})
        assert code == 0
        assert f"on_end: stopped after {timeout_s:g} s" in notes(said)[-1]
        assert time.monotonic() - began < timeout_s + 60
        if (here / "pid").exists():
            break
    left = int((here / "pid").read_text("utf-8"))
    assert not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE


def test_a_run_that_fails_says_so_too(run, here):
    (here / "taken").touch()
    code, _, _ = run("env > told", "--run-dir", "taken")
    assert code == EXIT_USAGE
    told = (here / "told").read_text("utf-8").splitlines()
    assert "ORCHESTRATOR_STATE=failed" in told
    assert any(line.startswith("ORCHESTRATOR_ERROR=taken") for line in told)


def test_a_secret_in_the_command_is_refused(command, recipe):
    token = "hf_" + "x" * 24
    code, _, said = command("check", recipe(methods=ANSWERS, on_end=f"curl {token}"))
    assert code == EXIT_USAGE
    assert "looks" in said
    assert token not in said


def test_no_revision_holds_the_command(run, here):
    run("true")
    revisions = list((here / "runs" / "made" / "revisions").iterdir())
    assert revisions
    for path in revisions:
        assert "on_end" not in path.read_text("utf-8")


def test_an_option_names_a_command_of_the_users_own(command, recipe, here, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "my-own")
    path = recipe(methods=ANSWERS)
    code, _, said = command("run", path, "--on-end", "env > told", "--display", "json")
    assert (code, [note for note in notes(said) if "on_end" in note]) == (0, [])
    told = (here / "told").read_text("utf-8").splitlines()
    # The command is the user's, so it needs no permission and gets the user's variables.
    assert "ORCHESTRATOR_STATE=complete" in told
    assert "MY_API_KEY=my-own" in told


def test_the_option_takes_the_place_of_the_recipes_command(run, here):
    code, _, _ = run("touch recipes", "--on-end", "touch mine")
    assert code == 0
    assert (here / "mine").exists()
    assert not (here / "recipes").exists()


def test_the_option_gives_no_permission_to_the_recipes_command(command, recipe, here):
    path = recipe(methods=ANSWERS, on_end="touch recipes")
    assert command("run", path, "--on-end", "touch mine")[0] == EXIT_USAGE
    assert not (here / "mine").exists()


@pytest.mark.parametrize(
    ("given", "said"), [("", "the value is empty"), (f"curl hf_{'x' * 24}", "holds a secret")]
)
def test_an_option_that_can_not_be_meant_is_refused(command, recipe, here, given, said):
    code, _, err = command("run", recipe(methods=ANSWERS), "--on-end", given)
    assert code == EXIT_USAGE
    assert said in err
    assert "hf_" not in err
    assert not (here / "runs").exists()


def test_python_takes_a_command_too(here, recipe):
    result = orchestrator.run(recipe(methods=ANSWERS), on_end='echo "$ORCHESTRATOR_RUN" > told')
    assert (here / "told").read_text("utf-8").strip() == str(result.path.absolute())


def told_of(here):
    """Variables with the result, that `env > told` wrote."""
    lines = (here / "told").read_text("utf-8").splitlines()
    return dict(line.partition("=")[::2] for line in lines if line.startswith("ORCHESTRATOR_"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gates", "verdict", "summary"),
    [
        ([], "", ""),
        (["failed() <= 0"], "holds", "The gate holds: 1 requirement holds."),
        (
            ["failed() <= 0", "failed() > 0"],
            "fails",
            "The gate fails: 1 requirement holds, 1 fails.",
        ),
        (
            ["weak > strong"],
            "",
            "The gate cannot be decided: rating: this run has no method with pairwise judgments",
        ),
    ],
)
def test_the_command_gets_the_verdict_on_the_gates(run, here, gates, verdict, summary):
    run("env > told", gates=gates)
    told = told_of(here)
    assert told["ORCHESTRATOR_GATE"] == verdict
    assert told["ORCHESTRATOR_GATE_SUMMARY"].startswith(summary)
    assert bool(summary) == bool(told["ORCHESTRATOR_GATE_SUMMARY"])


@pytest.mark.slow
def test_the_command_gets_the_answer_as_the_first_screen_has_it(command, recipe, here):
    path = recipe(on_end="env > told")
    code, out, _ = command("run", path, "--allow-code", "--display", "none")
    assert code == 0
    answer = told_of(here)["ORCHESTRATOR_ANSWER"]
    assert answer
    assert out.startswith(answer)
    code, out, _ = command(
        "run", recipe(on_end="env > told", budget={"requests": 5}), "--fresh", "--allow-code"
    )
    answer = told_of(here)["ORCHESTRATOR_ANSWER"]
    assert answer.startswith("Incomplete: ")
    assert out.startswith(answer.partition(".")[0])


def test_python_has_the_verdict_on_the_gates(here, recipe):
    result = orchestrator.run(recipe(methods=ANSWERS, gates=["failed() > 0"]))
    assert result.gate is not None
    assert result.gate.verdict == "fails"
    assert json.loads(result.to_json())["gate"]["verdict"] == "fails"
    assert orchestrator.load(result.path).gate is None
