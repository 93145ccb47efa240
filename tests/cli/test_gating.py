"""`orchestrator gate`: exit codes, files and formats."""

import json
from pathlib import Path

import yaml

import orchestrator
from orchestrator.errors import (
    EXIT_COMPLETE,
    EXIT_GATE_FAILS,
    EXIT_GATE_OPEN,
    EXIT_USAGE,
)


def test_the_exit_code_is_the_verdict(command, recipe, tmp_path):
    assert command("run", str(recipe()), "--run-dir", "runs/a", "--display", "none")[0] == 0
    holds, fails = ("--require", "failed() <= 0"), ("--require", "failed() > 0")
    code, out, _ = command("gate", "a", *holds)
    assert (code, out.splitlines()[0]) == (EXIT_COMPLETE, "The gate holds: 1 requirement holds.")
    assert command("gate", "a", *holds, *fails)[0] == EXIT_GATE_FAILS
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
