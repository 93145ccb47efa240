"""The real command: runs of parts of a dataset are merged, and equal one run of all of it."""

import json
import subprocess
import sys

import pytest

from orchestrator.errors import EXIT_COMPLETE
from tests.e2e.runs import ROOT, fake_server, frames, run, stats, write_recipe
from tests.e2e.test_failures import claim_another_version

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def merge(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", "runs", "merge", *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def files(run_dir):
    return {path.name: path.read_bytes() for path in (run_dir / "results").glob("*.parquet")}


def shards(tmp_path, url, sizes, **changes):
    """Runs of parts of a dataset, and the recipe of all of it."""
    items = [
        {"key": f"q{at}", "prompt": f"What is {at} + {at % 7}?", "reference": str(at + at % 7)}
        for at in range(sum(sizes))
    ]

    def recipe(name, part):
        lines = "".join(json.dumps(item) + "\n" for item in part)
        (tmp_path / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        data = {"path": f"{name}.jsonl"}
        return write_recipe(tmp_path / f"{name}.json", url, dataset=data, **changes)

    first = 0
    for name, size in enumerate(sizes):
        path = recipe(name, items[first : first + size])
        result = run(path, tmp_path / str(name))
        assert result.returncode == EXIT_COMPLETE, result.stderr
        first += size
    return recipe("whole", items)


def test_nothing_that_shards_recorded_is_asked_again(tmp_path):
    with fake_server() as url:
        whole = shards(tmp_path, url, (6, 9, 5))
        served = stats(url)
        assert served["asked_again"] == 0
        result = merge(tmp_path / "0", tmp_path / "1", tmp_path / "2", "--into", tmp_path / "all")
        assert result.returncode == EXIT_COMPLETE, result.stderr
        assert run(whole, tmp_path / "all").returncode == EXIT_COMPLETE
        assert stats(url)["total"] == served["total"]
        assert run(whole, tmp_path / "alone").returncode == EXIT_COMPLETE
    assert files(tmp_path / "all") == files(tmp_path / "alone")


@pytest.mark.models
@pytest.mark.long
def test_shards_on_real_models_equal_one_run_bit_for_bit(tmp_path):
    # One request at a time: who shares a batch decides a log-probability's last bits.
    names, limits = ("novice", "expert", "judge"), {"max_in_flight": 1}
    models = {
        name: {"server": "embedded", "weights": f"bundled:{name}", "limits": limits}
        for name in names
    }
    whole = shards(tmp_path, "", (2, 3), models=models)
    assert merge(tmp_path / "0", tmp_path / "1", "--into", tmp_path / "all").returncode == 0
    assert run(whole, tmp_path / "all").returncode == EXIT_COMPLETE
    assert run(whole, tmp_path / "alone").returncode == EXIT_COMPLETE
    assert files(tmp_path / "all") == files(tmp_path / "alone")
    asked = json.loads((tmp_path / "all" / "status.json").read_bytes())["values"]
    assert asked["requests_sent"] == 0


def test_a_merge_that_is_killed_can_be_run_again(tmp_path):
    with fake_server() as url:
        whole = shards(tmp_path, url, (8, 12))
        total = stats(url)["total"]
        arguments = [tmp_path / "0", tmp_path / "1", "--into", tmp_path / "all"]
        # Killed where the new store is built and not yet in its place.
        script = (
            "import os, sys\n"
            "from orchestrator.interface import merging\n"
            "merging.put_in_place = lambda *_: os.kill(os.getpid(), 9)\n"
            "from orchestrator.cli import main\n"
            "main(['runs', 'merge', *sys.argv[1:]])\n"
        )
        killed = subprocess.run(
            [sys.executable, "-c", script, *map(str, arguments)], cwd=ROOT, check=False
        )
        assert killed.returncode == -9
        assert (tmp_path / "all" / ".merging" / "store.sqlite").exists()
        assert not (tmp_path / "all" / "store.sqlite").exists()
        assert merge(*arguments).returncode == EXIT_COMPLETE
        assert not (tmp_path / "all" / ".merging").exists()
        assert run(whole, tmp_path / "all").returncode == EXIT_COMPLETE
        assert stats(url)["total"] == total
    assert frames(tmp_path / "all")["judgments"].height == 60


@pytest.mark.long
def test_another_server_is_refused_unless_accepted(tmp_path):
    with fake_server() as url:
        whole = shards(tmp_path, url, (6, 6))
        claim_another_version(tmp_path / "1")
        total = stats(url)["total"]
        arguments = [tmp_path / "0", tmp_path / "1", "--into", tmp_path / "all"]
        refused = merge(*arguments)
        assert refused.returncode == 2
        assert "--accept-server-change" in refused.stderr
        assert not (tmp_path / "all" / "store.sqlite").exists()
        accepted = merge(*arguments, "--accept-server-change")
        assert accepted.returncode == EXIT_COMPLETE, accepted.stderr
        assert "evaluates them again" in accepted.stdout
        result = run(whole, tmp_path / "all", "--accept-server-change")
        assert result.returncode == EXIT_COMPLETE, result.stderr
        assert stats(url)["total"] == total
    epochs = frames(tmp_path / "all")["judgments"]["server_epoch"]
    assert sorted(set(epochs)) == [0, 1]
