"""Whatever a model says, tables, files and the live display show it and obey nothing of it."""

import csv
import io
import json
import time
import unicodedata

import polars as pl
import pytest
from hypothesis import strategies as st

from orchestrator.report.export import harmless, write_frame
from orchestrator.report.generic import generic_json, generic_markdown, generic_table
from orchestrator.report.live import frame
from orchestrator.report.page import print_to
from orchestrator.report.progress import Pace
from orchestrator.report.text import escaped, safe_line, safe_name
from orchestrator.tables import Column, make_table
from orchestrator.wire.failures import clean
from tests.fuzz.fuzzing import HOSTILE, TEXTS, fuzz
from tests.report.samples import Stream, a_model, a_progress

HUGE = 10_000_000
MOST_CPU_S = 2.0
SAYINGS = TEXTS | st.lists(TEXTS, max_size=4).map("".join)
STORED = SAYINGS.map(lambda text: text.encode("utf-8", "replace").decode())
"""As the store and frames hold them: there are no lone surrogates in them."""
BIDI = {*"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}
FORMULAS = ("=", "@", "\uff1d", "\uff20")


def obeyed(text: str, *, lines: bool = False) -> list[str]:
    """Characters that a terminal obeys, or that reorder or hide what stands beside them."""
    allowed = "\n" if lines else ""
    return [
        one
        for one in text
        if unicodedata.category(one) in {"Cc", "Cf", "Cs"} and one not in allowed
    ]


def is_a_command(character: str) -> bool:
    """Return True if a terminal obeys it or it reorders text."""
    return unicodedata.category(character) in {"Cc", "Cs"} or character in BIDI


@fuzz(200, text=SAYINGS, width=st.none() | st.integers(0, 30))
def test_lines_and_names_are_one_line_without_commands(text, width):
    for shown in (safe_line(text, width), safe_name(text, width), escaped(text, width)):
        assert obeyed(shown) == []
        shown.encode()
    assert safe_line(text, ascii_only=True).isascii()


@fuzz(200, text=SAYINGS)
def test_markdown_has_no_tags_links_or_cells_of_its_own(text):
    shown = escaped(text)
    assert "<" not in shown
    assert ">" not in shown
    assert all(shown[at - 1] == "\\" for at, one in enumerate(shown) if one in "|[]`*")


@fuzz(200, text=SAYINGS)
def test_messages_of_servers_are_short_and_on_one_line(text):
    said = clean(text)
    assert said.isprintable()
    assert len(said) <= 500


@fuzz(100, texts=st.lists(STORED, min_size=1, max_size=4))
def test_csv_has_no_formulas_and_no_commands_and_as_many_rows(texts):
    shown = harmless(pl.DataFrame({"text": texts}, schema={"text": pl.String}))
    read = list(csv.reader(io.StringIO(shown.write_csv(), newline="")))
    assert len(read) == len(texts) + 1
    for (cell,) in read[1:]:
        assert not cell.lstrip().startswith(FORMULAS)
        assert [one for one in obeyed(cell) if one not in "\t\r\n" and is_a_command(one)] == []


def test_the_head_of_a_csv_has_no_formulas_and_no_commands():
    shown = harmless(pl.DataFrame({"=1+1": ["a"], "b\x1b[2J": ["c"], "plain": ["d"]}))
    assert shown.columns == ["'=1+1", "b\\x1b[2J", "plain"]


@pytest.mark.parametrize("sign", ["\uff1d", "\uff20", "\uff0b", "\uff0d"])
def test_full_width_signs_begin_formulas_too(sign):
    assert harmless(pl.DataFrame({"x": [f"{sign}1+1"]}))["x"][0].startswith("'")


@fuzz(60, texts=st.lists(STORED, min_size=1, max_size=3))
def test_tables_in_every_format_obey_nothing(texts):
    columns = [Column("who"), Column(texts[-1])]
    table = make_table("t", texts[0], columns, [(text, text) for text in texts], notes=texts)
    stream = Stream()
    print_to(stream, generic_table(table), width=60)
    assert obeyed(stream.getvalue(), lines=True) == []
    assert obeyed(generic_markdown(table), lines=True) == []
    assert json.loads(json.dumps(generic_json(table)))


@fuzz(40, text=SAYINGS)
def test_the_live_display_obeys_nothing(text):
    progress = a_progress(models=(a_model(text),), run_dir=text, failures={text: 3})
    stream = Stream()
    print_to(stream, frame(text, progress, Pace()), width=70)
    assert obeyed(stream.getvalue(), lines=True) == []


@pytest.mark.parametrize("piece", [text for text in HOSTILE if text])
def test_ten_megabytes_are_shown_soon(piece):
    text = piece * (HUGE // len(piece))
    begun = time.process_time()
    safe_line(text, 80)
    safe_name(text, 80)
    escaped(text, 80)
    clean(text)
    assert time.process_time() - begun < MOST_CPU_S


def test_files_of_ten_megabytes_hold_them(tmp_path):
    texts = ["=" * HUGE, "\x1b[2J" * (HUGE // 4)]
    for form in ("csv", "jsonl", "parquet"):
        write_frame([pl.DataFrame({"text": texts})], tmp_path / form, form)
    assert pl.read_parquet(tmp_path / "parquet")["text"].to_list() == texts
    assert pl.read_ndjson(tmp_path / "jsonl")["text"].to_list() == texts
    assert b"\x1b" not in (tmp_path / "csv").read_bytes()
