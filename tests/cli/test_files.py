import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.report.export.files import Format, harmless, write_frame

EVIL = '\x1b[31mred\x1b]0;t\x07\u202e \x9b5m\x7f\ufeff a,"b"\n| x'
FRAME = pl.DataFrame({
    "text": [EVIL, "=1+1", None, "plain é 模型"],
    "p": [[0.5, None], None, [], [1.0]],
    "n": [1, 2, None, 4],
})  # fmt: skip
OBEYED = set("\x1b\x07\u202e\x9b\x7f\ufeff")


TEXTS: tuple[Format, ...] = ("csv", "jsonl")


@pytest.mark.parametrize("form", TEXTS)
def test_no_text_file_holds_what_a_terminal_obeys(tmp_path, form):
    path = tmp_path / f"x.{form}"
    write_frame(FRAME, path, form)
    assert not OBEYED & set(path.read_text(encoding="utf-8"))


def test_parquet_and_json_lines_hold_the_data_exactly(tmp_path):
    write_frame(FRAME, tmp_path / "new" / "x.parquet", "parquet")
    write_frame(FRAME, tmp_path / "new" / "x.jsonl", "jsonl")
    assert pl.read_parquet(tmp_path / "new" / "x.parquet").equals(FRAME)
    assert pl.read_ndjson(tmp_path / "new" / "x.jsonl").equals(FRAME)


@given(st.lists(st.text(), max_size=5))
def test_json_lines_change_no_text(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("x") / "x.jsonl"
    write_frame(pl.DataFrame({"text": texts}, schema={"text": pl.String}), path, "jsonl")
    found = [
        json.loads(line)["text"] for line in path.read_text(encoding="utf-8").split("\n") if line
    ]
    assert found == texts


def test_csv_holds_lists_as_json(tmp_path):
    write_frame(FRAME, tmp_path / "x.csv", "csv")
    read = pl.read_csv(tmp_path / "x.csv")
    assert read["p"].to_list() == ["[0.5, null]", None, "[]", "[1.0]"]
    assert read.height == FRAME.height


@pytest.mark.parametrize(
    "formula", ["=1+1", "@SUM(A1)", "+1+cmd|' /C calc'!A0", "-2+3+cmd|x", " =1", "-a", "\t=1"]
)
def test_csv_has_no_formulas(formula):
    assert harmless(pl.DataFrame({"x": [formula]}))["x"][0] == f"'{formula}"


@pytest.mark.parametrize(
    "text", ["-1.5", "+3", "-1e-3", "-5 %".replace(" ", ""), "- item", "a=b", ""]
)
def test_csv_leaves_numbers_and_lists_alone(text):
    assert harmless(pl.DataFrame({"x": [text]}))["x"][0] == text


def test_a_file_that_can_not_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "x.csv", tmp_path):
        with pytest.raises(UsageError, match="cannot be written"):
            write_frame(FRAME, path, "csv")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
