import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from orchestrator.report.page import make_console
from orchestrator.statistics.judgments import CoverageSummary
from orchestrator.statistics.results import UNCERTAINTY
from tests.report.samples import Stream, an_analysis, printed, ranking_markdown, ranking_text

NAN = float("nan")


@pytest.fixture(scope="module")
def clear():
    return an_analysis(n_failed=2)


@pytest.fixture(scope="module")
def unclear():
    return an_analysis({"a": 0.01, "b": 0.0, "c": -0.01}, n_items=12)


def test_neighbours_are_told_in_words(clear):
    text = printed(ranking_text(clear))
    pair = clear.neighbours[0]
    words = f"resolvable  {pair.difference:+.0f} [{pair.low:.0f}, {pair.high:.0f}]"
    assert re.search(r"expert +apprentice +" + re.escape(words), text)


def test_the_ratings_stand_best_first(clear):
    rows = [line.split()[:2] for line in printed(ranking_text(clear), width=500).splitlines()]
    assert rows[2:5] == [
        ["1", "expert"],
        ["2", "apprentice"],
        ["3", "novice"],
    ]


def test_a_table_says_what_its_intervals_cover(clear):
    assert UNCERTAINTY in printed(ranking_text(clear))


def test_few_prompts_are_called_approximate(unclear):
    assert "fewer than 20 prompts: so few could have missed rare large wins" in printed(
        ranking_text(unclear)
    )


def test_where_nothing_is_resolvable_no_order_is_suggested(unclear):
    text = printed(ranking_text(unclear))
    assert "Not resolvable: no two models can be told apart." in text
    assert "a over" not in text
    assert "b over" not in text
    assert text.count("not resolvable ") == 2
    assert text.count("1–3") == 3  # noqa: RUF001 (an en dash is what is shown)


def test_missing_judgments_are_shown_with_cause_and_model(clear):
    text = printed(ranking_text(clear))
    assert "2 judgments missing, not filled in  of 120" in text
    assert r"• timeout, e.g. \x1b[2Jtoo slow" in text
    assert re.search(r"\n1 +expert .* 78 +2\n", text)


def test_a_model_that_won_everything_has_no_finite_rating():
    text = printed(ranking_text(an_analysis({"best": 60.0, "a": 0.1, "b": 0.0})))
    assert re.search(r"1 +best +– \(no finite rating\)", text)  # noqa: RUF001 (what is shown)


def test_exact_match_is_a_column_where_it_is_known(clear):
    text = printed(ranking_text(clear, {"expert": 0.5, "apprentice": None}))
    assert "exact match" in text
    assert "50.0 %" in text


@pytest.mark.parametrize("n_categories", [2, 3])
def test_small_categories_say_so_wherever_no_figure_does(n_categories):
    analysis = an_analysis(categories=n_categories)
    for text in (
        printed(ranking_text(analysis)),
        ranking_markdown(analysis),
    ):
        assert "not adjusted for multiple comparisons" in text
        assert ("where a category has fewer than 20" in text) == (n_categories == 3)


def test_categories_have_their_own_ratings():
    text = printed(ranking_text(an_analysis(categories=2)))
    assert "By category" in text
    assert re.search(r"c1 +expert .* 20\n", text)


def test_an_empty_ranking_says_why():
    analysis = an_analysis({"a": 0.0, "b": 0.0}, n_items=0)
    assert "there are no judgments" in printed(ranking_text(analysis))


def test_unknown_coverage_is_not_zero(clear):
    unknown = CoverageSummary(NAN, NAN, NAN, 0, 240)
    text = printed(ranking_text(replace(clear, coverage=unknown)))
    assert "judge: 240 readings of unknown mass" in text
    assert re.search(r"readings under one half.*\njudge +– +– +–", text)  # noqa: RUF001 (shown)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_any_terminal_shows_it_all(clear, width, encoding):
    text = printed(ranking_text(clear, {"expert": 0.5}), width, encoding)
    text.encode(encoding)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert re.search(r"expert +apprentice", text)


def test_many_models_with_long_names_fit_a_narrow_terminal():
    strengths = {f"meta-llama/Llama-3.{k}-8B-Instruct": k / 5 for k in range(9)}
    text = printed(ranking_text(an_analysis(strengths, n_items=6)), 60)
    assert max(cell_len(line) for line in text.splitlines()) <= 60


def test_names_from_outside_are_neither_obeyed_nor_read_as_markup():
    strengths = {"[bold red]x[/]": 1.0, "\x1b[2J\u202ey": 0.0}
    text = printed(ranking_text(an_analysis(strengths)))
    assert "[bold red]x[/]" in text
    assert r"\x1b[2J\u202ey" in text
    assert "\x1b" not in text


def test_colour_goes_with_no_color(clear, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Stream(tty=True)
    make_console(stream, 100).print(ranking_text(clear))
    assert "\x1b[3" not in stream.getvalue()


def test_a_terminal_gets_colour(clear):
    stream = Stream(tty=True)
    make_console(stream, 100).print(ranking_text(replace(clear, warning="No ranking: untrusted.")))
    assert "\x1b[1;31m" in stream.getvalue()
