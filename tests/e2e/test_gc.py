"""`orchestrator runs gc`: counts and drops what the last recipes of a run do not ask for."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE
from tests.e2e.runs import ROOT, frames, run, stats, write_recipe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ITEMS = '{"prompt": "2 + 2?", "reference": "4"}\n{"prompt": "3 + 3?", "reference": "6"}\n'
OTHER_PROMPT = ("--set", "methods.0.prompt=judgment_distribution")


def gc(run_dir: Path, *more: str) -> subprocess.CompletedProcess[str]:
    asked = [sys.executable, "-m", "orchestrator", "runs", "gc", str(run_dir), *more]
    return subprocess.run(asked, capture_output=True, text=True, cwd=ROOT, check=False)


def assert_same_frames(found: dict[str, pl.DataFrame], expected: dict[str, pl.DataFrame]) -> None:
    assert found.keys() == expected.keys()
    for name, frame in expected.items():
        assert_frame_equal(found[name], frame)


def test_what_the_last_recipe_asks_is_kept_and_the_rest_dropped(server, tmp_path):
    recipe, where = write_recipe(tmp_path / "r.json", server, n=8), tmp_path / "run"
    run(recipe, where)
    run(recipe, where, *OTHER_PROMPT)
    expected, sent = frames(where), stats(server)["total"]
    before = (where / "store.sqlite").read_bytes()

    counted = gc(where)
    assert counted.returncode == EXIT_COMPLETE, counted.stderr
    assert "72 outcomes are needed by the last recipe" in counted.stdout
    assert "48 of judge (choose)" in counted.stdout
    assert "nothing was changed" in counted.stdout
    assert (where / "store.sqlite").read_bytes() == before

    dropped = gc(where, "--drop")
    assert dropped.returncode == EXIT_COMPLETE, dropped.stderr
    assert "deleted 48 outcomes and 24 units of earlier plans;" in dropped.stdout
    assert "nothing to delete" in gc(where).stdout
    again = run(recipe, where, *OTHER_PROMPT)
    assert again.returncode == EXIT_COMPLETE, again.stderr
    assert stats(server)["total"] == sent
    assert_same_frames(frames(where), expected)

    back = run(recipe, where)
    assert back.returncode == EXIT_COMPLETE, back.stderr
    assert stats(server)["total"] == sent + 48


@pytest.mark.long
def test_a_run_whose_items_changed_is_left_alone(server, tmp_path):
    items = tmp_path / "items.jsonl"
    items.write_text(ITEMS, encoding="utf-8")
    recipe = write_recipe(tmp_path / "r.json", server, dataset={"path": str(items)})
    where = tmp_path / "run"
    assert run(recipe, where).returncode == EXIT_COMPLETE
    before = (where / "store.sqlite").read_bytes()
    items.write_text(ITEMS.replace("3", "4"), encoding="utf-8")
    refused = gc(where, "--drop")
    assert refused.returncode == EXIT_USAGE, refused.stdout
    assert "a method version have changed" in refused.stderr
    assert "Run it once more, which asks only what is missing" in " ".join(refused.stderr.split())
    items.unlink()
    refused = gc(where, "--drop")
    assert refused.returncode == EXIT_USAGE, refused.stdout
    assert "nothing was deleted" in refused.stderr
    assert (where / "store.sqlite").read_bytes() == before


def test_a_folder_without_a_run_is_refused(tmp_path):
    refused = gc(tmp_path)
    assert refused.returncode == EXIT_USAGE
    assert "no run" in refused.stderr
