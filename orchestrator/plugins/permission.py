"""Permission to run code and programs that a recipe names.

A person gives it for one command (`--allow-code`), or once for a folder (`orchestrator allow`).
The list of folders is a file in the user's configuration folder, so that no folder can allow
itself.
"""

import json
import logging
import os
import shlex
import stat
from pathlib import Path
from typing import Final

import msgspec

from orchestrator.disk import files
from orchestrator.disk.paths import is_foreign, owner_fault
from orchestrator.errors import UsageError

_NAME: Final = "allowed-folders.json"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH

_log = logging.getLogger(__name__)


def is_allowed(place: Path) -> bool:
    """Return whether a recipe or run is in a folder that this user has allowed.

    The place is the recipe's file, or the folder of the run, and need not exist. A link counts as
    in a folder only if both the link and its target are. Recipes, runs and folders of other users
    are never allowed.
    """
    folders = _read()
    if not folders:
        return False
    return all(
        any(_is_kept(folder) and found.is_relative_to(folder) for folder in folders)
        for found in (place.parent.resolve() / place.name, place.resolve())
    ) and not (is_foreign(place) or is_foreign(place.parent))


def how_to_permit(place: Path) -> str:
    """Return how a person permits the code that is named at a place, as the end of a sentence.

    Args:
        place: The folder of a recipe, or of a run.
    """
    said = "allow it with --allow-code"
    if _is_kept(place):
        folder = shlex.quote(str(place.absolute()))
        said += f", or once for its folder with `orchestrator allow {folder}`"
    return f"{said}, if you trust it"


def allowed() -> list[Path]:
    """Return the allowed folders, sorted."""
    return sorted(_read())


def allow(folder: Path) -> Path:
    """Allow a folder, with all that is below it, and return its resolved path.

    Raises:
        UsageError: If it is no folder of this user's, if others may write to it, or if it holds the
            list itself.
    """
    resolved = folder.resolve()
    if not resolved.is_dir():
        raise UsageError(f"{folder}: no such folder")
    if resolved in {*_file().parents, *_file().resolve().parents}:
        raise UsageError(
            f"{resolved} also contains your configuration ({_file()}); allow a smaller folder "
            "with only recipes that you trust"
        )
    if fault := _fault(resolved):
        raise UsageError(fault)
    _write({*_read(), resolved})
    return resolved


def revoke(folder: Path) -> Path:
    """Take back the permission of a folder, which may have gone, and return its resolved path.

    Raises:
        UsageError: If it is not allowed itself; names the folder above it that is, if any.
    """
    resolved = folder.resolve()
    folders = set(_read())
    if resolved not in folders:
        above = next((one for one in resolved.parents if one in folders), None)
        hint = "list them with: orchestrator allow --list"
        if above is not None:
            hint = f"it is below {above}; revoke that with `orchestrator allow --revoke {above}`"
        raise UsageError(f"{resolved} is not an allowed folder; {hint}")
    _write(folders - {resolved})
    return resolved


def _file() -> Path:
    # A relative value is to be ignored (XDG Base Directory Specification).
    given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    base = given if given.is_absolute() else Path.home() / ".config"
    return base / "orchestrator" / _NAME


def _read() -> list[Path]:
    """The allowed folders; none, with a warning, where the list can't be trusted."""
    file = _file()
    found: list[str] = []
    try:
        fault = owner_fault(file) or _mode_fault(file)
        if not fault:
            found = msgspec.json.decode(file.read_bytes(), type=list[str])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as error:
        fault = f"{file} cannot be read: {error}"
    if fault:
        _log.warning("%s; no folder is allowed to run code until this is fixed", fault)
    return [Path(one) for one in found if Path(one).is_absolute()]


def _write(folders: set[Path]) -> None:
    file = _file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if fault := owner_fault(file.parent) or _mode_fault(file.parent):
        raise UsageError(fault)
    text = json.dumps(sorted(map(str, folders)), indent=2) + "\n"
    files.write(file, text.encode(), mode=0o600)


def _is_kept(folder: Path) -> bool:
    """Return True if an allowed folder still belongs to this user alone."""
    try:
        return not _fault(folder)
    except OSError:
        return False


def _fault(folder: Path) -> str:
    fault = owner_fault(folder)
    if not fault and folder.stat().st_mode & stat.S_IWOTH:
        fault = f"{folder} is writable by everyone, so anyone could put code there"
    return fault


def _mode_fault(path: Path) -> str:
    is_open = bool(path.lstat().st_mode & _OTHERS_WRITE) and not path.is_symlink()
    return f"{path} is writable by other users (run chmod go-w)" if is_open else ""
