import numpy as np
import polars as pl
import pytest

from orchestrator.runner.results.tables import summarise
from tests.summaries import styled, test_peer_elo

SETTINGS = {"methods": [{"kind": styled.KIND, "judges": ["judge"]}]}


def told(frames, settings=SETTINGS, **options):
    """The tables of style, by source and key."""
    tables = summarise(frames, settings, **options)
    return {(one.source, one.key): one for one in tables if one.key.startswith("style_control")}


def test_ratings_at_equal_style_stand_beside_those_of_every_judge():
    found = told(styled.frames(styled.padded, bias=0.2))
    assert list(found) == [(styled.KIND, "style_control"), (styled.KIND, "style_control.effects")]
    ratings = found[styled.KIND, "style_control"]
    names = [column.name for column in ratings.columns]
    assert names[:4] == ["model", "rating", "at equal style", "change"]
    assert [row[0] for row in ratings.rows] == ["x", "y", "z"]


def test_they_are_left_out_where_the_recipe_says_so():
    settings = {**SETTINGS, "statistics": {"style_control": False}}
    assert not told(styled.frames(styled.padded, bias=0.2), settings)


@pytest.mark.parametrize(("value", "is_told"), [(None, True), ("temperature", False)])
def test_a_setting_of_an_older_version_that_was_left_unset_changes_nothing(value, is_told):
    analysis = {"kind": "sharpening", "of_an_older_version": value}
    settings = {**SETTINGS, "analyses": [analysis]}
    keys = [one.key for one in summarise(styled.frames(styled.padded, bias=0.2), settings)]
    assert ("sharpening.skipped" in keys) != is_told


@pytest.mark.parametrize("left_out", [None, "answers", "differences"])
def test_there_is_no_table_where_no_feature_can_be_controlled(left_out):
    frames = styled.frames(styled.padded, bias=0.2)
    if left_out == "answers":
        del frames["answers"]
    elif left_out == "differences":
        frames["answers"] = frames["answers"].with_columns(text=pl.lit("same"))
    assert bool(told(frames)) == (left_out is None)


def test_they_are_not_trusted_where_the_judge_is_not():
    frames = styled.frames(styled.padded, bias=0.2)
    low = {side: pl.lit(0.01) for side in ("coverage_ab", "coverage_ba")}
    frames["judgments"] = frames["judgments"].with_columns(**low)
    tables = told(frames).values()
    assert tables
    assert all(table.warning for table in tables)


def test_peers_have_them_too():
    rng = np.random.default_rng(0)
    rows = test_peer_elo.rows_of()
    answers = [
        {"method": "answers", "item": item, "model": model, "turn": 1, "text": "w" * length}
        for item in dict.fromkeys(row["item"] for row in rows)
        for model, length in zip(test_peer_elo.MODELS, rng.integers(10, 99, 4), strict=True)
    ]
    frames = {"peer_votes": test_peer_elo.frame(rows), "answers": pl.DataFrame(answers)}
    assert ("peer_elo", "style_control") in told(frames, {"methods": [{"kind": "peer_elo"}]})
