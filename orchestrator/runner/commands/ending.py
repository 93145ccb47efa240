"""The end of a command's process."""

import contextlib
import os
import sys
from collections.abc import Sequence


def end_at_once(codes: Sequence[int]) -> None:
    """End the process without freeing its objects, a quarter of a short command's processor time.

    Args:
        codes: The exit code; empty where the command did not return one, and then nothing is done.
    """
    if codes:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(codes[0])
