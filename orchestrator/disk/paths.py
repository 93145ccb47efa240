"""Paths as users write them: any text, which may name nothing that a file system can hold."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final

STORE_NAME: Final = "store.sqlite"
"""The store in a run's directory."""
RUNS: Final = "runs"
"""Default folder of runs."""
CACHE_VARIABLE: Final = "ORCHESTRATOR_CACHE"
"""The environment variable that names another cache folder."""


def cache_folder() -> Path:
    """Return the folder of what was fetched or made once for all runs."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "orchestrator"


def expanded(path: str) -> Path:
    """The path with `~` as the home folder; as it is written where there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def shown(path: Path) -> str:
    """A path for a command to copy: relative where it is below the working folder."""
    try:
        return shlex.quote(str(path.absolute().relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(str(path))


def is_text(path: Path) -> bool:
    """Return whether a path is UTF-8: polars, YAML and JSON can hold no other."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def answers(place: Path, what: Callable[[Path], bool]) -> bool:
    """Return `what` of a path, such as `Path.is_file`; False for a path that can't exist."""
    try:
        return what(place)
    except (OSError, ValueError):
        return False  # too long, or with a zero byte
