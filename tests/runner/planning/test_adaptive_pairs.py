"""Choice of comparisons by a recipe: what is chosen from, what is refused. Nothing is sent."""

import pytest

from orchestrator.errors import RecipeError, UsageError
from orchestrator.recipe.load import load
from orchestrator.runner import api
from orchestrator.runner.planning.prepare import prepare
from orchestrator.runner.planning.stopping import Orders, new_blocks, tables_of
from orchestrator.scheduler.blocks import AdaptiveBlocks
from tests.e2e.runs import write_recipe

NOWHERE = "http://127.0.0.1:9"
SCORES = {"kind": "pointwise", "judges": ["judge"], "prompt": "compact"}


def rule_of(path, adaptive, **changes):
    statistics = {"adaptive_pairs": adaptive, **changes.pop("statistics", {})}
    recipe = write_recipe(path / "r.json", NOWHERE, **{"statistics": statistics, **changes})
    return prepare(load(recipe), recipe.parent).rule


def test_the_rule_has_the_settings_and_the_seed(tmp_path):
    rule = rule_of(tmp_path, {"share": 0.25, "top": 1, "block": 5}, n=50, seed=3)
    assert (rule.block, rule.top, rule.error) == (5, 1, pytest.approx(0.05))
    assert (rule.adaptive.share, rule.adaptive.seed, rule.adaptive.baseline) == (0.25, 3, "")
    assert [one.models for one in rule.rankings] == [("weak", "mid", "strong")]


def test_methods_that_judge_models_one_by_one_are_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot choose pairs of models with pointwise"):
        rule_of(tmp_path, {"share": 0.5}, methods=[SCORES])


def test_a_baseline_is_a_candidate(tmp_path):
    with pytest.raises(UsageError, match="'judge' is no candidate of pairwise_ranking") as told:
        rule_of(tmp_path, {"share": 0.5, "baseline": "judge"})
    assert "weak, mid, strong" in str(told.value)


def test_a_best_of_all_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"adaptive_pairs.top: the top 3 of 3 models are all"):
        rule_of(tmp_path, {"share": 0.5, "top": 3})


@pytest.mark.parametrize(
    ("adaptive", "statistics", "message"),
    [
        ({"share": 0.5, "top": 1, "baseline": "mid"}, {}, "two goals"),
        ({"share": 0.5}, {"stop_when": {}}, "two rules"),
        ({"share": 0}, {}, "share"),
        ({}, {}, "share"),
    ],
)
def test_settings_that_cannot_be_are_faults_of_the_recipe(tmp_path, adaptive, statistics, message):
    with pytest.raises(RecipeError, match=message):
        rule_of(tmp_path, adaptive, statistics=statistics)


def test_plan_bounds_the_requests_by_the_share(tmp_path):
    statistics = {"adaptive_pairs": {"share": 0.5}}
    recipe = write_recipe(tmp_path / "r.json", NOWHERE, n=100, statistics=statistics)
    counted = api.plan(recipe, run_dir=tmp_path / "run")
    judgments = sum(stage.left for stage in counted.stages if stage.name == "judgments")
    # Three pairs in two orders: all would be 600.
    assert 290 <= judgments <= 300
    assert counted.at_least is not None
    assert counted.at_least < 0.5 * counted.left


def test_a_table_of_places_says_what_is_open_before_anything_is_known(tmp_path):
    for adaptive, place in (
        ({"share": 0.5}, "1 to 3"),
        ({"share": 0.5, "top": 1}, "not settled yet"),
        ({"share": 0.5, "baseline": "mid"}, "not settled yet"),
    ):
        rule = rule_of(tmp_path, adaptive)
        blocks = new_blocks(rule)
        assert isinstance(blocks, AdaptiveBlocks)
        (table,) = tables_of(Orders(rule, 0, 0, 1, [], blocks.choices))
        assert {row[2] for row in table.rows} == {place}
        assert {row[1] for row in table.rows} == {None}
        assert len(table.rows) == (2 if "baseline" in adaptive else 3)
        assert table.basis.startswith("0 of")
