"""Tables of confidence measures."""

from orchestrator.columns import pack_row
from orchestrator.contracts.method import schema_of
from orchestrator.frames import make_frame
from orchestrator.methods import confidence
from orchestrator.methods.confidence import Config
from orchestrator.tables import Measured, cell_text
from tests.summaries.told import summarise

SCHEMA = {"method": "str", **schema_of(confidence.Kind)}


def row(item, **more):
    base = {
        "method": "confidence", "item": item, "model": "m", "turn": 1, "answer": "x",
        "n_tokens": 4, "truncated": False, "observed": "draw", "status": "ok",
    }  # fmt: skip
    return {**base, **more}


ROWS = make_frame(SCHEMA, [pack_row(SCHEMA, one) for one in [
    row("a", token_confidence=2.0, n_short=1, p_true=0.5, p_true_coverage=0.9),
    row("b", token_confidence=4.0, n_short=0, p_true=1.0, p_true_coverage=0.7),
    row("c", n_tokens=0, undefined="empty answer"),
    row("d", status="failed"),
]])  # fmt: skip


def test_measures_are_means_with_what_they_rest_on(context_of):
    measures, read = summarise(context_of("confidence", confidence, ROWS))
    found = {line[1]: line for line in measures.rows}
    assert list(found) == [*list(found)[:4], "p_true"]
    (_, _, better, mean, answers, undefined) = found["token_confidence"]
    assert isinstance(mean, Measured)
    assert (mean.value, better, answers, undefined) == (3.0, "+", 2, 1)
    # One of eight positions lists fewer tokens; the empty answer has none.
    assert read.rows[0][:4] == ("m", 3, 1, 1)
    assert read.rows[0][5:] == (0.125, 0.8, None)


def test_bounds_are_said_to_be_bounds(context_of):
    config = Config(vocabulary_size=9)
    measures, _ = summarise(context_of("confidence", confidence, ROWS, config=config))
    shown = {cell_text(measures.columns[1], line[1]) for line in measures.rows}
    assert "self-certainty (lower bound)" in shown
