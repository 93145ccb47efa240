"""Parquet and Arrow files are read by their path, whatever stands in it."""

import polars as pl
import pytest

from orchestrator.disk import columnar
from orchestrator.frames import FrameFiles, columns_of, slices_of, write_parquet

RIGHT = pl.DataFrame({"x": [1, 2], "y": ["a", "b"]})
OTHER = pl.DataFrame({"x": [3], "y": ["other"]})
FOLDER = "a[1]*? {x} é"
# What polars' patterns and shells would make of the folder's name.
DECOYS = ("a1", "a1zz {x} é", "a1-b {x} é")


@pytest.fixture
def folder(tmp_path):
    for name in (FOLDER, *DECOYS):
        (tmp_path / name).mkdir()
        frame = RIGHT if name == FOLDER else OTHER
        for file in ("f.parquet", "f[1]*.parquet", "f1.parquet", "f1x.parquet"):
            exact = frame if file in {"f.parquet", "f[1]*.parquet"} else OTHER
            exact.write_parquet(tmp_path / name / file)
        frame.write_ipc(tmp_path / name / "f.arrow")
    return tmp_path / FOLDER


@pytest.mark.parametrize("name", ["f.parquet", "f[1]*.parquet"])
def test_a_path_with_the_signs_of_patterns_names_itself_alone(folder, name):
    path = folder / name
    assert columnar.read(path).equals(RIGHT)
    assert columnar.read(path, ["y"]).columns == ["y"]
    assert columnar.scan(path).collect().equals(RIGHT)
    assert columnar.scan(path).collect_schema().names() == ["x", "y"]
    assert columnar.read([path, path]).height == 4
    assert columnar.scan_arrow(folder / "f.arrow").collect().equals(RIGHT)


def test_a_folder_named_like_the_home_folder_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name, frame in (("~", RIGHT), ("home", OTHER)):
        (tmp_path / name).mkdir()
        with (tmp_path / name / "f.parquet").open("wb") as file:
            frame.write_parquet(file)
    (relative,) = tmp_path.joinpath("~").glob("*.parquet")
    assert columnar.read(relative.relative_to(tmp_path)).equals(RIGHT)


def test_a_folder_is_no_file(folder):
    with pytest.raises(IsADirectoryError):
        columnar.read(folder)
    with pytest.raises(IsADirectoryError):
        columnar.scan(folder)


def test_a_missing_file_is_not_looked_for_elsewhere(folder):
    with pytest.raises(FileNotFoundError):
        columnar.read(folder / "f?.parquet")


def test_frames_are_those_of_their_own_folder(folder):
    frames = FrameFiles(folder)
    assert frames["f"].equals(RIGHT)
    assert columns_of(frames, "f", ("x", "z")).columns == ["x"]
    assert [part.height for part in slices_of(frames, "f", ("x",), 1)] == [1, 1]


def test_a_frame_is_written_where_its_path_says(folder):
    path = folder / "new [2]" / "g.parquet"
    rows = [(k, str(k)) for k in range(25_000)]
    list(write_parquet({"x": "i64", "y": "str"}, rows, path))
    assert columnar.scan(path).select(pl.len()).collect().item() == len(rows)
    assert [entry.name for entry in path.parent.iterdir()] == ["g.parquet"]
