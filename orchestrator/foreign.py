"""Runs of other users, which are only read, within bounds, and without a trace in them.

A run is foreign if another user owns its folder, or if this process was told to distrust it.
"""

import os
from pathlib import Path

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
