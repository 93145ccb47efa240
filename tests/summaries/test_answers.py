import polars as pl
import pytest

from orchestrator.methods import answers
from tests.summaries.told import summarise
from tests.tables import by_name

ROWS = pl.DataFrame({
    "method": ["answers"] * 4,
    "item": ["1", "2", "3", "1"],
    "model": ["a", "a", "a", "b"],
    "exact_match": [True, False, None, None],
    "mean_logprob": [-1.0, -2.0, None, -0.5],
    "n_tokens": [3, 5, None, 4],
    "finish_reason": ["stop", "length", None, "stop"],
    "status": ["ok", "ok", "failed", "ok"],
})  # fmt: skip


@pytest.fixture
def lines(context_of):
    (table,) = summarise(context_of("answers", answers, ROWS))
    return by_name(table)


def test_answers_and_failures_are_counted_apart(lines):
    assert (lines["a"]["answers"], lines["a"]["failed"]) == (2, 1)


def test_exact_match_rests_on_answers_with_a_reference(lines):
    right = lines["a"]["exact match"]
    assert (right.value, right.n) == (0.5, 2)
    assert right.low < 0.5 < right.high


def test_without_a_reference_there_is_no_exact_match(lines):
    assert lines["b"]["exact match"] is None


def test_no_rows_make_no_table(context_of):
    assert summarise(context_of("answers", answers, ROWS.clear())) == []
