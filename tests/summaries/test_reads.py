"""Summaries read the columns that they name and no texts, which a long run has gigabytes of."""

import pytest

from orchestrator import contracts, plugins
from orchestrator.contracts.method import Method, schema_of

TEXTS = {"text", "text_ba", "answer", "answer_again", "rewriting", "prompt", "reference", "message"}


def summaries():
    for kind in plugins.kinds(plugins.METHODS):
        method = contracts.load(Method, kind)
        summary = contracts.summary(kind, method)
        if summary is not None:
            yield pytest.param(summary, schema_of(method), id=kind)


@pytest.mark.parametrize(("summary", "schema"), list(summaries()))
def test_a_summary_names_columns_of_its_rows_and_no_texts(summary, schema):
    assert summary.reads is not None
    assert set(summary.reads) <= set(schema)
    assert not TEXTS & set(summary.reads)
