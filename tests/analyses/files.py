"""Frames in files that note what is read of them, and hand out no column of texts as a whole."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from orchestrator.frames import FrameFiles


class NoTexts(FrameFiles):
    """The frames, written into a folder.

    Args:
        folder: Where they are written.
        frames: By name.
        texts: Columns that are read in slices only.

    Attributes:
        read: Columns that were read.
        longest: Rows of the longest slice.
    """

    def __init__(
        self, folder: Path, frames: Mapping[str, pl.DataFrame], texts: Collection[str] = ()
    ) -> None:
        for name, frame in frames.items():
            frame.write_parquet(folder / f"{name}.parquet")
        super().__init__(folder)
        self._texts = frozenset(texts)
        self.read: set[str] = set()
        self.longest = 0

    def __getitem__(self, name: str) -> pl.DataFrame:
        raise AssertionError(f"the whole frame {name!r} is read")

    def columns(self, name: str, wanted: Sequence[str]) -> pl.DataFrame:
        assert not self._texts & set(wanted)
        self.read |= set(wanted)
        return super().columns(name, wanted)

    def slices(self, name: str, wanted: Sequence[str], n_rows: int) -> Iterator[pl.DataFrame]:
        self.read |= set(wanted)
        for part in super().slices(name, wanted, n_rows):
            self.longest = max(self.longest, len(part))
            yield part
