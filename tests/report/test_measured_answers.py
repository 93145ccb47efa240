"""What the brief says of measures, on both sides of each threshold, as approved texts."""

from itertools import product
from typing import Any

import pytest

from orchestrator import numbers
from orchestrator.report import brief_measures
from orchestrator.report.brief import brief
from orchestrator.tables import Column, Comparison, Measured, ModelPair, Table

INF = float("inf")
VALUES: dict[str, dict[str, Any]] = {
    "two apart": {"a": (0.9, 0.8, 1.0), "b": (0.5, 0.4, 0.6)},
    "two that touch": {"a": (0.9, 0.6, 1.0), "b": (0.5, 0.4, 0.6)},
    "two equal": {"a": (0.5, 0.4, 0.6), "b": (0.5, 0.3, 0.7)},
    "one undefined": {"a": (None, None, None), "b": (0.5, 0.4, 0.6)},
    "all undefined": {"a": (None, None, None), "b": (None, 0.0, None)},
    "no bound above": {"a": (0.9, 0.8, INF), "b": (0.5, -INF, 0.6)},
    "three apart": {"a": (0.9, 0.8, 1.0), "b": (0.5, 0.4, 0.6), "c": (0.2, 0.1, 0.3)},
    "first two close": {"a": (0.6, 0.5, 0.7), "b": (0.55, 0.45, 0.65), "c": (0.2, 0.1, 0.3)},
    "two first": {"a": (0.6, 0.5, 0.7), "b": (0.6, 0.5, 0.7), "c": (0.2, 0.1, 0.3)},
    "none apart": {"a": (0.6, 0.1, 0.9), "b": (0.5, 0.1, 0.9), "c": (0.4, 0.1, 0.9)},
}
SIZES = {"few": (19, None), "enough": (20, None), "few clusters": (40, 19), "no size": (None, None)}


def table(values, size, **other):
    rows = tuple(
        (name, Measured(value, low, high, n=size[0], n_clusters=size[1]))
        for name, (value, low, high) in values.items()
    )
    columns = (Column("model"), Column("accuracy", "percent"))
    return Table("key", "Title", columns, rows, source="scores", **other)


def said(tables, level=0.95):
    for question in brief_measures.questions(tables, {}, level):
        yield f"  {question.state}: {question.answer.text()}"
        yield f"  apart: {question.apart.text()} ({question.n_apart} of {question.n_pairs})"
        yield f"  {question.interval} | {question.basis} | {question.subject.text()}"
        for one in question.standings:
            yield f"  {one.model}: {one.shown} {one.bounds} {one.low_open} {one.high_open}"
        yield from (f"  {one.about}: {one.says.text()}" for one in question.checks)


def test_answers(approved):
    lines = []
    for values, size in product(VALUES, SIZES):
        if size == "few" or values in ("two apart", "first two close"):
            lines += [f"{values}, {size}", *said([table(VALUES[values], SIZES[size])])]
    approved("\n".join(lines))


@pytest.mark.parametrize("warning", ["", "The judge cannot be trusted."])
def test_answers_from_pairs(approved, warning):
    lines = []
    values = VALUES["first two close"]
    for apart in ((), ("a b",), ("a c", "b c"), ("a b", "a c", "b c")):
        pairs = tuple(
            ModelPair(
                first,
                second,
                Measured(values[first][0] - values[second][0], 0.01, 0.5, n=30),
                p_value=0.01,
                adjusted_p=0.03,
                resolvable=f"{first} {second}" in apart,
            )
            for first, second in (("a", "b"), ("a", "c"), ("b", "c"))
        )
        compared = (Comparison("", 0.9, pairs),)
        one = table(values, SIZES["enough"], comparisons=compared, warning=warning)
        lines += [f"apart: {', '.join(apart)}", *said([one], 0.9)]
    approved("\n".join(lines))


SCORES = (
    ("features.mean_logprob", "+", Measured(0.6, 0.4, 0.7)),
    ("features.softmax_entropy", "-", Measured(-0.8, -0.9, -0.5)),
    ("features.combo", "+", Measured(None, why="no spread")),
)


def test_scores_are_ordered_by_what_is_expected_of_them():
    columns = (Column("score", "score"), Column("expected"), Column("Spearman", "signed", 2))
    one = Table("key", "Correlation with gold: exact match", columns, SCORES, source="scores")
    (found,) = brief_measures.questions([one], {}, 0.95)
    assert found.over == "score"
    assert [(each.model, each.shown, each.bounds) for each in found.standings] == [
        ("softmax entropy", "+0.80", "[+0.50, +0.90]"),
        ("mean log-prob", "+0.60", "[+0.40, +0.70]"),
        ("combo", numbers.UNDEFINED, "no spread"),
    ]
    said = (
        "Highest Spearman: softmax entropy +0.80 [+0.50, +0.90]; not clearly above mean log-prob."
    )
    assert found.answer.text() == said
    assert found.basis.startswith("Correlation with gold: exact match; positive as expected")
    assert found.n_pairs == 0
    assert not found.apart


def test_the_first_table_of_what_is_no_question_stands_in_the_brief():
    made = [
        Table("a", "A", (Column("score", "score"),), (("x",),), source="one"),
        Table("b", "B", (Column("model"),), (("m",),), source="one"),
        Table("c", "C", (), (), notes=("skipped",), source="two"),
        table(VALUES["two apart"], SIZES["enough"]),
    ]
    assert [one.title for one in brief(tables=made).tables] == ["A"]
