"""Paths as users write them, and runs of other users, which are only read, without a trace."""

import os
import pwd
import shlex
import stat
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Final

STORE_NAME: Final = "store.sqlite"
"""The store in a run's directory."""
PACKED: Final = (".gz", ".bz2", ".xz", ".zst")
"""Suffixes of files that are unpacked as they are read."""
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
    except (ValueError, OSError):  # elsewhere, or the working folder is gone
        return shlex.quote(str(path))


def repair(
    run: Path, what: str = "keeps what is readable; the next run requests the rest again"
) -> str:
    """Return the command that repairs a run, to copy, and what it does."""
    return f"`orchestrator runs repair {shown(run)}` {what}"


OTHER_FORMS: Final = {".eval": "`inspect log dump` writes it as JSON", ".xls": "save it as .xlsx"}
"""What to do with files that hold rows and are not read, by their suffix."""


def suffix_of(name: str) -> str:
    """The suffix that tells the kind of a file, in small letters, without that of compression."""
    path = PurePath(name.lower())
    return PurePath(path.stem).suffix if path.suffix in PACKED else path.suffix


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


# Runs of other users, which are only read, within bounds, and without a trace in them.
#
# A run is foreign if another user owns its folder, or if this process was told to distrust it.


TRUSTED: Final = "ORCHESTRATOR_TRUST_DIRS"
"""Variable with folders, separated as in PATH, in which runs may lie though others own them."""

_ROOT: Final = 0
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH

_distrusted: set[Path] = set()


def distrust(run: Path) -> None:
    """Treat a run of this user, or all runs of a folder, as foreign: they were made elsewhere."""
    _distrusted.add(run.resolve())


def is_foreign(run: Path) -> bool:
    """Return whether a run directory is another user's, or distrusted."""
    try:
        is_own = run.stat().st_uid == os.geteuid()
    except OSError:
        return False  # there is none
    if is_own and not _distrusted:
        return False
    resolved = run.resolve()
    return not is_own or any(folder in _distrusted for folder in (resolved, *resolved.parents))


def owner_fault(path: Path) -> str:
    """Say whose a file or folder is if it is not this user's, a link not followed; else nothing."""
    uid = path.lstat().st_uid
    return "" if uid == os.geteuid() else f"{path} belongs to {_name(uid)}, not to you"


def keep_private(folder: Path) -> str:
    """Keep a folder for this user alone (0700); return why that can't be, or nothing.

    A folder that others could write to is taken only while it is empty.

    Raises:
        OSError: If it can't be looked at or changed.
    """
    fault = owner_fault(folder) or _place_fault(folder.absolute().parent)
    if not fault and folder.is_symlink():
        fault = owner_fault(folder.resolve()) or _place_fault(folder.resolve().parent)
    if fault or ((fault := _mode_fault(folder)) and any(folder.iterdir())):
        return fault
    folder.chmod(0o700)
    # Some file systems keep no modes.
    return _mode_fault(folder)


def _mode_fault(folder: Path) -> str:
    if not folder.stat().st_mode & _OTHERS_WRITE:
        return ""
    return f"{folder} is writable by others (run chmod 700 if you trust its contents)"


def _place_fault(folder: Path) -> str:
    """Say why others could put another folder in the place of one that stands in `folder`."""
    found = folder.stat()
    if found.st_uid not in {os.geteuid(), _ROOT}:
        fault = f"{folder} belongs to {_name(found.st_uid)}, who could replace its contents"
    # With the sticky bit, as of /tmp, only the owner may.
    elif found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        fault = f"anyone could replace the contents of {folder}"
    else:
        return ""
    place = folder.resolve()
    said = {Path(entry) for entry in os.environ.get(TRUSTED, "").split(os.pathsep)}
    # A relative one would be another in each working directory.
    trusted = {entry.resolve() for entry in said if entry.is_absolute()}
    if any(one in trusted for one in (place, *place.parents)):
        return ""
    # A list of folders can't name this one otherwise.
    if os.pathsep in str(place):
        return fault
    return f"{fault} (if you trust them, set {TRUSTED}={shlex.quote(str(place))})"


def _name(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name!r}"
    except KeyError:
        return f"user {uid}"
