"""Location, licence, and reading of benchmark files, shared by all benchmark kinds.

A file is looked for in the folder that `ORCHESTRATOR_DATA` names, as `KIND/NAME`, then in the
cache, and else fetched into the cache, unless `ORCHESTRATOR_OFFLINE` is set. Nothing of a
benchmark is part of this project; each comes from its publisher, under its publisher's terms.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from orchestrator.dataset.folders import DATA_VARIABLE, cache_folder, data_folder
from orchestrator.dataset.rows import Rows
from orchestrator.datasets._download import Patience, Remote, fetched, verified
from orchestrator.disk.files import sha256_of
from orchestrator.plugin import DatasetError, File

_log = logging.getLogger(__name__)

OFFLINE_VARIABLE: Final = "ORCHESTRATOR_OFFLINE"

HUB: Final = "https://huggingface.co"
PATIENCE: Final = Patience()


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
        remote = Remote(url=url_of(file), sha256=file.sha256, token=token)
        return fetched(remote, cached, PATIENCE)
    except DatasetError as error:
        why = str(error).removeprefix(f"{url_of(file)}: ")
        raise DatasetError(_advice(kind, file, why)) from error


def url_of(file: File) -> str:
    """Return the whole address of a file: of the hub, that of the mirror that HF_ENDPOINT names."""
    if not file.is_on_hub:
        return file.path
    return f"{os.environ.get('HF_ENDPOINT', HUB).rstrip('/')}/{file.path}"


def shown_name(kind: str, path: Path) -> str:
    """A benchmark file for messages."""
    return f"{kind} ({path})"


def _advice(kind: str, file: File, why: str) -> str:
    folder = data_folder()
    place = folder if folder is not None else f"${DATA_VARIABLE}"
    how = "" if folder is not None else f" and set {DATA_VARIABLE} to that folder"
    return (
        f"{kind}: {file.name} is not on this machine and was not downloaded ({why}). Download "
        f"{url_of(file)} on a machine with network access and put it at "
        f"{place}/{kind}/{file.name}{how}"
    )


class MappedRows:
    """Rows of a file made into others, one by one, when they are read.

    Args:
        rows: Of the file.
        make: Gives the columns of an item for a row.
        columns: That `make` gives.
    """

    def __init__(
        self,
        rows: Rows,
        make: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        columns: Sequence[str],
    ) -> None:
        self._rows = rows
        self._make = make
        self.file = rows.file
        self.columns = tuple(columns)

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, index: int) -> Mapping[str, Any]:
        """See `rows.Rows`."""
        try:
            return self._make(self._rows.row(index))
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise DatasetError(
                f"{self.where(index)}: not as published: {type(error).__name__}: {error}"
            ) from error

    def where(self, index: int) -> str:
        """See `rows.Rows`."""
        return self._rows.where(index)
