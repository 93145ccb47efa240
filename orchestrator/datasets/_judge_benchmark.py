"""Parts of the benchmarks for judges: pairs of answers of which one is known to be better."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import Field

from orchestrator.dataset.rows import Rows
from orchestrator.plugin import DatasetError, Settings


class SubsetSettings(Settings):
    """Settings of a benchmark with subsets."""

    subsets: tuple[str, ...] = Field((), description="Names of subsets. Default: all.")


class KeptRows:
    """Some of the rows of a file.

    Args:
        rows: Of the file.
        kept: Their places, ascending.
    """

    def __init__(self, rows: Rows, kept: Sequence[int]) -> None:
        self._rows, self._kept = rows, kept
        self.file, self.columns = rows.file, rows.columns

    def __len__(self) -> int:
        return len(self._kept)

    def row(self, index: int) -> Mapping[str, Any]:
        """See `rows.Rows`."""
        return self._rows.row(self._kept[index])

    def where(self, index: int) -> str:
        """See `rows.Rows`."""
        return self._rows.where(self._kept[index])


def pair_of(first: object, second: object, *, is_first_better: bool) -> Mapping[str, object]:
    """The better and the worse of two answers, in the columns `chosen` and `rejected`."""
    chosen, rejected = (first, second) if is_first_better else (second, first)
    return {"chosen": chosen, "rejected": rejected}


def of_subsets(rows: Rows, column: str, wanted: Sequence[str]) -> Rows:
    """The rows of some subsets; all where none is named.

    Raises:
        DatasetError: If there is no such subset.
    """
    if not wanted:
        return rows
    subsets = [str(rows.row(index)[column]) for index in range(len(rows))]
    names = set(chosen_subsets(dict.fromkeys(subsets), wanted, rows.file))
    return KeptRows(rows, [index for index, name in enumerate(subsets) if name in names])


def rows_where(rows: Rows, holds: Callable[[Mapping[str, Any]], bool]) -> Rows:
    """The rows for which something holds."""
    return KeptRows(rows, [index for index in range(len(rows)) if holds(rows.row(index))])


def chosen_subsets(known: Iterable[str], wanted: Sequence[str], shown: str) -> list[str]:
    """Names of the wanted subsets in the order in which they are known.

    Raises:
        DatasetError: If one is not known.
    """
    names = list(known)
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise DatasetError(
            f"{shown}: no subset {', '.join(map(repr, unknown))}; available: {', '.join(names)}"
        )
    return [name for name in names if not wanted or name in wanted]
