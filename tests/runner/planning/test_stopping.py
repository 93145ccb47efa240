"""Stopping rules of recipes: who decides, what is refused, what `plan` says. Nothing is sent."""

import json
from dataclasses import replace

import pytest

from orchestrator.dataset import from_items
from orchestrator.errors import UsageError
from orchestrator.interface import api
from orchestrator.recipe.load import load
from orchestrator.records import Item, Message
from orchestrator.runner.planning.prepare import prepare
from orchestrator.runner.planning.stopping import Orders, declared_only, tables_of
from tests.e2e.runs import write_recipe
from tests.report.samples import an_analysis
from tools.recipe_schema import json_schema

NOWHERE = "http://127.0.0.1:9"
STOP = {"n_resamples": 1000, "stop_when": {}}
PAIRS = {"kind": "pairwise_ranking", "judges": ["judge"], "prompt": "compact"}
SCORES = {"kind": "pointwise", "judges": ["judge"], "prompt": "compact"}


def rule_of(path, **changes):
    recipe = write_recipe(path / "r.json", NOWHERE, **{"statistics": STOP, **changes})
    loaded = load(recipe)
    return prepare(loaded).rule


def test_a_recipe_without_the_key_has_no_rule(tmp_path):
    assert rule_of(tmp_path, statistics={}) is None


def test_each_method_and_judge_has_orders_of_its_own(tmp_path):
    rule = rule_of(tmp_path, n=50, methods=[PAIRS, SCORES])
    assert [(one.method, one.judge) for one in rule.rankings] == [
        ("pairwise_ranking", "judge"),
        ("pointwise", "judge"),
    ]
    assert (rule.rankings[0].low, rule.rankings[0].high) == (0.0, 1.0)
    assert (rule.rankings[1].low, rule.rankings[1].high) == (1.0, 9.0)
    assert rule.rankings[0].models == ("weak", "mid", "strong")
    assert rule.population is None
    assert rule.error == pytest.approx(0.05)


def test_answers_are_left_out_unless_the_recipe_asks_for_them(tmp_path):
    companions = rule_of(tmp_path, methods=[PAIRS])
    assert sum(bool(fed) for fed in companions.feeds) == 3
    own = rule_of(tmp_path, methods=[{"kind": "answers", "candidates": ["mid"]}, PAIRS])
    assert not own.feeds[0]


def test_the_order_on_this_dataset_knows_its_size(tmp_path):
    statistics = {"stop_when": {"population": "dataset", "block": 5}}
    rule = rule_of(tmp_path, n=33, statistics=statistics)
    assert (rule.population, rule.block, rule.layout().n_blocks) == (33, 5, 7)


def test_methods_that_compare_no_models_are_refused_with_words(tmp_path):
    with pytest.raises(UsageError, match="cannot order models with answers") as told:
        rule_of(tmp_path, methods=[{"kind": "answers"}])
    assert "pairwise_ranking" in str(told.value)


def test_a_best_of_all_is_refused(tmp_path):
    with pytest.raises(UsageError, match="the top 3 of 3 models are all"):
        rule_of(tmp_path, statistics={"stop_when": {"top": 3}})


def test_plan_says_at_least_and_at_most(tmp_path):
    recipe = write_recipe(tmp_path / "r.json", NOWHERE, n=100, statistics=STOP)
    counted = api.plan(recipe, run_dir=tmp_path / "run")
    per_item = 3 + 2 * 3
    assert counted.left == 100 * per_item
    assert counted.at_least == 2 * 20 * per_item
    plain = write_recipe(tmp_path / "r.json", NOWHERE, n=100)
    assert api.plan(plain, run_dir=tmp_path / "run").at_least is None


def items(n):
    return [
        Item(key=f"i{number}", messages=(Message("user", f"question {number}"),))
        for number in range(n)
    ]


def test_the_order_of_items_follows_from_seed_and_content_alone():
    given = items(30)
    keys = [from_items("d", given).shuffled(7).item(n).key for n in range(30)]
    again = [from_items("d", given[::-1]).shuffled(7).item(n).key for n in range(30)]
    other = [from_items("d", given).shuffled(8).item(n).key for n in range(30)]
    assert keys == again
    assert keys != other
    assert sorted(keys) == sorted(other) == sorted(item.key for item in given)
    assert keys != [item.key for item in given]


def test_copies_of_an_item_are_shuffled_apart():
    same = [Item(key="k", messages=(Message("user", "same"),))] * 40
    both = from_items("d", same + items(40)).shuffled(1)
    where = [index for index in range(80) if both.item(index).key == "k"]
    assert where != list(range(where[0], where[0] + 40))


def test_neighbours_of_a_stopped_run_are_told_apart_by_declared_orders_alone(tmp_path):
    # Without orders of its own (all judges together), a ranking declares nothing.
    rule = rule_of(tmp_path)
    orders = Orders(rule, 0, 0, [[]])
    analysis = declared_only(an_analysis(), orders)
    assert analysis.neighbours
    assert not any(pair.resolvable for pair in analysis.neighbours)
    assert all(pair.p_value is None for pair in analysis.neighbours)
    assert "do not account for the stopping" in analysis.notes[0]


def test_orders_by_a_judge_that_is_not_trusted_have_the_warning(tmp_path):
    rule = rule_of(tmp_path)
    orders = Orders(rule, 0, 0, [[] for _ in rule.rankings])
    (ranking,) = rule.rankings
    found = replace(an_analysis(coverage=1e-5), source=ranking.method, judge=ranking.judge)
    assert [table.warning for table in tables_of(orders, [found])] == [found.warning]
    trusted = replace(found, warning="")
    assert [table.warning for table in tables_of(orders, [trusted])] == [""]


def test_the_schema_describes_the_key():
    text = json.dumps(json_schema())
    assert "stop_when" in text
    assert "prompts like these" in text
