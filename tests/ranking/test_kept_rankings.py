"""Rankings are computed once, and again when anything that they rest on changes."""

from importlib import resources
from typing import Any

import polars as pl
import pytest

from orchestrator.frames import FrameFiles
from orchestrator.runner.results import tables
from orchestrator.runner.results.frames import RANKINGS, analyse
from orchestrator.runner.results.tables import rankings_of
from orchestrator.statistics.results import Thresholds

CODE = (
    "clusters.py", "tables.py", "ranking/analysis.py", "ranking/judged.py",
    "statistics/ratings.py", "summaries/_scores.py",
)  # fmt: skip
SETTINGS: dict[str, Any] = {"confidence_level": 0.95}


@pytest.fixture
def calls(monkeypatch):
    found = []

    def counted(*args, **options):
        found.append(options)
        return analyse(*args, **options)

    monkeypatch.setattr(tables, "analyse", counted)
    return found


@pytest.fixture
def judgments(frames):
    """Of a model that wins every time, so that bounds are open, and one that gives no judgment."""
    rows = [frames.judged(f"i{k}", "x", "y", 1.0, category="ab"[k % 2]) for k in range(30)]
    rows += [frames.judged(f"i{k}", "y", "z", 0.4 + k / 100) for k in range(30)]
    rows += [frames.failed(f"i{k}", "x", "w") for k in range(3)]
    return frames.frame(rows).with_columns(method=pl.lit("pairwise_ranking"))


@pytest.fixture
def folder(judgments, tmp_path):
    judgments.write_parquet(tmp_path / "judgments.parquet")
    return tmp_path


def found_in(folder, **changes):
    return rankings_of(FrameFiles(folder), **{**SETTINGS, **changes})


def test_they_are_what_is_computed_to_the_last_digit(folder, calls):
    # repr, for nan is not equal to itself.
    expected = repr(analyse(FrameFiles(folder), **SETTINGS))
    assert "high_open=True" in expected
    assert [repr(found_in(folder)) for _ in range(3)] == [expected] * 3
    assert len(calls) == 1


def test_other_settings_are_computed(folder, calls):
    for changes in (
        {}, {"confidence_level": 0.9}, {"thresholds": Thresholds(missing=0.01)},
    ):  # fmt: skip
        expected = analyse(FrameFiles(folder), **{**SETTINGS, **changes})
        assert repr(found_in(folder, **changes)) == repr(expected)
    assert len(calls) == 3


def test_other_judgments_are_computed(folder, judgments, calls):
    before = found_in(folder)
    judgments.head(40).write_parquet(folder / "judgments.parquet")
    assert found_in(folder)[0].n_judged < before[0].n_judged
    assert len(calls) == 2


def test_other_clusters_are_computed(folder, calls):
    alone = found_in(folder)
    items = pl.DataFrame({"item": [f"i{k}" for k in range(30)]})
    for n_each in (3, 5):
        clusters = pl.Series("cluster", [f"c{k // n_each}" for k in range(30)])
        items.with_columns(clusters).write_parquet(folder / "items.parquet")
        assert found_in(folder)[0].n_clusters == alone[0].n_clusters / n_each
    assert len(calls) == 3


def test_another_version_of_the_code_computes_them(folder, calls, monkeypatch):
    found_in(folder)
    monkeypatch.setattr(tables, "code_digest", lambda: b"another")
    found_in(folder)
    assert len(calls) == 2


@pytest.mark.parametrize("module", [*CODE, "summaries/deep/x.py"])
def test_the_code_is_that_of_the_statistics(module, tmp_path, monkeypatch):
    for name in (*(f"{folder}/deep/x.py" for folder in tables._FOLDERS), *tables._MODULES, *CODE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before")
    monkeypatch.setattr(resources, "files", lambda _: tmp_path)
    before = tables.code_digest.__wrapped__()
    (tmp_path / module).write_text("after")
    assert tables.code_digest.__wrapped__() != before


def test_judgments_that_come_meanwhile_are_not_kept_as_those_before(folder, judgments, monkeypatch):
    def late(frames, **options):
        judgments.head(40).write_parquet(folder / "judgments.parquet")
        return analyse(frames, **options)

    monkeypatch.setattr(tables, "analyse", late)
    found_in(folder)
    assert not (folder / RANKINGS).exists()


@pytest.mark.parametrize("has_checksum", [False, True], ids=["a changed value", "a wrong type"])
def test_what_is_damaged_is_computed(folder, calls, has_checksum):
    expected = repr(found_in(folder))
    content = (folder / RANKINGS).read_bytes().replace(b'"rank": 1', b'"rank": "first"')
    if has_checksum:
        body = content.partition(b"\n")[2]
        content = tables.checksum(body) + b"\n" + body
    (folder / RANKINGS).write_bytes(content)
    assert repr(found_in(folder)) == expected
    assert len(calls) == 2


def test_a_run_without_pairs_keeps_nothing(tmp_path):
    pl.DataFrame({"method": ["answers"]}).write_parquet(tmp_path / "answers.parquet")
    assert found_in(tmp_path) == []
    assert not (tmp_path / RANKINGS).exists()
