import json
from itertools import pairwise

import jsonschema
import pytest

from orchestrator.report.markdown import escaped, ranking_markdown
from orchestrator.report.structured import ranking_json
from tests.report.samples import an_analysis


@pytest.fixture(scope="module")
def analysis():
    return an_analysis(n_failed=2, categories=2)


def test_markdown_tables_have_as_many_cells_as_headings(analysis):
    lines = ranking_markdown(analysis, {"expert": 0.5}).splitlines()
    for above, line in pairwise(lines):
        if above.startswith("|") and line.startswith("|"):
            assert above.count("|") == line.count("|")


def test_markdown_says_which_neighbours_are_resolvable(analysis):
    assert "| expert over apprentice | resolvable | +" in ranking_markdown(analysis)


def test_markdown_warns_where_nothing_is_resolvable():
    text = ranking_markdown(an_analysis({"a": 0.01, "b": 0.0}, n_items=10))
    assert "**Not resolvable: no two neighbours can be told apart." in text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a|b", r"a\|b"),
        ("<script>", "&lt;script&gt;"),
        ("[x](javascript:y)", r"\[x\]\(javascript:y\)"),
        ("**bold**", r"\*\*bold\*\*"),
        ("Llama-3.1-8B", "Llama-3.1-8B"),
        ("- item", r"\- item"),
        ("a\nb", "a b"),
        ("@someone", r"\@someone"),
    ],
)
def test_markdown_shows_names_as_they_are(raw, shown):
    assert escaped(raw) == shown


def test_json_has_no_number_that_json_lacks():
    analysis = an_analysis({"best": 60.0, "a": 0.0}, n_items=1)
    text = json.dumps(ranking_json(analysis), allow_nan=False)
    assert "Infinity" not in text


def test_json_marks_an_open_bound():
    best = ranking_json(an_analysis({"best": 60.0, "a": 0.1, "b": 0.0}))["ratings"][0]
    assert best["rating"] is None
    assert best["high_open"] is True


def test_json_has_what_the_table_has(analysis):
    schema = {
        "type": "object",
        "required": ["format", "order_resolvable", "ratings", "neighbours", "wins", "failures"],
        "properties": {
            "format": {"const": 1},
            "ratings": {
                "type": "array",
                "items": {"required": ["model", "rating", "low", "high", "rank_low", "n_missing"]},
            },
        },
    }
    document = ranking_json(analysis, {"expert": 0.5})
    jsonschema.validate(document, schema)
    assert document["exact_match"] == {"expert": 0.5}
