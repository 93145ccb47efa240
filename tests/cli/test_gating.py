"""`orchestrator gate`: exit codes, files and formats."""

import json
from pathlib import Path

import yaml

import orchestrator
from orchestrator.errors import (
    EXIT_COMPLETE,
    EXIT_GATE_FAILS,
    EXIT_GATE_OPEN,
    EXIT_PARTIAL,
    EXIT_USAGE,
)


def test_the_exit_code_is_the_verdict(command, recipe, tmp_path):
    assert command("run", str(recipe()), "--run-dir", "runs/a", "--display", "none")[0] == 0
    holds, fails = ("--require", "failed() <= 0"), ("--require", "failed() > 0")
    code, out, _ = command("gate", "a", *holds)
    assert (code, out.splitlines()[0]) == (EXIT_COMPLETE, "The gate holds: 1 requirement holds.")
    code, out, _ = command("gate", "a", *holds, *fails)
    assert code == EXIT_GATE_FAILS
    # What was measured stands below its requirement, which stands beside its verdict.
    assert out.splitlines()[2:6] == [
        "● holds  failed() <= 0",
        "         measured 0.0 %",
        "✕ fails  failed() > 0",
        "         measured 0.0 %",
    ]
    models = [one.model for one in orchestrator.load("runs/a").rankings[0].ratings]
    equal = ("--require", f"score({models[0]}) >= score({models[0]}, old)", "--against", "a")
    assert command("gate", "a", *equal)[0] == EXIT_GATE_OPEN
    assert command("gate", "a", *equal, "--pass-unknown")[0] == EXIT_COMPLETE
    files = ("--junit", "out/gate.xml", "--summary", "summary.md")
    for _ in range(2):
        assert command("gate", "a", *holds, *files)[0] == EXIT_COMPLETE
    # A summary is shared with other steps of a job, and appended to.
    assert (tmp_path / "summary.md").read_text(encoding="utf-8").count("The gate holds") == 2
    assert "<testsuites>" in (tmp_path / "out/gate.xml").read_text(encoding="utf-8")
    said = json.loads(command("gate", "a", *holds, "--format", "json")[1])
    assert (said["verdict"], said["run"]["run"]) == ("holds", "runs/a")
    assert "## The gate holds" in command("gate", "a", *holds, "--format", "markdown")[1]


def test_a_run_is_held_against_the_gates_of_its_recipe(command, recipe):
    holds, fails = "failed() <= 0", "failed() > 0"
    assert command("run", recipe(), "--run-dir", "runs/a", "--display", "none")[0] == 0
    found = json.loads(command("gate", "a", "--require", "strong > weak", "--format", "json")[1])
    # The threshold is what was measured, and so within its interval.
    unknown = f"strong > weak + {found['requirements'][0]['value']:.3f}"
    path = ""
    for gates, expected, said in (
        ([holds], EXIT_COMPLETE, "The gate holds: 1 requirement holds."),
        ([holds, fails], EXIT_GATE_FAILS, "The gate fails: 1 requirement holds, 1 fails."),
        ([holds, unknown], EXIT_GATE_OPEN, "The gate is not decided yet: 1 requirement holds, 1"),
    ):
        path = recipe(gates=gates)
        code, out, err = command("run", path, "--run-dir", "runs/a", "--display", "none")
        assert code == expected, err
        # Below the first screen.
        assert out.index(said) > out.index("orchestrator view runs/a")
    said = json.loads(command("run", path, "--run-dir", "runs/a", "--format", "json")[1])
    assert said["gate"]["exit_code"] == EXIT_GATE_OPEN
    assert [one["verdict"] for one in said["gate"]["requirements"]] == ["holds", "not known yet"]
    page = command("run", path, "--run-dir", "runs/a", "--format", "markdown")[1]
    assert "## The gate is not decided yet" in page
    err = command("run", path, "--run-dir", "runs/a", "--display", "json")[2]
    (event,) = [one for one in map(json.loads, err.splitlines()) if one["event"] == "gate"]
    # Each call says when it was.
    assert event["run"].pop("at") >= said["gate"]["run"].pop("at")
    assert event == {"event": "gate", **said["gate"]}
    # Only the run is held against them, and only if there are any.
    assert "The gate" not in command("report", "a")[1]
    code, out, _ = command("run", recipe(), "--run-dir", "runs/b", "--display", "none")
    assert (code, "The gate" in out) == (EXIT_COMPLETE, False)


def test_a_run_that_is_not_complete_keeps_its_exit_code(command, recipe):
    path = recipe(gates=["failed() > 0"], budget={"requests": 5})
    code, out, err = command("run", path, "--display", "none")
    assert code == EXIT_PARTIAL
    assert "The gate is not decided yet" in out
    assert "budget.requests: 5 of 5 sent" in err


def test_gates_against_an_older_run_are_left_to_the_command(command, recipe):
    older = "score(strong) >= score(strong, old) - 0.5"
    for gates, has_verdict in (([older], False), ([older, "failed() <= 0"], True)):
        path = recipe(gates=gates)
        code, out, err = command("run", path, "--display", "plain")
        assert (code, "The gate holds: 1 requirement" in out) == (EXIT_COMPLETE, has_verdict)
        assert "1 requirement names an older run: orchestrator gate runs/made --against OLD" in err
    assert command("gate", "made", "--against", "made")[0] == EXIT_COMPLETE


def test_a_gate_that_the_run_can_not_answer_hides_no_result(command, recipe):
    path = recipe(methods=[{"kind": "answers"}], gates=["weak > strong"])
    code, out, err = command("run", path, "--display", "none")
    assert code == EXIT_USAGE
    assert "made" in out
    assert "this run has no method with pairwise judgments" in err


def test_a_fault_points_at_its_column(command, recipe):
    assert command("run", str(recipe()), "--run-dir", "runs/a", "--display", "none")[0] == 0
    code, _, err = command("gate", "a", "--require", "failed() <= x")
    assert code == EXIT_USAGE
    lines = err.splitlines()
    assert "column 13" in lines[0]
    assert lines[-2:] == ["failed() <= x", "------------^"]


def test_the_recipes_gates_are_used_and_their_faults_have_a_line(command, recipe):
    data = json.loads(Path(recipe()).read_text(encoding="utf-8"))
    path = Path("gated.yaml")
    path.write_text(yaml.safe_dump({**data, "gates": ["failed() <= 0"]}), encoding="utf-8")
    assert command("run", str(path), "--run-dir", "runs/a", "--display", "none")[0] == 0
    assert command("gate", "a")[0] == EXIT_COMPLETE
    gates = ["failed() <= 0", "faild() <= 0"]
    path.write_text(yaml.safe_dump({**data, "gates": gates}), encoding="utf-8")
    code, _, err = command("check", str(path))
    assert code == EXIT_USAGE
    n = path.read_text(encoding="utf-8").splitlines().index("- faild() <= 0") + 1
    assert f"{path.name}:{n}: gates.1: 'faild() <= 0': column 1: unknown measure 'faild'" in err
    assert "did you mean 'failed'?" in err
