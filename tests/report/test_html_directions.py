"""Names in scripts from right to left in the sentences and titles of pages."""

import re
from html.parser import HTMLParser

import pytest

from orchestrator.figures import Figure
from orchestrator.report.brief import brief
from orchestrator.report.html import page, shell
from orchestrator.report.html.shell import render
from orchestrator.tables import Column, Measured, make_table
from tests.report import hostile
from tests.report.samples import an_analysis

NAMES = ("نموذج كبير", "מודל קטן")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff]")
_PROSE = frozenset({"h1", "h2", "h3", "h4", "p", "li", "summary", "dd"})


class Prose(HTMLParser):
    """Collects texts from right to left in prose: with others in a `bdi`, and in none."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.n_isolated = 0
        self.wrong: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self._open.append(tag)

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if not _PROSE & set(self._open) or not _RIGHT_TO_LEFT.search(data):
            return
        self.n_isolated += 1
        if self._open[-1] != "bdi" or re.search("[A-Za-z0-9:,]", data):
            self.wrong.append(data)


def assert_isolated(text: str) -> None:
    reader = Prose()
    reader.feed(text)
    assert reader.n_isolated >= 3
    assert reader.wrong == []


@pytest.fixture(autouse=True)
def _without_charts(monkeypatch):
    monkeypatch.setattr(shell, "_NEEDED", ("no_such_module",))


def test_names_in_a_report_keep_their_place_in_titles_and_sentences():
    analysis = an_analysis(dict.fromkeys(NAMES, 1.0), n_items=30)
    rows = [(name, Measured(0.5, 0.4, 0.6)) for name in NAMES]
    table = make_table(
        "t", f"{NAMES[0]}: 2 scores", (Column("model"), Column("score")), rows,
        basis=f"{NAMES[1]}: 30 items",
    )  # fmt: skip
    found = hostile.material(
        rankings=[analysis],
        tables=[table],
        n_left=0,
        brief=brief(name="x", rankings=[analysis], tables=[table], notes=[f"{NAMES[0]}: 3 of 5"]),
    )
    assert_isolated(page.render(found))
    assert_isolated(page.summary(found))


def test_names_in_a_comparison_keep_their_place_in_titles_and_sentences():
    rows = [(name, Measured(0.5, 0.4, 0.6)) for name in NAMES]
    columns = (Column("model"), Column("difference", "signed"))
    note = f"{NAMES[0]}: 3 of 5 items"
    table = make_table(
        "t", f"{NAMES[0]} - {NAMES[1]}: 2 runs", columns, rows, basis=note, notes=[note],
    )  # fmt: skip
    figure = Figure("t", table.title, note, "", table)
    found = render("a and b", [note], [note], [figure])
    assert_isolated(found)
    assert f"<bdi>{NAMES[0]}</bdi> - <bdi>{NAMES[1]}</bdi>" in found


def test_code_in_a_sentence_is_shown_as_code_and_markup_in_it_stays_text():
    note = "Set `chain_of_thought: true`; `<script>alert(1)</script>` is no setting"
    found = render("a and b", [note], [], [])
    assert "Set <code>chain_of_thought: true</code>; " in found
    assert "<code>&lt;script&gt;alert(1)&lt;/script&gt;</code> is no setting" in found
    assert "<script>alert" not in found
