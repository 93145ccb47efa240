import json
import re
from itertools import pairwise

import jsonschema
import pytest

from orchestrator.report.brief import brief
from orchestrator.report.text import escaped
from orchestrator.report.words import pairs_apart, ranking_json, told_apart
from orchestrator.statistics.ranking import Pair
from tests.report.samples import an_analysis, printed, ranking_markdown, ranking_text


@pytest.fixture(scope="module")
def analysis():
    return an_analysis(n_failed=2, categories=2)


def test_markdown_tables_have_as_many_cells_as_headings(analysis):
    lines = ranking_markdown(analysis, {"expert": 0.5}).splitlines()
    for above, line in pairwise(lines):
        if above.startswith("|") and line.startswith("|"):
            assert above.count("|") == line.count("|")


def test_markdown_says_which_neighbours_are_resolvable(analysis):
    assert r"| expert | apprentice | resolvable | \+" in ranking_markdown(analysis)


def test_markdown_warns_where_nothing_is_resolvable():
    text = ranking_markdown(an_analysis({"a": 0.01, "b": 0.0}, n_items=10))
    assert "\nNot resolvable: the two models cannot be told apart." in text


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


@pytest.fixture(scope="module")
def close():
    """Five models of which no neighbours can be told apart, but the first and the last can."""
    strengths = {name: 0.1 * place for place, name in enumerate("edcba")}
    return an_analysis(strengths, n_items=60)


def test_every_format_says_which_models_can_be_told_apart(close):
    apart = [(pair.better, pair.worse) for pair in close.pairs if pair.resolvable]
    assert ("a", "e") in apart
    assert not any(pair.resolvable for pair in close.neighbours)
    said = told_apart(close).text()
    assert said.startswith(f"{len(apart)} of 10 pairs of models can be told apart: a over ")
    assert said in ranking_markdown(close)
    shown = printed(ranking_text(close), width=400)
    assert " ".join(shown.split()).count(said) == 1
    assert brief(rankings=[close]).questions[0].apart.text() == said
    document = ranking_json(close)
    assert document["order_resolvable"] is True
    assert document["verdict"] == said
    told = [(pair["better"], pair["worse"]) for pair in document["pairs"] if pair["resolvable"]]
    assert told == apart
    assert len(document["pairs"]) == 10


def test_the_sentence_stays_short_with_thirty_models():
    strengths = {f"model-number-{i}": 0.1 * i for i in range(30)}
    said = told_apart(an_analysis(strengths, n_items=60)).text()
    assert re.fullmatch(r"\d+ of 435 pairs of models can be told apart\.", said)


@pytest.mark.parametrize("n_apart", [8, 9, 426, 427, 435])
def test_pairs_are_named_where_they_are_few(n_apart):
    """Nine pairs of models with long names are a paragraph that nobody reads."""
    pairs = [
        Pair(f"a{i}", f"b{i}", None, None, None, 0.001, None, resolvable=i < n_apart)
        for i in range(435)
    ]
    said = pairs_apart(pairs, 0.95).text()
    count = "All 435" if n_apart == 435 else f"{n_apart} of 435"
    start = f"{count} pairs of models can be told apart"
    rests = {8: ": a0 over b0; ", 427: "; these cannot: a427 and b427; "}
    assert said.startswith(start + rests.get(n_apart, "."))
    assert ("a434" in said) == (n_apart == 427)


def test_where_all_can_be_told_apart_one_sentence_says_so(analysis):
    assert told_apart(analysis).text() == "All 3 pairs of models can be told apart."


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
        "required": [
            "format",
            "order_resolvable",
            "verdict",
            "ratings",
            "pairs",
            "neighbours",
            "wins",
            "failures",
        ],
        "properties": {
            "format": {"const": 2},
            "ratings": {
                "type": "array",
                "items": {"required": ["model", "rating", "low", "high", "rank_low", "n_missing"]},
            },
        },
    }
    document = ranking_json(analysis, {"expert": 0.5})
    jsonschema.validate(document, schema)
    assert document["exact_match"] == {"expert": 0.5}
