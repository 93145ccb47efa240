"""Frames in files that note what is read of them, and hand out no column of texts as a whole."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest

from orchestrator.disk import columnar
from orchestrator.frames import FrameFiles


class NoTexts(FrameFiles):
    """The frames, written into a folder.

    Args:
        folder: Where they are written.
        frames: By name.
        monkeypatch: By which the reading of files is noted.
        texts: Columns that are read in slices only.

    Attributes:
        read: Columns that were read.
        longest: Rows of the longest slice.
    """

    def __init__(
        self,
        folder: Path,
        frames: Mapping[str, pl.DataFrame],
        monkeypatch: pytest.MonkeyPatch,
        texts: Collection[str] = (),
    ) -> None:
        for name, frame in frames.items():
            frame.write_parquet(folder / f"{name}.parquet")
        super().__init__(folder)
        self.read: set[str] = set()
        self.longest = 0
        read, slice_of = columnar.read, columnar.slice_of

        def noted(path: Path, wanted: Sequence[str]) -> pl.DataFrame:
            assert not {*texts} & {*wanted}
            self.read |= {*wanted}
            return read(path, wanted)

        def slices(path: Path, wanted: Sequence[str], begin: int, n_rows: int) -> pl.DataFrame:
            self.read |= {*wanted}
            part = slice_of(path, wanted, begin, n_rows)
            self.longest = max(self.longest, len(part))
            return part

        monkeypatch.setattr(columnar, "read", noted)
        monkeypatch.setattr(columnar, "slice_of", slices)

    def __getitem__(self, name: str) -> pl.DataFrame:
        raise AssertionError(f"the whole frame {name!r} is read")
