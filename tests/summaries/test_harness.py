"""Tables of verdicts and preferences, against numbers made by hand."""

import pytest

from orchestrator.contracts.method import schema_of
from orchestrator.methods import align_bench, alpaca_eval, mt_bench_judge, self_generation
from orchestrator.summaries._verdicts import LANGUAGE, REASONING
from tests.summaries.told import frame, summarise, verdicts
from tests.tables import lines


def mt_bench(mode):
    return mt_bench_judge.Config(judges=("j",), prompts="compact", mode=mode)


@pytest.fixture
def ratings(context_of):
    rows = verdicts(
        {"model": "a", "item": "1", "rating": 4.0, "category": "math"},
        {"model": "a", "item": "1", "rating": 6.0, "turn": 2, "category": "math"},
        {"model": "a", "item": "2", "rating": 8.0, "category": "writing"},
        {"model": "a", "item": "2", "turn": 2, "status": "failed", "cause": "no_verdict",
         "rating": -1.0, "parsed": False},
        {"model": "b", "item": "1", "rating": 9.0, "category": "math"},
        {"model": "b", "item": "2", "rating": 9.5, "category": "writing"},
    )  # fmt: skip
    context = context_of("mt_bench_judge", mt_bench_judge, rows, config=mt_bench("single"))
    return summarise(context)


def test_a_rating_is_the_mean_over_questions_and_turns_and_leaves_out_what_is_missing(ratings):
    best, other = lines(ratings[0])
    assert (best["model"], best["rating"].value) == ("b", 9.25)
    assert other["rating"].value == pytest.approx(6.0)
    assert (other["turn 1"], other["turn 2"]) == (6.0, 6.0)
    assert (other["ratings"], other["missing"]) == (3, 1)
    assert "missing verdicts are excluded from all numbers: no_verdict 1" in ratings[0].notes
    assert ratings[0].basis == "2 prompts \u00b7 1 missing"


def test_categories_stand_apart(ratings):
    by_category = {(line["model"], line["category"]): line for line in lines(ratings[1])}
    assert by_category["a", "math"]["rating"].value == 5.0
    assert by_category["a", "math"]["prompts"] == 1


def test_wins_ties_and_losses_of_both_sides(context_of):
    pair = {"model_a": "a", "model_b": "b"}
    rows = verdicts(
        {**pair, "item": "1", "winner": "A", "winner_ab": "A", "winner_ba": "A", "prefer_a": 0.9},
        {**pair, "item": "2", "winner": "tie", "winner_ab": "A", "winner_ba": "B", "prefer_a": 0.6},
        {**pair, "item": "3", "winner": "tie", "winner_ab": "tie", "winner_ba": "tie",
         "prefer_a": 0.5},
        {**pair, "item": "4", "status": "failed", "cause": "no_verdict", "winner_ab": "A"},
    )  # fmt: skip
    config = mt_bench("pairwise")
    models, pairs = summarise(context_of("mt_bench_judge", mt_bench_judge, rows, config=config))
    a, b = lines(models)
    assert (a["model"], a["wins"], a["ties"], a["losses"], a["missing"]) == ("a", 1, 2, 0, 1)
    assert (b["model"], b["wins"], b["ties"], b["losses"], b["missing"]) == ("b", 0, 2, 1, 1)
    assert a["adjusted win rate"].value == pytest.approx(2 / 3)
    assert a["win rate"] == pytest.approx(1 / 3)
    assert a["preferred"] == pytest.approx(2 / 3)
    assert a["adjusted win rate"].value + b["adjusted win rate"].value == pytest.approx(1)
    (pair_line,) = lines(pairs)
    assert pair_line["orders agree"] == pytest.approx(2 / 3)
    assert pair_line["first in both"] == pytest.approx(1 / 3)
    assert pair_line["verdicts"] == 3


def test_verdicts_that_a_convention_made_are_counted(context_of):
    rows = verdicts({"model": "a", "rating": 5.0, "parsed": False})
    context = context_of("self_generation", self_generation, rows)
    (table,) = summarise(context)
    assert table.notes[0].startswith("each model rates itself")
    assert "1 texts without a clear verdict are counted by the convention" in table.notes


def test_the_overall_score_of_align_bench_is_its_macro_average(context_of):
    names = {**REASONING, **LANGUAGE}
    rating = {"Math": 4.0, "Logic": 6.0}
    rows = verdicts(
        *(
            {"model": "a", "item": f"{name}{n}", "category": names[name],
             "rating": rating.get(name, 8.0) + spread}
            for name in names
            for n, spread in enumerate((-1.0, 1.0))
        )
    )  # fmt: skip
    config = align_bench.Config(judges=("j",), prompts="compact")
    tables = summarise(context_of("align_bench", align_bench, rows, config=config))
    (line,) = lines(tables[0])
    assert line["reasoning"].value == pytest.approx(5.0)
    assert line["language"].value == pytest.approx(8.0)
    assert line["overall"].value == pytest.approx(6.5)
    assert line["over all questions"] == pytest.approx((2 * 5.0 + 6 * 8.0) / 8)
    assert line["overall"].low < 6.5 < line["overall"].high


def test_a_category_without_a_rating_leaves_the_overall_score_undefined(context_of):
    rows = verdicts({"model": "a", "category": "Math", "rating": 5.0})
    config = align_bench.Config(judges=("j",), prompts="compact")
    context = context_of("align_bench", align_bench, rows, config=config)
    (line,) = lines(summarise(context)[0])
    assert line["overall"].value is None
    assert line["overall"].why == "a category has no rating"


def test_preferences_become_win_rates(context_of):
    preferences = [1.0, 1.5, 2.0, 1.9, 1.2, 1.8, None]
    rows = frame(
        schema_of(alpaca_eval.Kind),
        [
            {"item": str(i), "model": "a", "baseline": "base", "judge": "j", "turn": 1,
             "preference": value, "status": "ok" if value else "failed", "model_first": i % 2 == 0,
             "n_characters": 10 + i, "n_characters_baseline": 12, "same_text": value == 1.5}
            for i, value in enumerate(preferences)
        ],
    )  # fmt: skip
    config = alpaca_eval.Config(judges=("j",), prompts="compact", baseline="base")
    wins, lengths = summarise(context_of("alpaca_eval", alpaca_eval, rows, config=config))
    (line,) = lines(wins)
    assert line["win rate"].value == pytest.approx(3.4 / 6)
    assert line["discrete"] == pytest.approx(3.5 / 6)
    assert (line["n"], line["missing"]) == (6, 1)
    assert "length-controlled" not in line
    assert "to the difficulties of the instructions" in wins.notes[1]
    (line,) = lines(lengths)
    assert (line["characters"], line["equal text"]) == (12.5, pytest.approx(1 / 6))
