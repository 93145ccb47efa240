"""Files of benchmarks: location, licence, rows that are read, drawn, or made into pairs.

A file is looked for in the folder that `ORCHESTRATOR_DATA` names, as `KIND/NAME`, then in the
cache, and else fetched into the cache, unless `ORCHESTRATOR_OFFLINE` is set. Nothing of a
benchmark is part of this project; each comes from its publisher, under its publisher's terms.
"""

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import quote

from pydantic import Field

from orchestrator.dataset import DATA_VARIABLE, cache_folder, data_folder
from orchestrator.dataset.fields import FieldNames
from orchestrator.dataset.files import open_rows
from orchestrator.dataset.rows import Rows, from_rows
from orchestrator.dataset.shapes import Row, flow
from orchestrator.datasets._download import fetched, verified
from orchestrator.disk.files import sha256_of
from orchestrator.plugin import Dataset, DatasetError, DatasetKind, File, Settings

ConfigT = TypeVar("ConfigT", bound=Settings, covariant=True)

_log = logging.getLogger(__name__)

OFFLINE_VARIABLE: Final = "ORCHESTRATOR_OFFLINE"

HUB: Final = "https://huggingface.co"


def located(kind: str, file: File) -> Path:
    """Return the path of a benchmark's file on this machine; fetch the file if it is absent.

    Raises:
        DatasetError: If it can't be had, with where to put it and how it is named.
    """
    parts = PurePosixPath(file.name).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise DatasetError(f"{kind}: {file.name!r} is not a file name below its folder")
    folder = data_folder()
    own = [] if folder is None else [folder / kind / name for name in (file.name, *file.others)]
    for path in own:
        if path.is_file():
            if file.sha256 and sha256_of(path) != file.sha256:
                _log.warning("%s: checksum differs from the published file; using it anyway", path)
            return path
    cached = cache_folder() / kind / file.name
    if cached.is_file():
        return verified(cached, file.sha256)
    if os.environ.get(OFFLINE_VARIABLE):
        raise DatasetError(_advice(kind, file, f"{OFFLINE_VARIABLE} is set"))
    try:
        # The user's key goes to the hub alone.
        token = os.environ.get("HF_TOKEN", "") if file.is_on_hub else ""
        return fetched(url_of(file), cached, file.sha256, token)
    except DatasetError as error:
        why = str(error).removeprefix(f"{url_of(file)}: ")
        raise DatasetError(_advice(kind, file, why)) from error


def url_of(file: File) -> str:
    """Return the whole address of a file: of the hub, that of the mirror that HF_ENDPOINT names."""
    if not file.is_on_hub:
        return file.path
    return f"{os.environ.get('HF_ENDPOINT', HUB).rstrip('/')}/{file.path}"


def read(kind: str, file: File) -> Rows:
    """Return the rows of a benchmark's file; see `located`."""
    path = located(kind, file)
    return open_rows(path, f"{kind} ({path})")


def _advice(kind: str, file: File, why: str) -> str:
    folder = data_folder()
    place = folder if folder is not None else f"${DATA_VARIABLE}"
    how = "" if folder is not None else f" and set {DATA_VARIABLE} to that folder"
    return (
        f"{kind}: {file.name} is not on this machine and was not downloaded ({why}). Download "
        f"{url_of(file)} on a machine with network access and put it at "
        f"{place}/{kind}/{file.name}{how}"
    )


# Files of the Hugging Face hub, as plain downloads: no `datasets` library, no code of a dataset.
#
# Why not the library: it would bring pyarrow, pandas and a dozen others to read files that polars
# reads, and the hub offers every public dataset as Parquet, whatever it was uploaded as.


def hub_file(repository: str, path: str, *, revision: str = "main", name: str = "") -> File:
    """A file of a dataset's repository.

    `name` is that under the kind's folder; the file's own where left out.
    """
    place = f"{quote(repository)}/resolve/{quote(revision, safe='')}/{quote(path)}"
    return File(name=name or path.rpartition("/")[2], path=f"datasets/{place}")


def listing(repository: str, name: str) -> File:
    """The hub's list of Parquet files of a dataset: {config: {split: [address, …]}}."""
    return File(name=name, path=f"api/datasets/{quote(repository)}/parquet")


def converted(repository: str, config: str, split: str, number: int, name: str) -> File:
    """One of the Parquet files that the hub has made of a split."""
    place = "/".join(quote(part, safe="") for part in (config, split, f"{number}.parquet"))
    return File(name=name, path=f"api/datasets/{quote(repository)}/parquet/{place}")


def picked(
    rows: Rows,
    make: Callable[[Row], Row] | None = None,
    places: Sequence[int] | None = None,
) -> Rows:
    """Rows of a file as they are read: all, or those at some places, as they are or made anew.

    Raises:
        DatasetError: By a row that is not as published, of which none can be made.
    """
    chosen = range(len(rows)) if places is None else places

    def where(index: int) -> str:
        return rows.where(chosen[index])

    def row(index: int) -> Row:
        found = rows.row(chosen[index])
        try:
            return found if make is None else make(found)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise DatasetError(
                f"{where(index)}: not as published: {type(error).__name__}: {error}"
            ) from error

    columns = rows.columns if make is None or not chosen else tuple(row(0))
    return Rows(rows.file, columns, len(chosen), row, where)


_NO_FIELDS: Final[Mapping[str, Any]] = dict.fromkeys(FieldNames.model_fields)


class BenchmarkKind(DatasetKind[ConfigT]):
    """Base of benchmarks, whose files are fetched at first use.

    Attributes:
        fields: Columns by the names of `FieldNames`; those left out have none.
    """

    fields: ClassVar[Mapping[str, str]]

    @abstractmethod
    def rows(self) -> Rows:
        """Return the rows that are made into items.

        Raises:
            DatasetError: If a file can't be had, with where to put it, or there is no such subset.
        """

    def open(self, base: Path) -> Dataset:  # noqa: ARG002 (no path is relative)
        """Open the benchmark.

        Raises:
            DatasetError: As by `rows`, or with every row that can't be an item.
        """
        return from_rows(self.rows(), FieldNames(**{**_NO_FIELDS, **self.fields}))


class SubsetSettings(Settings):
    """Settings of a benchmark with subsets."""

    subsets: tuple[str, ...] = Field((), description="Names of subsets. Default: all.")


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
    places = [index for index, name in enumerate(subsets) if name in names]
    return picked(rows, places=places)


def one_of(
    names: Iterable[str], wanted: str | None, setting: str, shown: str, usual: Sequence[str] = ()
) -> str:
    """The name that a setting wants; else the only one, or the first of `usual` that is there.

    Raises:
        DatasetError: If it is not there, or several could be meant.
    """
    there = list(names)
    if wanted is None:
        wanted = there[0] if len(there) == 1 else next((one for one in usual if one in there), None)
    if wanted is not None and wanted in there:
        return wanted
    what = f"no {setting} {wanted!r}"
    if wanted is None:
        what = f"set dataset: {flow({setting: there[0]})}" if there else f"no {setting}"
    raise DatasetError(f"{shown}: {what}; available: {', '.join(there) or 'none'}")


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
