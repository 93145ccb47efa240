"""Failures that were kept are asked again: by `--retry`, or by a new run that reuses the rest."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from orchestrator.cli import main
from orchestrator.disk.paths import STORE_NAME
from orchestrator.errors import EXIT_COMPLETE, EXIT_PARTIAL, EXIT_USAGE
from orchestrator.store.merging import drop_failures
from tests.e2e.runs import CANDIDATES, fake_server, frames, run, stats, write_recipe

pytestmark = pytest.mark.timeout(300)

N = 6
ANSWER = {"max_tokens": 8}
JUDGED = {"judges": ["judge"], "candidates": [*CANDIDATES], "answer": ANSWER}
# Methods that give up where a request fails, and some that go on without its answer.
METHODS: dict[str, dict[str, Any]] = {
    "pairwise_ranking": {**JUDGED, "prompt": "compact"},
    "pointwise": JUDGED,
    "peer_elo": {"candidates": [*CANDIDATES], "answer": ANSWER},
    "samples": {"candidates": ["mid"], "n": 4, "answer": ANSWER},
    "probdiff": {"answer": ANSWER, "revision": ANSWER},
}


def call(*arguments: object) -> int:
    return main([*map(str, arguments)])


FLAGGED = {"fault": "status", "status": 400, "message": "flagged", "first": 1}


@pytest.mark.parametrize(
    "method",
    [one if one == "samples" else pytest.param(one, marks=pytest.mark.slow)
     for one in METHODS],
)  # fmt: skip
def test_what_failed_is_asked_again_in_the_same_run_and_nothing_else(tmp_path, capsys, method):
    """The rows are those of a run in which nothing failed."""
    refusing = [{**FLAGGED, "model": name} for name in ("*0.6", "*1.0")]
    given: dict[str, Any] = {
        "methods": [{"kind": method, **METHODS[method]}],
        "statistics": {"n_resamples": 100},
    }
    with fake_server(rules=refusing) as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=N, **given)
        kept = ("--run-dir", tmp_path / "run", "--display", "plain")
        code, again = EXIT_PARTIAL, 0
        assert call("run", recipe, *kept) in (EXIT_COMPLETE, EXIT_PARTIAL)
        # What was not asked because an answer failed may be refused in its turn.
        while code == EXIT_PARTIAL:
            before = stats(url)["total"]
            capsys.readouterr()
            planned = ("plan", recipe, *kept[:2], "--retry", "moderation", "--json")
            assert call(*planned) == EXIT_COMPLETE
            said = json.loads(capsys.readouterr().out)
            assert sum(stage["left"] for stage in said["stages"]) > 0
            assert stats(url)["total"] == before
            code = call("run", recipe, *kept, "--retry", "moderation")
            err = capsys.readouterr().err
            assert "failed requests (moderation) may be asked again" in err
            assert "missing from" not in err
            assert stats(url)["total"] > before
            again += 1
        assert code == EXIT_COMPLETE
        total = stats(url)["total"]
        assert call("run", recipe, *kept) == EXIT_COMPLETE
        assert stats(url)["total"] == total
        assert call("run", recipe, "--run-dir", tmp_path / "other", "--display", "none") == 0
    assert again <= 3
    assert same(tmp_path / "run", tmp_path / "other")
    assert call("run", recipe, *kept, "--retry", "all") == EXIT_USAGE
    assert "there are: none of any cause" in capsys.readouterr().err


def same(one: Path, other: Path) -> bool:
    found, wanted = frames(one), frames(other)
    assert found.keys() == wanted.keys()
    return all(found[name].equals(wanted[name]) for name in found if name != "requests")


def test_a_recipe_of_before_asks_again_what_another_recipe_retried(tmp_path):
    refusing = [
        {"model": "*1.0", "fault": "status", "status": 400, "message": "flagged", "first": 1}
    ]
    with fake_server(rules=refusing) as url:
        before, now = (
            write_recipe(tmp_path / f"{method}.json", url, n=1,
                         methods=[{"kind": method, **METHODS[method]}])
            for method in ("pairwise_ranking", "pointwise")
        )  # fmt: skip
        kept = ("--run-dir", tmp_path / "run", "--display", "none")
        assert call("run", before, *kept) == EXIT_PARTIAL
        assert call("run", now, *kept) == EXIT_PARTIAL
        assert call("run", now, *kept, "--retry", "moderation") == EXIT_COMPLETE
        assert call("run", before, *kept) == EXIT_COMPLETE
    assert set(frames(tmp_path / "run")["judgments"]["status"]) == {"ok"}


def test_a_retry_that_was_cut_off_goes_on_by_the_same_command(tmp_path):
    refusing = [
        {"model": "*1.0", "fault": "status", "status": 400, "message": "flagged", "first": 1}
    ]
    with fake_server(rules=refusing) as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=1)
        kept = ("--run-dir", tmp_path / "run", "--display", "none")
        assert call("run", recipe, *kept) == EXIT_PARTIAL
        assert drop_failures(tmp_path / "run" / STORE_NAME, "moderation") > 0
        again = (recipe, *kept[:2], "--retry", "moderation")
        assert call("plan", *again) == EXIT_COMPLETE
        assert call("run", *again, *kept[2:]) == EXIT_COMPLETE
        assert call("run", *again, *kept[2:]) == EXIT_USAGE


@pytest.mark.parametrize("cause", ["server_error", "all"])
def test_to_name_the_cause_of_transient_failures_is_no_error(tmp_path, capsys, cause):
    failing = [{"model": "*1.0", "fault": "status", "status": 500, "first": 1}]
    with fake_server(rules=failing) as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=1, limits={"max_attempts": 1})
        kept = ("--run-dir", tmp_path / "run", "--display", "none")
        assert call("run", recipe, *kept) == EXIT_PARTIAL
        assert call("plan", recipe, *kept[:2], "--retry", cause) == EXIT_COMPLETE
        assert call("run", recipe, *kept, "--retry", "timeout") == EXIT_USAGE
        assert "there are: server_error (" in capsys.readouterr().err
        assert call("run", recipe, *kept, "--retry", cause) == EXIT_COMPLETE


@pytest.mark.parametrize("content", [None, b""])
def test_a_run_whose_store_is_lost_is_not_paid_for_again_unasked(tmp_path, capsys, content):
    with fake_server() as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=1)
        kept = ("--run-dir", tmp_path / "run", "--display", "none")
        assert call("run", recipe, *kept) == EXIT_COMPLETE
        total, lost = stats(url)["total"], tmp_path / "run" / STORE_NAME
        lost.unlink()
        if content is not None:
            lost.write_bytes(content)
        for _ in range(2):
            assert call("run", recipe, *kept) == EXIT_USAGE
            assert "start again with --fresh" in capsys.readouterr().err
        assert stats(url)["total"] == total
        assert call("run", recipe, *kept, "--fresh") == EXIT_COMPLETE


def test_what_cannot_be_retried_is_refused_before_anything_is_asked(tmp_path, capsys):
    with fake_server() as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=1)
        for more in (("run", "--retry", "timeout"), ("plan", "--retry", "timeout"),
                     ("run", "--retry", "all", "--fresh")):  # fmt: skip
            kept = ("--run-dir", tmp_path / "run")
            assert call(more[0], recipe, *kept, *more[1:]) == EXIT_USAGE
        assert stats(url)["total"] == 0
    assert not (tmp_path / "run").exists()
    assert "no request that failed by 'timeout'" in capsys.readouterr().err


@pytest.mark.slow
def test_kept_failures_alone_are_asked_again_by_a_run_that_reuses_the_one_before(tmp_path):
    # Each request to the judge is refused when it comes first.
    refusing = [
        {"model": "*1.0", "fault": "status", "status": 400, "message": "flagged", "first": 1}
    ]
    made, again = tmp_path / "runs" / "made", tmp_path / "runs" / "made.2"
    with fake_server(rules=refusing) as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=N)
        assert run(recipe, made).returncode == EXIT_PARTIAL
        first = stats(url)["total"]
        # The same command does not ask what would fail again.
        assert run(recipe, made).returncode == EXIT_PARTIAL
        assert stats(url)["total"] == first
        failed = frames(made)["judgments"].filter(pl.col("status") == "failed")

        done = run(recipe, made, "--fresh", "--set", "reuse=[runs/made]")
        assert done.returncode == EXIT_COMPLETE, done.stderr
        asked = stats(url)["total"] - first
    assert 0 < len(failed) <= asked < first
    assert frames(again)["answers"].equals(frames(made)["answers"])
    assert set(frames(again)["judgments"]["status"]) == {"ok"}


@pytest.mark.slow
def test_a_run_that_decides_what_it_asks_takes_back_what_failed(tmp_path):
    refusing = [
        {"model": "*1.0", "fault": "status", "status": 400, "message": "flagged", "first": 1}
    ]
    given: dict[str, Any] = {"statistics": {"n_resamples": 100, "stop_when": {"block": 20}}}
    code = EXIT_PARTIAL
    with fake_server(rules=refusing) as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=60, **given)
        kept = ("--run-dir", tmp_path / "run", "--display", "none")
        assert call("run", recipe, *kept) == EXIT_PARTIAL
        for _ in range(6):
            before = stats(url)["total"]
            code = call("run", recipe, *kept, "--retry", "moderation")
            assert stats(url)["total"] > before
            if code == EXIT_COMPLETE:
                break
    assert code == EXIT_COMPLETE
    assert set(frames(tmp_path / "run")["judgments"]["status"]) == {"ok"}
