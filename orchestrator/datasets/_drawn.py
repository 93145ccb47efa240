"""Some of the rows of a large benchmark, drawn without replacement."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from orchestrator.dataset.rows import Rows
from orchestrator.plugin import DatasetError


def drawn(n: int | None, total: int, rng: np.random.Generator, what: str) -> list[int]:
    """`n` of `total` indices in ascending order; all where `n` is None.

    Raises:
        DatasetError: If there are fewer.
    """
    if n is None:
        return list(range(total))
    if n > total:
        raise DatasetError(
            f"{what}: {n:,} requested, only {total:,} available; set n: null for all"
        )
    return sorted(rng.choice(total, size=n, replace=False).tolist())


class PickedRows:
    """Some rows of a file, each made into the columns of an item when it is read.

    Args:
        rows: Of the file.
        picks: Index of each row in the file, and what `make` is told besides.
        make: Gives the columns.
        columns: That `make` gives.
    """

    def __init__(
        self,
        rows: Rows,
        picks: Sequence[tuple[int, str]],
        make: Callable[[int, str, Mapping[str, Any]], Mapping[str, Any]],
        columns: Sequence[str],
    ) -> None:
        self._rows = rows
        self._picks = picks
        self._make = make
        self.file = rows.file
        self.columns = tuple(columns)

    def __len__(self) -> int:
        return len(self._picks)

    def row(self, index: int) -> Mapping[str, Any]:
        """See `rows.Rows`."""
        place, told = self._picks[index]
        try:
            return self._make(place, told, self._rows.row(place))
        except (KeyError, TypeError) as error:
            raise DatasetError(
                f"{self.where(index)}: not as published: {type(error).__name__}: {error}"
            ) from error

    def where(self, index: int) -> str:
        """See `rows.Rows`."""
        return self._rows.where(self._picks[index][0])
