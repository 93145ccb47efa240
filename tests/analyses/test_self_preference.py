import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from orchestrator.analyses.self_preference import Config, Kind
from orchestrator.contracts.context import Context, Source
from orchestrator.errors import UsageError
from orchestrator.methods import pairwise_ranking
from tests.core.fakes import method_in
from tests.summaries import judged
from tests.tables import lines

STRENGTHS = {"x": 0.08, "y": 0.0, "z": -0.08, "w": 0.02}


def tables(favours=None, judges=("x", "judge", "third"), n_items=40, **config):
    """Judgments in which some judges lean to some models beyond their strength."""
    rng = np.random.default_rng(3)
    rows = []
    for k in range(n_items):
        seen = {model: s + rng.normal(0, 0.03) for model, s in STRENGTHS.items()}
        for judge in judges:
            leans = (favours or {}).get(judge, {})
            said = {model: s + leans.get(model, 0.0) for model, s in seen.items()}
            rows += judged.all_pairs(f"i{k}", said, judge=judge)
    method = method_in(pairwise_ranking)(pairwise_ranking.Config(judges=judges))
    source = Source("pairwise_ranking", "pairwise_ranking", method, method.frame)
    frames = {method.frame: judged.frame(pairwise_ranking, rows)}
    context = Context("self_preference", frames, pl.DataFrame(), [source], 0.95, 200, 0)
    found = Kind(Config(**config)).summarise(context)
    return {table.key: table for table in found}


def test_a_judge_that_likes_its_own_answers_is_found_out():
    (row,) = lines(tables({"x": {"x": 0.2}})["self_preference"])
    assert (row["judge"], row["favour for"], row["pairs"]) == ("x", "itself", 120)
    assert row["favour"].low > 0
    assert row["against an equal answer"].low > 0.5
    assert row["its preference"] > row["of the others"]


def test_a_judge_that_is_the_best_model_is_not_accused_for_it():
    (row,) = lines(tables()["self_preference"])
    assert row["its preference"] > 0.5
    assert row["favour"].low < 0 < row["favour"].high
    assert row["p"] > 0.05


def test_a_family_is_told_apart_from_the_judge_itself():
    favours = {"judge": {"y": 0.2}}
    (own, family) = lines(
        tables(favours, families={"acme": ("judge", "y"), "other": ("x",)})["self_preference"]
    )
    assert (own["judge"], own["favour for"]) == ("judge", "its family")
    assert own["favour"].low > 0
    assert (family["judge"], family["favour for"]) == ("x", "itself")


def test_ratings_lose_the_favour():
    rows = {row["model"]: row for row in lines(tables({"x": {"z": 0.25}},
            families={"f": ("x", "z")})["self_preference.ratings"])}  # fmt: skip
    assert rows["z"]["pooled"].value > rows["y"]["pooled"].value
    assert rows["z"]["without favour"].value < rows["y"]["without favour"].value


@pytest.mark.parametrize(
    ("judges", "config", "why"),
    [
        (("one", "two"), {}, "is a candidate"),
        (("x",), {}, "has several judges"),
        (("x",), {"method": "pairwise_ranking"}, "does not have several"),
        (("x", "y"), {"families": {"f": ("x", "z"), "g": ("y", "w")}}, "too few models"),
    ],
)
def test_what_can_not_be_told_is_refused(judges, config, why):
    with pytest.raises(UsageError, match=why):
        tables(judges=judges, **config)


def test_a_model_has_one_family():
    with pytest.raises(ValidationError, match="one family: y"):
        Config(families={"a": ("x", "y"), "b": ("y",)})
