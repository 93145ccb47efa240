"""Frames are written in parts of bounded memory, and read as far as they are asked for."""

import polars as pl
import pytest

from orchestrator import frames
from orchestrator.frames import FrameFiles, make_frame, write_parquet

COLUMNS = {"item": "str", "text": "str", "score": "f64"}
ROWS = [(str(number), "x" * number, number / 7) for number in range(25)]


@pytest.fixture
def folder(tmp_path):
    list(write_parquet(COLUMNS, ROWS, tmp_path / "answers.parquet"))
    list(write_parquet({"item": "str"}, [("1",)], tmp_path / "items.parquet"))
    (tmp_path / "judgments.3.part.parquet").write_bytes(b"left by a kill")
    return tmp_path


@pytest.mark.parametrize("bound", ["_CHUNK_ROWS", "_CHUNK_BYTES", "PART_ROWS", "_PART_BYTES"])
def test_parts_make_the_frame_that_one_part_makes(tmp_path, monkeypatch, bound):
    monkeypatch.setattr(frames, bound, 4)
    path = tmp_path / "frame.parquet"
    list(write_parquet(COLUMNS, iter(ROWS), path))
    assert pl.read_parquet(path).rows() == ROWS
    assert [file.name for file in tmp_path.iterdir()] == ["frame.parquet"]


def test_a_chunk_ends_where_its_texts_are_long(monkeypatch):
    monkeypatch.setattr(frames, "_CHUNK_BYTES", 10)
    rows = [("a" * 4, "b" * 4), ("c", "ü"), ("d", None), ("e" * 50, "f"), ("g", "h")]
    assert [len(part) for part in frames._chunks(rows)] == [2, 2, 1]


def test_a_chunk_ends_where_its_lists_are_long(monkeypatch):
    monkeypatch.setattr(frames, "_CHUNK_BYTES", 100)
    rows = [([0.5] * 2,), ([0.5] * 2,), (None,), ([0.5] * 100,), ([],)]
    assert [len(part) for part in frames._chunks(rows)] == [2, 2, 1]


def test_writing_that_is_closed_before_its_end_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "PART_ROWS", 4)
    monkeypatch.setattr(frames, "_CHUNK_ROWS", 4)
    path = tmp_path / "frame.parquet"
    list(write_parquet(COLUMNS, ROWS[:1], path))
    steps = write_parquet(COLUMNS, iter(ROWS), path)
    next(steps)
    next(steps)
    steps.close()
    assert pl.read_parquet(path).rows() == ROWS[:1]
    assert [file.name for file in tmp_path.iterdir()] == ["frame.parquet"]


@pytest.mark.parametrize(
    "cells",
    [
        [[1.0, 2.5], [3.0, 4.0]],
        [[1.0, None], None, [3, 4.5]],
        [[1], None, [2.0, 3.0]],
        [None, None],
        [[], []],
        [[], None, [1.0]],
    ],
)
def test_lists_of_any_length_stand_in_a_column_as_they_are(cells):
    frame = make_frame({"item": "str", "p": "list[f64]"}, [("a", cell) for cell in cells])
    assert frame.schema["p"] == pl.List(pl.Float64)
    assert frame["p"].to_list() == cells


def test_a_whole_number_written_as_a_float_is_one():
    assert make_frame({"n": "i64"}, [(1,), (2.0,), (None,)])["n"].to_list() == [1, 2, None]


def test_a_text_among_numbers_is_refused():
    with pytest.raises(pl.exceptions.ComputeError, match="could not append"):
        make_frame({"score": "f64"}, [(1.0,), ("high",)])


def test_no_rows_make_a_frame_with_its_columns(tmp_path):
    list(write_parquet(COLUMNS, [], tmp_path / "frame.parquet"))
    frame = pl.read_parquet(tmp_path / "frame.parquet")
    assert (frame.columns, frame.height) == (list(COLUMNS), 0)


def test_the_frames_of_a_folder_are_those_that_are_whole(folder):
    found = FrameFiles(folder)
    assert list(found) == ["answers", "items"]
    assert found["answers"].rows() == ROWS
    assert found.get("judgments") is None


def test_a_frame_is_read_only_when_somebody_asks_for_it(folder):
    found = FrameFiles(folder)
    (folder / "items.parquet").write_bytes(b"damaged, and nobody asks")
    assert found["answers"].rows() == ROWS
    assert frames.columns_of(found, "answers", ("score",)).height == 25


def test_asking_for_a_frame_by_name_reads_nothing(folder):
    found = FrameFiles(folder)
    (folder / "items.parquet").write_bytes(b"damaged, and nobody asks")
    assert "items" in found
    assert "judgments" not in found


@pytest.mark.parametrize("is_read", [False, True])
def test_a_row_is_read_by_its_place(folder, is_read):
    found = FrameFiles(folder)
    if is_read:
        assert found["answers"].height == 25
    for place in (0, 7, 24):
        expected = dict(zip(COLUMNS, ROWS[place], strict=True))
        assert frames.row_of(found, "answers", place) == expected
        assert (
            frames.row_of(
                {"answers": pl.DataFrame(ROWS, list(COLUMNS), orient="row")}, "answers", place
            )
            == expected
        )


@pytest.mark.parametrize("is_read", [False, True])
def test_columns_are_those_that_are_there(folder, is_read):
    found = FrameFiles(folder)
    if is_read:
        assert found["answers"].height == 25
    assert frames.columns_of(found, "answers", ("score", "none", "item")).columns == [
        "score",
        "item",
    ]
    assert frames.columns_of(found, "answers", ("none",)).is_empty()
    assert frames.columns_of(found, "no frame", ("score",)).is_empty()
