"""The log of a server process, without secrets, and what its reader can do about its end."""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from orchestrator.disk import files
from orchestrator.wire import failures

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


ADDRESS_IN_USE: Final = re.compile(
    r"address already in use|EADDRINUSE|Errno 98\b|couldn't bind HTTP server socket", re.IGNORECASE
)

# What logging puts before its words: a process, a level, a time and a place, in any order.
_PREFIX: Final = re.compile(
    r"^(?:\s*(?:\([\w: =/.-]+\)|\[[^\]]*\]|(?:ERROR|CRITICAL|FATAL)\b:?|[\d:.,TZ+/-]{5,}|\|))+\s*"
)
# The last line of a traceback of Python: a class, and what was said.
_EXCEPTION: Final = re.compile(r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Fault|Failure)(?:: .+)?$")
_ERROR: Final = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL)\b|\b(?:error|fatal|panicked|assertion failed|terminate called)\b|"
    r"GGML_ASSERT|Segmentation fault|CUDA error"
)
# What a server dumps of its own state may be megabytes long.
_MOST_CHARACTERS: Final = 4_000


def first_error(lines: Iterable[str]) -> str:
    """Return a server's own first error, on one line of printable characters.

    That is the first exception that it wrote, else the first line that calls itself an error; empty
    if there is none. What stands before the words (process, time, place) is left out.
    """
    found = ""
    for line in lines:
        words = _PREFIX.sub("", line[:_MOST_CHARACTERS].rstrip())
        if _EXCEPTION.match(words):
            return failures.clean(words)
        if not found and _ERROR.search(line[:_MOST_CHARACTERS]):
            found = failures.clean(words)
    return found


def likely_cause(log: str, exit_code: int | None) -> str:
    """One line on why a server did not start.

    Args:
        log: What it wrote since it was started.
        exit_code: As `subprocess` counts (negative: a signal); None where it still runs.
    """
    text = Path(__file__).with_name("causes.txt").read_text(encoding="utf-8")
    for block in text.replace("ADDRESS_IN_USE", ADDRESS_IN_USE.pattern).split("\n\n")[1:]:
        pattern, cause = block.splitlines()
        if match := re.search(pattern, log, re.IGNORECASE | re.MULTILINE):
            return cause.format(**match.groupdict()).rstrip(": ")
    match exit_code:
        case None:
            return "it was not ready in time"
        case -9:
            return "it was killed by signal 9, usually because memory ran out"
        case int() if exit_code < 0:
            return f"it was killed by signal {-exit_code}"
        case _:
            said = first_error(log.splitlines())
            return f"it exited with code {exit_code}" + (f": {said}" if said else "")
