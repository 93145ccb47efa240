"""Every recipe that comes with the project, on the bundled models, as a user runs it."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import orchestrator
from orchestrator.errors import EXIT_COMPLETE
from orchestrator.interface.exporting import report_tables
from orchestrator.recipe.load import available
from orchestrator.runner.servers.registry import FOLDER_VARIABLE
from tests.conftest import ROOT
from tests.docs.papers import tables_of
from tests.e2e.runs import frames, run

pytestmark = [pytest.mark.slow, pytest.mark.models, pytest.mark.timeout(600)]

RECIPES = available()
_FEW = "4"
# A recipe of each family; CI has no time for all.
_SOON = frozenset({"glass_box", "pairwise_ranking", "peer_elo", "probdiff"})


def on_embedded(recipe: Path) -> bool:
    models = yaml.safe_load(recipe.read_text(encoding="utf-8"))["models"]

    def server(entry: dict[str, Any]) -> str:
        named = entry.get("server", "embedded")
        return str(named["kind"] if isinstance(named, dict) else named)

    return all(
        str(entry.get("weights", "bundled:")).startswith("bundled:")
        and server(entry) == "embedded"
        and "base_url" not in entry
        for entry in models.values()
    )


def delete_rows(run_dir: Path) -> None:
    """Take away what the methods made and keep what the servers said."""
    connection = sqlite3.connect(run_dir / "store.sqlite")
    with connection:
        connection.execute("DELETE FROM place")
        connection.execute("DELETE FROM unit")
    connection.close()
    for file in (run_dir / "results").iterdir():
        file.unlink()


def results_of(report: dict[str, Any]) -> dict[str, Any]:
    """Return what a report says of the models, without what its calls took."""
    brief = {name: value for name, value in report["brief"].items() if name != "cost"}
    return {"brief": brief, "rankings": report["rankings"], "tables": report["tables"]}


@pytest.fixture(scope="module", autouse=True)
def kept_servers(tmp_path_factory):
    """Keep the servers of one recipe for the next: most have the same models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(tmp_path_factory.mktemp("kept")))
        yield
        subprocess.run(
            [sys.executable, "-m", "orchestrator", "servers", "stop", "--all"],
            cwd=ROOT,
            check=True,
            timeout=120,
        )


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(r, id=r.stem, marks=() if r.stem in _SOON else pytest.mark.long)
        for r in RECIPES
        if on_embedded(r)
    ],
)
def test_a_recipe_runs_and_its_rows_can_be_made_again_without_a_request(recipe, tmp_path):
    done = run(recipe, tmp_path / "run", "--limit", _FEW, "--keep-servers", "--format", "json")
    assert done.returncode == EXIT_COMPLETE, done.stderr
    before = frames(tmp_path / "run")
    assert before
    for name, frame in before.items():
        assert len(frame), name
        if "status" in frame.columns:
            assert set(frame["status"]) == {"ok"}, name
    tables = json.loads(done.stdout)
    assert tables["rankings"] or tables["tables"]
    # docs/papers.md says which tables of the papers this recipe makes.
    assert tables_of(recipe.stem) <= set(report_tables(orchestrator.load(tmp_path / "run")))
    delete_rows(tmp_path / "run")
    again = run(recipe, tmp_path / "run", "--limit", _FEW, "--format", "json")
    assert again.returncode == EXIT_COMPLETE, again.stderr
    status = json.loads((tmp_path / "run" / "status.json").read_text(encoding="utf-8"))
    progress = status["values"]
    assert progress["requests_sent"] == 0
    needed = progress["units_total"] - progress["units_not_needed"]
    assert progress["units_done"] == needed
    after = frames(tmp_path / "run")
    assert set(after) == set(before)
    for name, frame in before.items():
        assert after[name].equals(frame), name
    assert results_of(json.loads(again.stdout)) == results_of(tables)
