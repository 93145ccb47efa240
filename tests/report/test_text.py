import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from orchestrator.report.page import Page
from orchestrator.report.text import isolated, own_words, safe_line, safe_name


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("a\tb\r\nc\u2028d", "a b c d"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]8;;http://x\x07link", r"\x1b]8;;http://x\x07link"),
        ("\x9b31m", r"\x9b31m"),
        ("user\u202egnp.exe", r"user\u202egnp.exe"),
        ("\u2066iso\u2069", r"\u2066iso\u2069"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("lone \ud800 surrogate", r"lone \ud800 surrogate"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("déjà 中文 😀", "déjà 中文 😀"),
        ("[bold]not markup[/]", "[bold]not markup[/]"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(raw, shown):
    assert safe_line(raw) == shown


def test_towers_of_marks_are_cut():
    assert safe_line("e" + "\u0301" * 50 + "x") == "e" + "\u0301" * 3 + "x"


def test_width_is_counted_in_columns_not_characters():
    assert safe_line("中文中文", 5) == "中文…"


def test_names_keep_both_ends():
    assert safe_name("meta-llama/Llama-3.1-8B-Instruct", 16) == "meta-lla…nstruct"


def test_ascii_output_escapes_what_it_lacks():
    assert safe_line("é中", ascii_only=True) == r"\xe9\u4e2d"


def test_ascii_cut_uses_three_dots():
    assert safe_line("abcdefgh", 6, ascii_only=True) == "abc..."


def test_our_own_words_have_an_ascii_form():
    assert own_words("≥ 1 · ≤ 2…", ascii_only=True) == ">= 1 | <= 2..."


@given(st.text(max_size=200), st.integers(0, 40), st.booleans())
def test_any_text_fits_its_width_on_one_line(text, width, ascii_only):
    for function in (safe_line, safe_name):
        line = function(text, width, ascii_only=ascii_only)
        assert cell_len(line) <= width
        assert line.isascii() or not ascii_only
        assert not any(unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in line)
        line.encode()


def test_a_megabyte_is_cut_before_it_is_looked_at():
    assert safe_line("x" * 1_000_000) == "x" * 4096 + "…"


def test_a_name_written_from_right_to_left_is_set_apart_and_takes_no_more_room():
    """Else a terminal that orders such text shows the numbers behind the name before it."""
    name = "\u0646\u0645\u0648\u0630\u062c-2"
    assert isolated(name) == f"\u2068{name}\u2069"
    page = Page(80)
    assert page.name(name).plain == page.names([name], 20)[name] == isolated(name)
    assert page.name(name).cell_len == cell_len(name) == 7
    assert page.name("gpt-4").plain == page.names(["gpt-4"], 20)["gpt-4"] == "gpt-4"
    # What is spelt out in ASCII needs none, and a name's own isolates are spelt out.
    assert Page(80, ascii_only=True).name(name).plain.isascii()
    assert page.name(f"\u2067{name}").plain == f"\u2068\\u2067{name}\u2069"
