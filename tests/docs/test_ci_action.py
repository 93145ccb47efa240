"""The action and the script for CI: what their steps do, done here, and that they say the same."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT

SCRIPT = ROOT / "examples" / "ci" / "evaluate.sh"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step.get("name", step.get("uses")): step for step in ACTION["runs"]["steps"]}
KEPT = {"report.html", "gate.xml", "summary.md"}


def recipe(folder: Path, *gates: str) -> Path:
    models = {name: {"server": "fake", "weights": "any"} for name in ("a", "b", "judge")}
    data = {
        "models": models,
        "dataset": {"kind": "demo", "n": 6},
        "methods": [{"kind": "pairwise_ranking", "judges": ["judge"], "prompt": "compact"}],
        "gates": list(gates),
    }
    path = folder / "gate.json"
    path.write_text(json.dumps(data))
    return path


def environment(**more: str) -> dict[str, str]:
    own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return {**os.environ, **own, **more}


def evaluate(folder: Path, *gates: str, arguments: tuple[str, ...] = ()) -> int:
    command = [str(SCRIPT), str(recipe(folder, *gates)), "out", *arguments]
    summary = environment(GITHUB_STEP_SUMMARY=str(folder / "shown.md"))
    done = subprocess.run(command, cwd=folder, env=summary, check=False, capture_output=True)
    (folder / "log").write_bytes(done.stdout + done.stderr)
    return done.returncode


def counted(run: Path, name: str) -> int:
    return int(json.loads((run / "status.json").read_text())["values"][name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gates", "code"), [(("failed() > 1%",), 4), (("rating(a) > rating(b)",), 5), ((), 0)]
)
def test_the_script_ends_with_the_verdict_and_keeps_what_is_shown(tmp_path, gates, code):
    assert evaluate(tmp_path, *gates) == code, (tmp_path / "log").read_text()
    made = {path.name for path in (tmp_path / "out").iterdir()}
    assert made & KEPT == (KEPT if gates else KEPT - {"gate.xml"})
    shown = (tmp_path / "shown.md").read_text()
    assert shown == (tmp_path / "out" / "summary.md").read_text()
    assert f"exit code {code}" in shown
    assert all(gate.split("(")[0] in shown for gate in gates)


@pytest.mark.slow
def test_the_next_job_asks_only_what_is_new(tmp_path):
    run = tmp_path / "out" / "run"
    assert evaluate(tmp_path, "failed() <= 0%", arguments=("--limit", "3")) == 0
    n_sent = counted(run, "requests_sent")
    assert evaluate(tmp_path, "failed() <= 0%") == 0
    assert counted(run, "requests_sent") == n_sent > 0
    assert counted(run, "asks_found") > 0
    # Nothing at all, and the gate is another one.
    assert evaluate(tmp_path, "failed() > 1%") == 4


@pytest.mark.slow
def test_a_fault_in_the_recipe_is_its_exit_code(tmp_path):
    assert evaluate(tmp_path, "failed( <") == 2
    assert not (tmp_path / "shown.md").exists()


@pytest.mark.slow
def test_the_action_hands_its_inputs_on_and_fails_last(tmp_path):
    action = tmp_path / "action"
    (action / "examples").mkdir(parents=True)
    shutil.copytree(SCRIPT.parent, action / "examples" / "ci")
    inputs = {name: given.get("default", "") for name, given in ACTION["inputs"].items()}
    inputs |= {"recipe": str(recipe(tmp_path, "failed() > 1%")), "arguments": "--limit 2"}
    output = tmp_path / "output"
    outputs: dict[str, str] = {}

    def run(name: str) -> int:
        step = STEPS[name]
        values = {
            variable: re.sub(
                r"\$\{\{ (?:inputs|steps\.evaluate\.outputs)\.([\w-]+) \}\}",
                lambda found: {**inputs, **outputs}[found[1]],
                value,
            )
            for variable, value in step["env"].items()
        }
        more = {"GITHUB_ACTION_PATH": str(action), "GITHUB_OUTPUT": str(output)}
        return subprocess.run(
            ["bash", "-e", "-c", step["run"]],
            cwd=tmp_path, env=environment(**values, **more), check=False, capture_output=True,
        ).returncode  # fmt: skip

    assert run("Evaluate") == 0
    outputs.update(line.split("=") for line in output.read_text().splitlines())
    assert outputs == {"exit-code": "4"}
    assert run("Hold the gates") == 4
    assert list(STEPS)[-1] == "Hold the gates"
    assert counted(tmp_path / "evaluation" / "run", "units_total") == 6


def test_what_the_action_keeps_is_what_the_script_writes():
    kept = STEPS["actions/upload-artifact@v4"]["with"]["path"].splitlines()
    assert {Path(path).name for path in kept} == KEPT
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text()))
    assert used == set(ACTION["inputs"])


@pytest.mark.parametrize("name", ["evaluate.yml", ".gitlab-ci.yml"])
def test_the_files_to_copy_are_in_the_docs(name):
    written = (SCRIPT.parent / name).read_text().strip()
    assert written in (ROOT / "docs" / "how_to" / "gate_in_ci.md").read_text()
    yaml.safe_load(written)
