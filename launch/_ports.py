"""Ports that a server needs beside the one it is reached by."""

from typing import Final

_LOWEST: Final = 10_240
_MANY: Final = 22_528
_APART: Final = 7_919


def beside(port: int, n: int) -> int:
    """The n-th further port (n from 1) of the server at `port`, below those that systems hand out.

    A pure function, so that servers with different ports rarely meet, and command lines can be
    tested.
    """
    return _LOWEST + (port + n * _APART) % _MANY
