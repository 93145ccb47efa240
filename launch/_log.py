"""The log of a server process: its output, read back without secrets."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_TAIL_BYTES: Final = 64 * 1024
_SEARCHED_BYTES: Final = 16 * 2**20
_LINE_BYTES: Final = 64 * 1024


class ServerLog:
    """The file that takes a server's output, from where this start begins."""

    def __init__(self, path: Path, secrets: Sequence[str]) -> None:
        self.path = path
        self._secrets = [secret.encode() for secret in secrets]
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
        """Lines since the mark, or since the start; of the first 16 MB, without the key."""
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            end = file.seek(self._start if whole else self._mark) + _SEARCHED_BYTES
            while file.tell() < end and (line := file.readline(_LINE_BYTES)):
                yield self._read(line)

    def text(self) -> str:
        """The last 64 KB since the start, without the key."""
        try:
            with self.path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self._start, end - _TAIL_BYTES))
                content = file.read()
        except FileNotFoundError:
            return ""
        return self._read(content)

    def _read(self, content: bytes) -> str:
        for secret in self._secrets:
            content = content.replace(secret, b"***")
        return content.decode(errors="replace")
