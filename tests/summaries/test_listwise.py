"""Tables of lists: ranks by model, and by the place at which an answer is shown."""

import pytest

from orchestrator.methods import listwise
from orchestrator.methods.listwise import Config
from orchestrator.tables import Measured
from tests.summaries import judged
from tests.summaries.told import summarise
from tests.tables import lines

CONFIG = Config(judges=("judge",))
# Of each model in two lists: where it is shown, its place in the list, its expected rank.
SHOWN = {"a": (1.0, 3.0), "b": (2.0, 2.0), "c": (3.0, 1.0)}
PLACES = {"a": (1.0, 2.0), "b": (2.0, 3.0), "c": (3.0, 1.0)}
RANKS = {"a": (1.2, 1.6), "b": (2.1, 2.5), "c": (2.7, 1.9)}


def row(item, a, b, **more):
    return {
        "method": "listwise", "item": item, "turn": 1, "model_a": a, "model_b": b,
        "judge": "judge", "prefer_a": 0.6, "mean_pre": 0.1, "mean_post": 0.1, "mode_post": 0.0,
        "coverage_ab": 0.9, "coverage_ba": 0.9, "same_text": False, "status": "ok",
        **{f"{name}_{side}": list(of[model])
           for name, of in (("shown", SHOWN), ("places", PLACES), ("ranks", RANKS))
           for side, model in (("a", a), ("b", b))},
        **more,
    }  # fmt: skip


ROWS = [row(f"i{k}", a, b) for k in range(10) for a, b in (("a", "b"), ("a", "c"), ("b", "c"))]


@pytest.fixture
def tables(context_of):
    def make(rows):
        frame = judged.frame(listwise, rows)
        found = summarise(context_of("listwise", listwise, frame, config=CONFIG))
        return {table.key: table for table in found}

    return make


def values(table, column):
    cells = [line[column] for line in lines(table)]
    assert all(isinstance(cell, Measured) for cell in cells)
    return [cell.value for cell in cells]


def test_each_answer_counts_once_a_list(tables):
    table = tables(ROWS)["listwise"]
    assert [(line["model"], line["lists"]) for line in lines(table)] == [
        ("a", 20), ("b", 20), ("c", 20),
    ]  # fmt: skip
    assert values(table, "expected rank") == pytest.approx([1.4, 2.3, 2.3])
    assert values(table, "place in the list") == pytest.approx([1.5, 2.5, 2.0])
    assert values(table, "listed first") == pytest.approx([0.5, 0.0, 0.5])


def test_an_order_bias_is_seen_by_place(tables):
    table = tables(ROWS)["listwise.places"]
    assert [line["shown at place"] for line in lines(table)] == ["1", "2", "3"]
    assert values(table, "expected rank") == pytest.approx([1.55, 2.3, 2.15])
    assert values(table, "listed first") == pytest.approx([1.0, 0.0, 0.0])


def test_what_a_list_does_not_name_has_no_place_and_is_not_first(tables):
    unnamed = {"places_b": [None, None], "ranks_b": [None, None]}
    table = tables([row(f"i{k}", "c", "b", **unnamed) for k in range(5)])["listwise"]
    by = {line["model"]: line for line in lines(table)}
    assert by["b"]["expected rank"].value is None
    assert by["b"]["listed first"].value == 0.0


def test_failed_pairs_are_left_out_and_without_others_there_is_no_table(tables):
    failed = {"status": "failed", "cause": "no_logprobs", "prefer_a": None}
    assert tables([row("i", "a", "b", **failed)]) == {}
    mixed = [*ROWS, row("j", "a", "b", **failed)]
    assert lines(tables(mixed)["listwise"])[0]["lists"] == 20
