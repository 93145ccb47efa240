"""All four families on a real chat model: the demo, and a sample of its validation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.smollm2, pytest.mark.timeout(580)]


def call(*arguments: object) -> str:
    """Run a program of this project; returns its standard output."""
    command = [sys.executable, *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if name != "ORCHESTRATOR_DATA"}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=560, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_demo_says_how_long_it_takes_and_ends_with_a_report(tmp_path: Path) -> None:
    said = call("tools/demo_chat.py", "--questions", 16, "--run-dir", tmp_path / "run")
    assert "the other 7 take about" in said
    assert "it took" in said
    # The small model does not judge in the form asked, and nothing hides that.
    assert "No ranking" in said
    assert "No ranking" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_a_sample_of_the_validation_has_every_score(tmp_path: Path) -> None:
    recipe, run = "recipes/validate_chat.yaml", tmp_path / "run"
    options = ("--limit", 2, "--run-dir", run, "--display", "none", "--format", "json")
    tables = json.loads(call("-m", "orchestrator", "run", recipe, *options))["tables"]
    orders = [table["rows"] for table in tables if table.get("table") == "validation.order"]
    assert len(orders) == 2
    for rows in orders:
        scores = {row["score"].partition(".")[0] for row in rows}
        assert scores == {
            "probdiff", "glass_box", "pointwise", "pairwise_ranking", "pairwise_with_examples",
            "pairwise_scoring", "peer_elo", "peer_rouge_l",
        }  # fmt: skip
        assert len(rows) >= 38
        assert {row["right"] for row in rows} <= {"yes", "no"}


@pytest.mark.parametrize(
    ("recipe", "shown"),
    [
        ("answers_chat", {"consistency", "samples", "probdiff", "probdiff_ablation", "conflict"}),
        ("confidence_chat", {"confidence", "glass_box", "meta_evaluation.correlation"}),
        (
            "judging_chat",
            {
                "judge_accuracy.pairwise",
                "jury.members",
                "leaderboard",
                "self_preference",
                "sharpening",
            },
        ),
        ("rubric_chat", {"rubric.criteria", "validation.order"}),
    ],
)
def test_the_first_items_of_a_chat_recipe_have_its_tables(
    recipe: str, shown: set[str], tmp_path: Path
) -> None:
    options = ("--limit", 2, "--run-dir", tmp_path / "run", "--display", "none", "--format", "json")
    said = json.loads(call("-m", "orchestrator", "run", recipe, *options))
    assert shown <= {table.get("table") for table in said["tables"]}
