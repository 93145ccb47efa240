"""Another user of this machine, whom only root can act as."""

import os
from typing import Final

NOBODY: Final = 65_534


def become_nobody() -> None:
    """Make this process, a child that begins, one of another user."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
