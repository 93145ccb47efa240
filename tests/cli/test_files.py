import errno
import json
import os
from functools import partial
from typing import Literal

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StoreError, UsageError, on_disk_error
from orchestrator.frames import FrameFiles, slices_of
from orchestrator.report.export import Format, _cell, frame_text, harmless, write_frame

EVIL = '\x1b[31mred\x1b]0;t\x07\u202e \x9b5m\x7f\ufeff a,"b"\n| x'
FRAME = pl.DataFrame({
    "text": [EVIL, "=1+1", None, "plain é 模型"],
    "p": [[0.5, None], None, [], [1.0]],
    "n": [1, 2, None, 4],
})  # fmt: skip
OBEYED = set("\x1b\x07\u202e\x9b\x7f\ufeff")


TEXTS: tuple[Literal["csv", "jsonl"], ...] = ("csv", "jsonl")


@pytest.mark.parametrize("form", TEXTS)
def test_no_text_file_holds_what_a_terminal_obeys(tmp_path, form):
    path = tmp_path / f"x.{form}"
    write_frame([FRAME], path, form)
    assert not OBEYED & set(path.read_text(encoding="utf-8"))


def test_parquet_and_json_lines_hold_the_data_exactly(tmp_path):
    write_frame([FRAME], tmp_path / "new" / "x.parquet", "parquet")
    write_frame([FRAME], tmp_path / "new" / "x.jsonl", "jsonl")
    assert pl.read_parquet(tmp_path / "new" / "x.parquet").equals(FRAME)
    assert pl.read_ndjson(tmp_path / "new" / "x.jsonl").equals(FRAME)


@given(st.lists(st.text(), max_size=5))
def test_json_lines_change_no_text(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("x") / "x.jsonl"
    write_frame([pl.DataFrame({"text": texts}, schema={"text": pl.String})], path, "jsonl")
    found = [
        json.loads(line)["text"] for line in path.read_text(encoding="utf-8").split("\n") if line
    ]
    assert found == texts


def test_csv_holds_lists_as_json(tmp_path):
    write_frame([FRAME], tmp_path / "x.csv", "csv")
    read = pl.read_csv(tmp_path / "x.csv")
    assert read["p"].to_list() == ["[0.5, null]", None, "[]", "[1.0]"]
    assert read.height == FRAME.height


NUMBERS = {
    pl.Float64: st.floats(),
    pl.Int64: st.integers(-(2**63), 2**63 - 1),
    pl.Boolean: st.booleans(),
}


@given(st.data(), st.sampled_from([*NUMBERS]))
def test_csv_holds_every_list_of_numbers_exactly(data, kind):
    lists = data.draw(st.lists(st.none() | st.lists(st.none() | NUMBERS[kind])))
    made = harmless(pl.DataFrame({"x": pl.Series(lists, dtype=pl.List(kind))}))["x"]
    assert repr([None if text is None else json.loads(text) for text in made]) == repr(lists)


@pytest.mark.parametrize("n_rows", [1, 3, 100])
@pytest.mark.parametrize("frame", [FRAME, FRAME.clear()], ids=["rows", "none"])
def test_parts_of_a_frame_are_written_as_the_whole(tmp_path, frame, n_rows):
    frame.write_parquet(tmp_path / "made.parquet", row_group_size=2)
    parts = partial(slices_of, FrameFiles(tmp_path), "made", FRAME.columns, n_rows)
    forms: tuple[Format, ...] = (*TEXTS, "parquet")
    for form in forms:
        assert write_frame([frame], tmp_path / f"whole.{form}", form) == frame.height
        assert write_frame(parts(), tmp_path / f"x.{form}", form) == frame.height
    for form in TEXTS:
        whole = (tmp_path / f"whole.{form}").read_bytes()
        assert (tmp_path / f"x.{form}").read_bytes() == whole
        assert frame_text(parts(), form).encode() == whole
    assert pl.read_parquet(tmp_path / "x.parquet").equals(frame)
    assert not list(tmp_path.glob(".*"))


ODD = st.sampled_from(
    [*"=@+-\uff1d\uff0b\x1c\x85\xa0\u2028 \t\n\v\r\x7f\x9b\u202e\ufeff1.a", "", EVIL]
)


@given(st.lists(st.lists(ODD | st.characters(codec="utf-8"), max_size=4).map("".join), max_size=6))
def test_every_cell_of_a_csv_is_looked_at_that_could_do_harm(texts):
    frame = harmless(pl.DataFrame({"x": texts}, schema={"x": pl.String}))
    assert frame["x"].to_list() == [_cell(text) for text in texts]


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
            write_frame([FRAME], path, "csv")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS])
def test_a_full_disk_is_no_slip_in_the_command(number):
    error = StoreError if number in {errno.ENOSPC, errno.EDQUOT} else UsageError
    with pytest.raises(error, match=r"a\.csv"), on_disk_error("a.csv"):
        raise OSError(number, os.strerror(number))
