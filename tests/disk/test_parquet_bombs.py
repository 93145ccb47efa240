"""Parquet files of some hundred bytes that hold gigabytes are refused, and no others."""

import contextlib

import polars as pl
import psutil
import pytest

from orchestrator.dataset.files import parquet_rows
from orchestrator.disk import columnar
from orchestrator.errors import DatasetError, StoreError
from orchestrator.frames import FrameFiles, row_of, slices_of, write_parquet
from tests.disk import bombs

ROOM_BYTES = 200 << 20
SMALL = {
    "rows": {"n": 1_000},
    "text": {"n": 5, "length": 100},
    "fixed": {"n": 5, "length": 100},
    "pages": {"n": 3, "length": 1_000},
    "prefixes": {"n": 1_000, "length": 10},
}
# Refused before anything is decoded; `text` once it is, which takes its memory once.
LARGE_IN_A_GROUP = ("rows", "fixed", "pages", "prefixes")


@pytest.fixture(params=[*bombs.ALL])
def bomb(request, tmp_path):
    path = tmp_path / "bomb.parquet"
    bombs.ALL[request.param](path)
    assert path.stat().st_size < 200_000
    return path


def rss():
    return psutil.Process().memory_info().rss


@pytest.mark.parametrize("kind", [*bombs.ALL])
def test_files_by_hand_are_what_polars_reads_when_they_are_small(kind, tmp_path):
    path = tmp_path / "small.parquet"
    bombs.ALL[kind](path, **SMALL[kind])
    frame = columnar.read(path)
    assert len(frame) == SMALL[kind]["n"]
    assert {len(value) for value in frame["prompt"]} == {SMALL[kind].get("length", 1)}


def test_a_bomb_is_refused_before_it_takes_memory(bomb):
    before = rss()
    with pytest.raises(StoreError, match=r"bytes of Parquet hold up to .* at most .* are read"):
        columnar.read(bomb)
    assert rss() - before < ROOM_BYTES


@pytest.mark.parametrize("kind", LARGE_IN_A_GROUP)
def test_a_bomb_is_not_scanned_either(kind, tmp_path):
    bombs.ALL[kind](tmp_path / "bomb.parquet")
    with pytest.raises(StoreError, match="at most"):
        columnar.scan(tmp_path / "bomb.parquet")


def test_a_slice_of_texts_that_rows_share_is_refused(tmp_path):
    bombs.text(tmp_path / "answers.parquet")
    frames = FrameFiles(tmp_path)
    with pytest.raises(StoreError, match="at most"):
        list(slices_of(frames, "answers", ["prompt"], 10_000))
    assert len(str(row_of(frames, "answers", 4_999)["prompt"])) == 1_000_000


@pytest.mark.parametrize("said", [0, 10, 300_000_001])
def test_a_footer_that_says_another_number_of_rows_does_not_hide_a_bomb(said, tmp_path):
    bombs.rows(tmp_path / "bomb.parquet", said=said)
    before = rss()
    with contextlib.suppress(StoreError, *columnar.UNREADABLE):
        assert len(columnar.read(tmp_path / "bomb.parquet")) <= said
    assert rss() - before < ROOM_BYTES


def test_a_dataset_says_which_file_and_what_to_do(bomb):
    with pytest.raises(DatasetError, match=r"bomb\.parquet: .* use JSON Lines"):
        parquet_rows(bomb, "bomb.parquet")


def test_columns_that_are_not_read_do_not_count(tmp_path, monkeypatch):
    frame = pl.DataFrame({"x": ["a" * 900], "y": ["b"]})
    frame.write_parquet(tmp_path / "f.parquet")
    monkeypatch.setattr(columnar, "MEMORY_BYTES", 800)
    monkeypatch.setattr(columnar, "_RATIO", 0)
    assert columnar.read(tmp_path / "f.parquet", ["y"]).equals(frame.select("y"))
    with pytest.raises(StoreError, match="at most"):
        columnar.read(tmp_path / "f.parquet", ["x", "y"])


def test_the_headers_of_a_file_are_read_once(tmp_path, monkeypatch):
    calls = []

    def counted(path):
        calls.append(path)
        return row_groups(path)

    row_groups = columnar.row_groups
    monkeypatch.setattr(columnar, "row_groups", counted)
    pl.DataFrame({"x": ["a"], "y": ["b"]}).write_parquet(tmp_path / "f.parquet")
    for columns in (["x"], ["y"], ["x", "y"], None):
        columnar.read(tmp_path / "f.parquet", columns)
        columnar.scan(tmp_path / "f.parquet")
    assert len(calls) == 1


FRAMES = {
    "texts": pl.DataFrame({"x": [f"{n} and more" for n in range(5_000)]}),
    "nulls": pl.DataFrame({"x": pl.Series([None] * 5_000, dtype=pl.String)}),
    "numbers": pl.DataFrame({"x": range(5_000), "y": [n / 3 for n in range(5_000)]}),
    "lists": pl.DataFrame({"x": [[float(n)] * 7 for n in range(2_000)]}),
    "nested": pl.DataFrame({"x": [[{"a": [n], "b": str(n)}] * 3 for n in range(2_000)]}),
    "arrays": pl.DataFrame({"x": pl.Series([[1, 2, 3]] * 500, dtype=pl.Array(pl.Int64, 3))}),
    "bytes": pl.DataFrame({"x": [b"abc" * n for n in range(200)]}),
    "none": pl.DataFrame({"x": pl.Series([], dtype=pl.Int8)}),
}


@pytest.mark.parametrize("frame", [*FRAMES.values()], ids=[*FRAMES])
@pytest.mark.parametrize("compression", ["zstd", "snappy", "uncompressed"])
def test_what_a_frame_takes_is_never_more_than_was_found(frame, compression, tmp_path):
    path = tmp_path / "f.parquet"
    frame.write_parquet(path, compression=compression, row_group_size=700, data_page_size=1_000)
    found = sum(size for group in columnar.row_groups(path) for size in group.values())
    assert frame.rechunk().estimated_size() <= found <= 8 * frame.estimated_size() + 200_000
    assert columnar.read(path).equals(frame)


def test_a_frame_of_our_own_is_found_about_as_large_as_it_is(tmp_path):
    columns = {"item": "str", "text": "str", "p": "f64", "all": "list[f64]"}
    rows = ((f"i{n}", f"{n} " * 50, n / 7, [0.1, 0.2]) for n in range(20_000))
    list(write_parquet(columns, rows, tmp_path / "f.parquet"))
    size = columnar.read(tmp_path / "f.parquet").estimated_size()
    groups = [sum(one.values()) for one in columnar.row_groups(tmp_path / "f.parquet")]
    assert len(groups) > 1
    assert size <= sum(groups) < 2 * size


def test_a_file_that_changed_is_measured_again(tmp_path):
    path = tmp_path / "f.parquet"
    pl.DataFrame({"x": ["a"]}).write_parquet(path)
    columnar.read(path)
    bombs.rows(path)
    with pytest.raises(StoreError, match="at most"):
        columnar.read(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PAR1",
        b"PAR1" + (2**31).to_bytes(4, "little") + b"PAR1",
        b"PAR1" + b"\x19\xf9" * 500 + (1000).to_bytes(4, "little") + b"PAR1",
        b"PAR1" + b"\x1c" * 500 + (500).to_bytes(4, "little") + b"PAR1",
        b"PAR1" + b"\x19\xfc\xff\xff\xff\x07" + (6).to_bytes(4, "little") + b"PAR1",
    ],
    ids=["empty", "short", "long_footer", "lists_in_lists", "deep", "long_list"],
)
def test_a_damaged_file_is_no_parquet(content, tmp_path):
    (tmp_path / "f.parquet").write_bytes(content)
    with pytest.raises(pl.exceptions.PolarsError, match="not a Parquet file"):
        columnar.read(tmp_path / "f.parquet")
