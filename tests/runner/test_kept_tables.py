"""Tables of a method's rows are computed once, and again when anything they rest on changes."""

import json

import msgspec
import polars as pl
import pytest

from orchestrator.contracts.context import Context
from orchestrator.frames import FrameFiles
from orchestrator.runner.results import tables
from orchestrator.runner.results.tables import Keeping
from orchestrator.summaries._scores import PointwiseRatingSummary
from tests.crossed import LONG
from tests.summaries import judged
from tests.summaries.judged import around

SETTINGS = {
    "methods": [{"kind": "pointwise", "judges": ["judge"]}],
    "statistics": {"n_resamples": 100},
}


@pytest.fixture
def rows():
    found = [
        judged.score_row(f"i{k}", model, around(centre + (k % 3 - 1)))
        for k in range(12)
        for model, centre in {"good": 7.0, "fair": 5.0}.items()
    ]
    return judged.scores([*found, judged.failed_score("i0", "poor")])


@pytest.fixture
def folder(rows, tmp_path):
    rows.write_parquet(tmp_path / "scores.parquet")
    return tmp_path


@pytest.fixture
def calls(monkeypatch):
    """Calls of the summary."""
    found = []
    summarise = PointwiseRatingSummary.summarise

    def counted(self, context):
        found.append(context)
        return summarise(self, context)

    monkeypatch.setattr(PointwiseRatingSummary, "summarise", counted)
    return found


def tables_of(folder, **changes):
    keeping = Keeping(folder / ".numbers")
    return tables.summarise(FrameFiles(folder), {**SETTINGS, **changes}, keeping=keeping)


def test_they_are_what_is_computed_to_the_last_digit(folder, calls):
    # repr, for nan is not equal to itself.
    expected = repr(tables.summarise(FrameFiles(folder), SETTINGS))
    assert [repr(tables_of(folder)) for _ in range(3)] == [expected] * 3
    assert len(calls) == 2


def test_a_kept_table_is_given_without_reading_the_rows(folder, monkeypatch):
    expected = tables_of(folder)
    monkeypatch.setattr(Context, "rows_of", None)
    assert repr(tables_of(folder)) == repr(expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"statistics": {"n_resamples": 101}},
        {"statistics": {"n_resamples": 100, "confidence_level": 0.9}},
        {"seed": 1},
        {"methods": [{"kind": "pointwise", "judges": ["judge"], "scale": [0, 8]}]},
    ],
)
def test_other_settings_are_computed(folder, calls, changes):
    tables_of(folder)
    found = tables_of(folder, **changes)
    assert repr(found) == repr(tables.summarise(FrameFiles(folder), {**SETTINGS, **changes}))
    assert len(calls) == 3


def test_other_rows_are_computed(folder, rows, calls):
    tables_of(folder)
    rows.head(10).write_parquet(folder / "scores.parquet")
    assert tables_of(folder)[0].basis == "5 prompts"
    assert len(calls) == 2


def test_other_clusters_are_computed(folder, calls):
    alone = tables_of(folder)
    clusters = pl.DataFrame({"item": [f"i{k}" for k in range(12)], "cluster": [*"aabbccddeeff"]})
    clusters.write_parquet(folder / "items.parquet")
    together = tables_of(folder)
    assert (alone[0].basis, together[0].basis) == ("12 prompts", "12 prompts in 6 clusters")
    assert len(calls) == 2


def test_another_version_of_the_code_computes_them(folder, calls, monkeypatch):
    tables_of(folder)
    monkeypatch.setattr(tables, "code_digest", lambda: b"another")
    tables_of(folder)
    assert len(calls) == 2


def test_rows_that_come_meanwhile_are_not_kept_as_those_before(folder, rows, monkeypatch):
    summarise = PointwiseRatingSummary.summarise

    def late(self, context):
        rows.head(10).write_parquet(folder / "scores.parquet")
        return summarise(self, context)

    monkeypatch.setattr(PointwiseRatingSummary, "summarise", late)
    tables_of(folder)
    assert not (folder / ".numbers").exists()


def test_what_is_damaged_is_computed(folder, calls):
    expected = repr(tables_of(folder))
    whole = (folder / ".numbers").read_bytes()
    kept = json.loads(whole.partition(b"\n")[2])
    (key,) = kept
    kept[key][0]["rows"] = 3
    content = json.dumps(kept).encode()
    (folder / ".numbers").write_bytes(tables.checksum(content) + b"\n" + content)
    assert repr(tables_of(folder)) == expected
    assert len(calls) == 2
    assert (folder / ".numbers").read_bytes() == whole


@pytest.mark.parametrize("n_places", [8, pytest.param(20, marks=LONG)])
def test_a_digit_that_changed_is_computed(folder, calls, n_places):
    expected = repr(tables_of(folder))
    whole = (folder / ".numbers").read_bytes()
    places = [at for at, byte in enumerate(whole) if byte in b"123456"]
    for n, at in enumerate(places[:: len(places) // n_places], 2):
        (folder / ".numbers").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert repr(tables_of(folder)) == expected
        assert len(calls) == n


def test_tables_of_other_frames_too_are_computed_each_time(folder, calls, monkeypatch):
    monkeypatch.setattr(PointwiseRatingSummary, "reads_alone", False)
    tables_of(folder)
    tables_of(folder)
    assert len(calls) == 2


def test_a_warning_is_that_of_the_call(folder):
    """The judge's trust depends on thresholds, which are no part of the key."""
    trusted = tables_of(folder)
    statistics = {"n_resamples": 100, "trust": {"missing": 0.01}}
    warned = tables_of(folder, statistics=statistics)
    assert warned[0].warning
    assert not trusted[0].warning
    assert msgspec.structs.replace(warned[0], warning="", comparisons=()).rows == trusted[0].rows
