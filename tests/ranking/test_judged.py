"""Judgments that are taken in slices say what the whole frame says."""

import subprocess
import sys
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl
import pytest

from orchestrator.frames import FrameFiles, slices_of
from orchestrator.ranking.analysis import analyse_ranking
from orchestrator.ranking.judged import COLUMNS, tabulate
from orchestrator.runner.results.frames import analyse

STRENGTHS = {"ash": 0.6, "beech": 0.2, "cedar": -0.8}


def judged(frames, n_items=30, judge="j1", seed=3):
    return frames.simulated(
        STRENGTHS, n_items, np.random.default_rng(seed), categories=2
    ).with_columns(judge=pl.lit(judge))


def with_failures(frame, every=7):
    lost = pl.int_range(pl.len()) % every == 0
    return frame.with_columns(
        status=pl.when(lost).then(pl.lit("failed")).otherwise("status"),
        cause=pl.when(lost).then(pl.lit("timeout")).otherwise("cause"),
        category=pl.when(pl.int_range(pl.len()) % 11 == 0).then(None).otherwise("category"),
    )


@pytest.fixture(scope="module")
def frame(frames):
    return with_failures(pl.concat([judged(frames), judged(frames, judge="j2", seed=4)]))


def ranked(frame, judge=None, n=10_000):
    table = tabulate(frame.iter_slices(n) if len(frame) else (), len(frame) + 5)
    return analyse_ranking(table, judge=judge, confidence_level=0.9)


@pytest.mark.parametrize("n", [1, 13])
def test_slices_of_any_length_say_the_same(frame, n):
    assert asdict(ranked(frame, n=n)) == asdict(ranked(frame))


def test_the_order_of_the_rows_does_not_matter(frame):
    assert asdict(ranked(frame.sample(fraction=1, shuffle=True, seed=1))) == asdict(ranked(frame))


@pytest.mark.parametrize("judge", ["j1", "j2", "nobody"])
def test_a_judge_of_a_table_is_a_frame_of_its_rows(frame, judge):
    only = frame.filter(pl.col("judge") == judge)
    assert asdict(ranked(frame, judge)) == asdict(ranked(only, judge))


def test_models_are_those_that_a_judge_has_met(frame):
    met = pl.col("model_a").is_in(["ash"]) & pl.col("model_b").is_in(["beech"])
    some = frame.filter((pl.col("judge") == "j1") | met)
    assert {one.model for one in ranked(some, "j2").ratings} == {"ash", "beech"}
    assert len(ranked(some, "j1").ratings) == 3


def test_a_model_whose_judgments_all_failed_is_still_named(frame):
    frame = frame.with_columns(
        status=pl.when(pl.col("model_b") == "cedar").then(pl.lit("failed")).otherwise("status")
    )
    (cedar,) = (one for one in ranked(frame).ratings if one.model == "cedar")
    assert cedar.rating is None
    assert cedar.n_missing > 0


def test_items_are_numbered_without_gaps_where_some_are_only_missing(frame):
    first = frame["item"].min()
    frame = frame.with_columns(
        status=pl.when(pl.col("item") == first).then(pl.lit("failed")).otherwise("status")
    )
    table = tabulate([frame], len(frame))
    numbers, n = table.clusters()
    assert sorted(set(numbers)) == list(range(n)) == list(range(table.n_items - 1))


def test_files_are_read_in_slices_and_methods_apart(frame, tmp_path):
    both = pl.concat([
        frame.with_columns(method=pl.lit("one")), frame.head(40).with_columns(method=pl.lit("two")),
    ])  # fmt: skip
    both.sample(fraction=1, shuffle=True, seed=2).write_parquet(
        tmp_path / "judgments.parquet", row_group_size=17
    )
    files = FrameFiles(tmp_path)
    sizes = [len(rows) for rows in slices_of(files, "judgments", COLUMNS, 50)]
    assert sum(sizes) == len(both)
    assert max(sizes) == 50
    settings: dict[str, Any] = {"confidence_level": 0.9}
    found = {(one.source, one.judge): asdict(one) for one in analyse(files, **settings)}
    held = {
        (one.source, one.judge): asdict(one) for one in analyse({"judgments": both}, **settings)
    }
    assert found == held
    assert set(found) == {("one", "j1"), ("one", "j2"), ("one", None), ("two", "j1")}


def test_a_frame_that_is_not_there_has_no_slices(tmp_path):
    assert list(slices_of(FrameFiles(tmp_path), "judgments", COLUMNS, 5)) == []


def test_polars_is_imported_after_its_allocator_is_told_what_to_do():
    code = "import sys, orchestrator.cli; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
