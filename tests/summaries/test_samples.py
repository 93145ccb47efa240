import polars as pl
import pytest

from orchestrator.contracts.method import schema_of
from orchestrator.frames import polars_schema
from orchestrator.methods import consistency, samples
from tests.core.fakes import method_in
from tests.summaries.told import summarise
from tests.summaries.told import summarise as summarise_consistency
from tests.tables import lines


def frame(module, rows):
    schema = {"method": pl.String(), **polars_schema(schema_of(method_in(module)))}
    return pl.DataFrame(rows, schema=schema)


def sample(item, ell, text="t", model="m"):
    row = {"item": item, "model": model, "text": text, "ell": ell, "status": "ok"}
    return {"method": "samples", **row}


@pytest.fixture
def tables(context_of):
    rows = [sample("1", -1.0), sample("1", -3.0, "u"), sample("2", -2.0), sample("2", None)]
    found = summarise(context_of("samples", samples, frame(samples, rows)))
    return {table.key: lines(table) for table in found}


def test_the_variance_is_that_within_a_question(tables):
    (line,) = tables["samples"]
    # Question 2 has one known value, so no variance.
    assert line["variance"].value == pytest.approx(2.0)
    assert (line["samples"], line["no ell"]) == (4, 1)


def test_repeated_texts_of_a_question_are_counted_once(tables):
    assert tables["samples"][0]["distinct"] == 3 / 4


def test_the_curve_is_the_mean_of_each_questions_percentiles(tables):
    (line,) = tables["samples.curve"]
    assert (line["0 %"], line["50 %"], line["100 %"]) == (-2.5, -2.0, -1.5)


def test_consistency_is_shown_by_model_and_time(context_of):
    rows = [
        {"item": str(i), "model": "m", "again": again, "exact_match": i == again, "token_f1": 0.5,
         "status": "ok"}
        for i in range(4)
        for again in (1, 2)
    ]  # fmt: skip
    rows.append({"item": "9", "model": "m", "status": "failed"})
    (table,) = summarise_consistency(
        context_of("consistency", consistency, frame(consistency, rows))
    )
    found = lines(table)
    assert [line["compared"] for line in found] == ["x, x1", "x, x2"]
    assert found[0]["exact match"].value == 0.25
    assert found[0]["similarity"].value is None
    assert table.basis == "5 prompts · 1 failed (m 1)"
