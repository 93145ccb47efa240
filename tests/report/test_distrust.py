"""Judges that do not answer in the requested form: each format warns first and claims nothing."""

import json

import msgspec
import numpy as np
import polars as pl
import pytest

from orchestrator.interface.exporting import _on_page
from orchestrator.ranking.analysis import analyse_ranking
from orchestrator.ranking.judged import tabulate
from orchestrator.ranking.trust import of_rows
from orchestrator.records import Standing
from orchestrator.report.brief import brief
from orchestrator.report.generic import generic_json, generic_markdown, generic_table
from orchestrator.report.html import page, ranked
from orchestrator.report.lines import JsonPainter, PlainPainter
from orchestrator.report.progress import RankingProgress
from orchestrator.report.text import escaped
from orchestrator.report.words import ranking_json
from orchestrator.statistics.trust import DEFAULTS, no_ranking_by_judge
from orchestrator.tables import Column, Measured, make_table, untrusted
from tests.ranking.conftest import simulated
from tests.report import hostile
from tests.report.samples import (
    Stream,
    a_progress,
    an_analysis,
    printed,
    ranking_markdown,
    ranking_text,
)
from tests.report.test_live import framed


@pytest.fixture(scope="module")
def doubtful():
    return an_analysis(coverage=3e-5, categories=2)


@pytest.fixture(scope="module")
def table():
    made = make_table("pointwise.scores", "Scores", [Column("model")], [["a"]], basis="4 prompts")
    rows = pl.DataFrame({"judge": ["small"] * 4, "coverage": [1e-5, 0.2, None, 0.9]})
    return untrusted(made, warnings_of(rows))


def warnings_of(rows):
    trusts = of_rows([rows], DEFAULTS, 0.95)
    return no_ranking_by_judge(trusts[""])


def test_no_order_and_no_rank_is_claimed(doubtful):
    assert "judge does not answer in the requested form" in doubtful.warning
    assert "100 % of its readings" in doubtful.warning
    assert "mean <0.01" in doubtful.warning
    assert not doubtful.order_resolvable
    assert not any(pair.resolvable for pair in doubtful.pairs)
    assert {(m.rank_low, m.rank_high) for m in doubtful.ratings} == {(1, 3)}


def test_the_same_judgments_with_their_labels_are_trusted():
    assert an_analysis(coverage=0.6).warning == ""
    assert an_analysis(coverage=0.6).order_resolvable


def test_a_pool_with_one_such_judge_is_not_trusted(frames_of_two_judges):
    found = frames_of_two_judges
    assert "small does not answer" in found.warning
    assert "large" not in found.warning
    assert not found.order_resolvable


@pytest.fixture
def frames_of_two_judges():
    frames = [
        simulated({"a": 1.0, "b": -1.0}, 30, np.random.default_rng(seed), judge=judge)
        for seed, judge in enumerate(("large", "small"))
    ]
    low = pl.when(pl.col("judge") == "small").then(1e-4)
    frame = pl.concat(frames).with_columns(
        coverage_ab=low.otherwise("coverage_ab"), coverage_ba=low.otherwise("coverage_ba")
    )
    return analyse_ranking(tabulate([frame], len(frame)), judge=None, confidence_level=0.95)


def test_the_terminal_warns_in_its_first_line_and_marks_no_pair(doubtful):
    text = printed(ranking_text(doubtful), width=500)
    first, second, *_ = text.splitlines()
    assert first.startswith("No ranking of 3 models by judge  ")
    assert second == doubtful.warning
    assert "●" not in text
    assert "Win rates (untrusted)" in text
    assert "expert over" not in text


def test_markdown_warns_before_any_number(doubtful):
    lines = ranking_markdown(doubtful).splitlines()
    assert lines[0] == "## No ranking of 3 models by judge"
    assert lines[2] == f"**{escaped(doubtful.warning)}**"
    assert "| resolvable |" not in "\n".join(lines)


def test_json_says_it_before_the_ratings(doubtful):
    document = ranking_json(doubtful)
    assert list(document)[:4] == ["format", "warning", "trusted", "order_resolvable"]
    assert document["warning"] == doubtful.warning
    assert (document["trusted"], document["order_resolvable"]) == (False, False)
    json.dumps(document, allow_nan=False)


def test_the_page_the_viewer_and_the_notebook_begin_with_it(doubtful, table):
    about = hostile.material(rankings=[doubtful], tables=[table])
    (first,) = about.brief.questions
    assert first.answer.text() == "No ranking: judge does not answer in the requested form."
    detail, _, advice = doubtful.warning.removeprefix("No ranking: ").partition(" Try ")
    assert first.detail == detail
    assert f"Try {advice}" in [step.text() for step in about.brief.next_steps]
    with_interval = msgspec.structs.replace(table, columns=(*table.columns, Column("mean")))
    rows = tuple((name, Measured(1.0, 0.5, 1.5)) for name in "ab")
    (second,) = brief(tables=[msgspec.structs.replace(with_interval, rows=rows)]).questions
    why = table.warning.removeprefix("No ranking: ").partition(" Try ")[0]
    assert (second.state, second.detail) == ("withheld", why)
    assert not first.is_drawn
    shown = page.render(about)
    body = shown[shown.index("<main") :]
    assert body.index("No ranking: ") < body.index("meaningless") < body.index("<table")
    short = page.summary(about)
    assert short.index("Incomplete: ") < short.index("No ranking: ") < short.index("How far to")
    (figure,) = ranked.ranking(doubtful, ["expert", "apprentice", "novice"])
    assert figure.picture is None
    assert figure.says.startswith("These numbers are no result")
    assert figure.title == "No ranking of 3 models by judge"


def test_tables_of_methods_say_it_before_their_rows(table):
    assert "small does not answer in the requested form" in table.warning
    assert "67 % of its readings" in table.warning
    shown = printed(generic_table(table), width=500).splitlines()
    assert shown[0].startswith("Scores (untrusted)")
    assert shown[1] == table.warning
    assert generic_markdown(table).splitlines()[2] == f"**{escaped(table.warning)}**"
    assert generic_json(table)["warning"] == table.warning
    assert _on_page(table).basis == f"{table.warning} 4 prompts"


def test_a_table_of_one_judge_has_the_warning_of_that_judge_alone():
    warnings = warnings_of(pl.DataFrame({"judge": ["small", "large"], "coverage": [0.1, 0.9]}))
    tables = [make_table("k", "t", [], [], judge=judge) for judge in ("small", "large", "")]
    assert [bool(untrusted(one, warnings).warning) for one in tables] == [True, False, True]


def test_a_frame_of_the_live_display_says_it():
    standings = (Standing("a", 1010.0, 5.0, 40),)
    forming = RankingProgress(
        "pairwise", 40, standings, untrusted=("small", ""),
        reasons=("does not answer in the requested form", "contradicts itself by order"),
    )  # fmt: skip
    text = framed(a_progress(rankings=(forming,)), 200)
    said = "small does not answer in the requested form; the judge contradicts itself by order"
    assert f"pairwise untrusted ({said}), after 40 prompts" in text


@pytest.mark.parametrize("painter", [PlainPainter, JsonPainter])
def test_a_ranking_that_forms_says_it(painter):
    standings = (Standing("a", 1010.0, 5.0, 40), Standing("b", 990.0, 5.0, 40))
    forming = RankingProgress(
        "pairwise", 40, standings, untrusted=("small",), reasons=("contradicts itself by order",)
    )
    shown = {}
    for trusted in (False, True):
        stream = Stream()
        made = painter(stream)
        made.start("demo", 100)
        now = msgspec.structs.replace(forming, untrusted=()) if trusted else forming
        made.update(a_progress(61.0, rankings=(now,)))
        made.stop()
        shown[trusted] = stream.getvalue()
    words = '"untrusted": ["small"]' if painter is JsonPainter else "untrusted (small contradicts"
    assert words in " ".join(shown[False].split())
    assert words not in " ".join(shown[True].split())
