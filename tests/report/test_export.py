"""Tables as LaTeX, HTML and frames: aligned, complete, and with nothing in them that is obeyed."""

import math
import re
import shutil
import subprocess
from html.parser import HTMLParser

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.report.export import frame_of, html, table_of
from orchestrator.report.latex import escaped, latex
from orchestrator.tables import Column, Measured, Table, make_table
from tests.report.hostile import ATTACKS, MODELS

TEX = (
    r"\input{/etc/passwd}",
    r"\immediate\write18{touch hacked}",
    "^^5cinput{x} %comment",
    "a & b \\\\ \\hline # $x$ _ ~ | < > \" ' ` -- ''",
    "[1em] * !` ?` }}{{",
)
RATINGS = make_table(
    "ratings",
    "Ranking of 3 models & friends",
    [
        Column("model"), Column("rating", "rating"), Column("share", "percent"),
        Column("d", "signed"),
    ],
    [
        ("large_v1", Measured(1402.0, 1300.0, 1504.0), Measured(0.812, 0.7, 0.9, n=20), -0.05),
        ("50% small", Measured(561.0, -math.inf, 743.0), 0.0, 0.0),
        ("none", Measured(None, why="no finite rating"), None, None),
    ],
    basis="n = 60 judgments",
    notes=["intervals are over prompts"],
)  # fmt: skip


def rows_of(text: str) -> list[list[str]]:
    """The cells of the rows between \\midrule and \\bottomrule."""
    body = text.split("\\midrule\n")[1].split("  \\bottomrule")[0]
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)&", line.strip().removesuffix(r"\\"))]
        for line in body.strip().splitlines()
    ]


def test_a_value_and_its_interval_are_columns_of_their_own():
    text = latex(RATINGS, name="ratings.judge")
    assert r"\begin{tabular}{lr@{\ }lr@{\ }l@{\ }lr}" in text
    assert r"\caption{Ranking of 3 models \& friends. n = 60 judgments.}" in text
    assert r"\label{tab:ratings-judge}" in text
    assert rows_of(text) == [
        [r"large\_v1", "$1{,}402$", "[$1{,}300$, $1{,}504$]", r"$81.2$\,\%", "[$70.0$, $90.0$]",
         "n=$20$", "$-0.050$"],
        [r"50\% small", "$561$", "(open, $743$]", r"$0.0$\,\%", "", "", "$+0.000$"],
        ["none", r"--\textsuperscript{a}", "", "--", "", "", "--"],
    ]  # fmt: skip
    assert r"\textsuperscript{a} no finite rating." in text
    assert "intervals are over prompts." in text
    assert "open: the data give no bound on this side." in text


def test_a_warning_stands_below_the_table():
    table = Table("k", "t", (Column("m"),), (("x",),), warning="The run is not complete.")
    assert r"\textbf{The run is not complete.}" in latex(table, name="k")
    assert "<strong>The run is not complete.</strong>" in html(table, name="k")


@pytest.mark.parametrize("text", [*TEX, *ATTACKS, *MODELS])
def test_tex_obeys_nothing_of_a_text(text):
    shown = escaped(text)
    assert "\n" not in shown
    # What is left of commands and special characters is our own.
    commands = set(re.findall(r"\\([A-Za-z]+|.)", shown))
    assert commands <= {
        "textbackslash", "textasciicircum", "textasciitilde", "textless", "textgreater",
        "textbar", "textasciigrave", "ldots", "{", "}", "$", "&", "#", "%", "_",
    }  # fmt: skip
    bare = re.sub(r"\\(?:[A-Za-z]+(?:\{\})?|.)|\{\[\}|\{\]\}|\{\*\}|'\{\}|-\{\}", "", shown)
    assert not set('\\{}$&#%_^~[]*"`<>|') & set(bare)


@given(st.text())
def test_a_row_has_as_many_cells_as_columns_for_any_text(text):
    table = make_table("k", text, [Column(text), Column("b")], [(text, text)], notes=[text])
    (row,) = rows_of(latex(table, name=text))
    assert len(row) == 2


@pytest.mark.slow
def test_tex_compiles_hostile_tables(tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("TeX is absent")
    plain = [text for text in (*TEX, *ATTACKS, *MODELS) if escaped(text[:200]).isascii()]
    assert len(plain) > 8
    rows = [(text[:200], Measured(1.0 * n, n - 1.0, n + 1.0)) for n, text in enumerate(plain)]
    hostile = make_table(
        "k", TEX[3], [Column(TEX[2]), Column("r", "rating")], rows, notes=[*plain[:3]]
    )
    tables = "\n".join(latex(table, name=table.title) for table in (RATINGS, hostile))
    source = (
        "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n"
        f"{tables}\\end{{document}}\n"
    )
    (tmp_path / "x.tex").write_text(source, encoding="utf-8")
    done = subprocess.run(
        ("pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "x.tex"),
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "x.pdf").stat().st_size > 1000
    assert not (tmp_path / "hacked").exists()


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)


def test_a_page_holds_only_our_own_tags():
    rows = [(text, text) for text in (*ATTACKS, *MODELS)]
    table = make_table("k", ATTACKS[0], [Column(ATTACKS[1]), Column("b")], rows, notes=ATTACKS)
    found = _Tags()
    found.feed(html(table, name=ATTACKS[3]))
    assert found.tags <= {
        "html", "head", "meta", "title", "style", "body", "table", "caption", "strong", "thead",
        "tr", "th", "tbody", "td", "ul", "li",
    }  # fmt: skip


def test_a_table_as_a_frame_keeps_numbers_and_ends_of_intervals():
    frame = frame_of(RATINGS)
    assert frame.columns == [
        "model", "rating", "rating.low", "rating.high", "rating.why",
        "share", "share.low", "share.high", "share.n", "d",
    ]  # fmt: skip
    assert frame["rating"].to_list() == [1402.0, 561.0, None]
    assert frame["rating.low"].to_list() == [1300.0, -math.inf, None]
    assert frame["rating.why"].to_list() == [None, None, "no finite rating"]
    assert frame["share"].to_list() == [0.812, 0.0, None]
    assert frame["share.n"].to_list() == [20, None, None]


def test_columns_of_one_name_are_all_kept():
    table = make_table("k", "t", [Column("a"), Column("a", "count")], [("x", 3)])
    assert frame_of(table).to_dict(as_series=False) == {"a": ["x"], "a_": [3]}


def test_a_frame_as_a_table_keeps_what_is_missing_apart_from_zero():
    frame = pl.DataFrame({"n": [0, None], "d": [0.0, None], "p": [[0.5], None], "t": ["a", None]})
    table = table_of("frame", frame)
    assert [column.form for column in table.columns] == ["count", "number", "text", "text"]
    assert table.rows == ((0, 0.0, "[0.5]", "a"), (None, None, "", ""))
