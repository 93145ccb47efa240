"""Tables of glass-box features."""

import polars as pl

from orchestrator.columns import pack_row
from orchestrator.contracts.method import schema_of
from orchestrator.frames import make_frame
from orchestrator.methods import glass_box
from orchestrator.methods.glass_box import Config
from orchestrator.tables import Measured, cell_text
from tests.summaries.told import summarise
from tests.tables import by_name

SCHEMA = {"method": "str", **schema_of(glass_box.Kind)}


def row(item, **more):
    base = {
        "method": "glass_box", "item": item, "model": "m", "scorer": "m", "turn": 1,
        "answer": "x", "n_tokens": 2, "truncated": False, "observed": "score", "status": "ok",
    }  # fmt: skip
    return {**base, **more}


def frame(rows):
    return make_frame(SCHEMA, [pack_row(SCHEMA, one) for one in rows])


ROWS = frame([
    row("a", mean_logprob=-1.0, softmax_entropy=1.0, vocab_logprob_var=3.0),
    row("b", mean_logprob=-2.0, softmax_entropy=2.0, vocab_logprob_var=5.0),
    row("c", mean_logprob=-3.0, softmax_entropy=4.0, vocab_logprob_var=1.0),
    row("d", n_tokens=0, undefined="empty answer"),
    row("e", truncated=True, status="failed"),
])  # fmt: skip


def lines(table):
    return by_name(table, 1)


def test_features_are_means_with_what_they_rest_on(context_of):
    features, answers = summarise(context_of("glass_box", glass_box, ROWS))
    found = lines(features)["mean_logprob"]
    assert isinstance(found["mean"], Measured)
    assert (found["mean"].value, found["answers"], found["undefined"]) == (-2.0, 3, 1)
    assert found["mean"].low is not None
    assert found["mean"].low < -2 < (found["mean"].high or 0)
    assert answers.rows == (("m", 4, 1, 1, 1.5, 0),)


def test_only_features_that_were_asked_for_are_shown_each_with_its_direction(context_of):
    features, _ = summarise(context_of("glass_box", glass_box, ROWS))
    found = lines(features)
    assert "attention_entropy_min" not in found
    assert (found["softmax_entropy"]["better"], found["combo"]["better"]) == ("-", "+")
    assert "combo_of_model" not in found


def test_bounds_have_no_direction_and_are_said_to_be_bounds(context_of):
    config = Config(features=(), alternatives=5)
    rows = frame([row("a", softmax_entropy_low=0.5), row("b", softmax_entropy_low=0.7)])
    features, _ = summarise(context_of("glass_box", glass_box, rows, config=config))
    found = lines(features)
    assert found["softmax_entropy_low"]["better"] == ""
    assert "softmax_entropy_high" not in found
    shown = {cell_text(features.columns[1], line[1]) for line in features.rows}
    assert "softmax entropy (lower bound)" in shown


def test_nothing_is_said_of_no_rows(context_of):
    assert summarise(context_of("glass_box", glass_box, ROWS.clear())) == []


def test_a_frame_of_one_prompt_has_no_interval(context_of):
    features, _ = summarise(context_of("glass_box", glass_box, ROWS.head(1)))
    cell = lines(features)["mean_logprob"]["mean"]
    assert isinstance(cell, Measured)
    assert (cell.value, cell.low) == (-1.0, None)
    assert cell.why


def test_a_table_of_two_models_keeps_them_apart(context_of):
    rows = pl.concat([ROWS.head(3), ROWS.head(3).with_columns(model=pl.lit("n"))])
    features, answers = summarise(context_of("glass_box", glass_box, rows))
    assert {cells[0] for cells in features.rows} == {"m", "n"}
    assert len(answers.rows) == 2


def test_features_that_the_rows_lack_are_not_shown(context_of):
    features, _ = summarise(context_of("glass_box", glass_box, ROWS.drop("softmax_entropy")))
    found = lines(features)
    assert "mean_logprob" in found
    assert not {"softmax_entropy", "combo"} & set(found)
