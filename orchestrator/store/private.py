"""Folders of runs: made for one user alone, and refused where others could have been there."""

import contextlib
from pathlib import Path

from orchestrator.disk.foreign import keep_private, owner_fault
from orchestrator.errors import RunDirectoryError


def make_private(path: Path) -> str:
    """Make a folder that is this user's alone; return why it can't be, or nothing.

    Raises:
        OSError: If it can't be made.
    """
    for folder in reversed(path.absolute().parents):
        if not folder.exists():
            # Not writable for others, whatever the umask.
            folder.mkdir(mode=0o755, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    return keep_private(path)


def check_entry(path: Path) -> None:
    """Refuse a link, or what another user put there.

    Raises:
        RunDirectoryError: If it is one.
    """
    with contextlib.suppress(FileNotFoundError):
        if path.is_symlink():
            raise RunDirectoryError(
                f"{path} is a link, which a run directory must not have: remove it, or use "
                f"another --run-dir"
            )
        if fault := owner_fault(path):
            raise RunDirectoryError(f"{fault}: remove it, or use another --run-dir")
