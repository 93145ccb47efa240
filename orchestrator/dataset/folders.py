"""Folders of benchmark files: the user's own, and that of what was fetched."""

import os
from pathlib import Path
from typing import Final

from orchestrator.dataset import File
from orchestrator.disk import paths

DATA_VARIABLE: Final = "ORCHESTRATOR_DATA"


def is_here(kind: str, file: File) -> bool:
    """Return True if the file can be used without a network."""
    folders = [folder for folder in (data_folder(), cache_folder()) if folder is not None]
    names = (file.name, *file.others)
    return any((folder / kind / name).is_file() for folder in folders for name in names)


def data_folder() -> Path | None:
    """The folder of files that the user put there by hand."""
    given = os.environ.get(DATA_VARIABLE)
    return Path(given).expanduser() if given else None


def cache_folder() -> Path:
    """The folder of what was fetched."""
    return paths.cache_folder() / "datasets"
