"""The socket that a server of ours is given, and ports that a server needs beside its own."""

import os
import socket
from typing import Final

from launch._watchdog import LISTENING

_LOWEST: Final = 10_240
_MANY: Final = 22_528
_APART: Final = 7_919


def given() -> socket.socket | None:
    """Return the bound socket that the supervisor has passed to this process; None without one."""
    number = os.environ.pop(LISTENING, "")
    return socket.socket(fileno=int(number)) if number else None


def beside(port: int, n: int) -> int:
    """The n-th further port (n from 1) of the server at `port`, below those that systems hand out.

    A pure function, so that servers with different ports rarely meet, and command lines can be
    tested.
    """
    return _LOWEST + (port + n * _APART) % _MANY
