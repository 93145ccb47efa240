"""The log of a server process: its output, read back without secrets."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from orchestrator.disk import files

_TAIL_BYTES: Final = 64 * 1024
_SEARCHED_BYTES: Final = 16 * 2**20
_LINE_BYTES: Final = 64 * 1024


class ServerLog:
    """The file that takes a server's output, from where this start begins."""

    def __init__(self, path: Path, secrets: Sequence[str]) -> None:
        self.path = path
        self._secrets = [*secrets]
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._start = path.stat().st_size if path.exists() else 0
        self._mark = self._start

    def open(self) -> int:
        """A descriptor to append to, readable by its owner only."""
        descriptor = os.open(
            self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600
        )
        os.fchmod(descriptor, 0o600)
        return descriptor

    def mark(self) -> None:
        """Remember where the log ends now, for `lines`."""
        with contextlib.suppress(OSError):
            self._mark = self.path.stat().st_size

    def lines(self, *, whole: bool = False) -> Iterator[str]:
        """Lines since the mark, or since the start; of the first 16 MB, without the secrets."""
        hidden = files.blots(self._secrets)
        # A line that is too long is cut, but no secret in it.
        n_kept = max(map(len, hidden), default=1) - 1
        kept = b""
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            end = file.seek(self._start if whole else self._mark) + _SEARCHED_BYTES
            while file.tell() < end and (read := file.readline(_LINE_BYTES)):
                part = files.blot(kept + read, hidden)
                is_cut = len(read) == _LINE_BYTES and not read.endswith(b"\n")
                n_shown = max(len(part) - n_kept, 0) if is_cut else len(part)
                kept = part[n_shown:]
                yield part[:n_shown].decode(errors="replace")
        if kept:
            yield kept.decode(errors="replace")

    def text(self) -> str:
        """The last 64 KB since the start, without the secrets."""
        try:
            return files.tail(self.path, _TAIL_BYTES, self._secrets, self._start)
        except FileNotFoundError:
            return ""
