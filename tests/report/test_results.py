import json

import polars as pl
from rich.console import Console

from orchestrator.report.results import as_tables, as_text

ANSWERS = pl.DataFrame({
    "model": ["a", "a", "a", "b|<x>"],
    "exact_match": [True, False, None, None],
    "mean_logprob": [-1.0, -2.0, None, -0.5],
    "status": ["ok", "ok", "failed", "ok"],
})  # fmt: skip


def test_answers_alone_say_how_many_they_rest_on():
    console = Console(width=100)
    with console.capture() as captured:
        console.print(*as_tables([], {}, ANSWERS))
    lines = [" ".join(line.split()) for line in captured.get().splitlines()]
    assert "a 2 1 50.0 % 2 -1.500" in lines
    assert "b|<x> 1 0 \u2013 0 -0.500" in lines


def test_answers_alone_are_a_document_too():
    (document,) = json.loads(as_text("json", [], {}, ANSWERS))
    assert document["answers"][0]["n_failed"] == 1
    assert document["answers"][1]["exact_match"] is None


def test_answers_alone_are_escaped_in_markdown():
    assert "| b\\|&lt;x&gt; | 1 |" in as_text("markdown", [], {}, ANSWERS)


def test_no_answers_are_an_empty_list():
    assert json.loads(as_text("json", [], {}, None)) == []
    assert as_tables([], {}, ANSWERS.clear()) == []
