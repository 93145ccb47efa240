"""Numbers that take long to compute, kept beside the frames of a run by what they come from."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from orchestrator.disk import files

T = TypeVar("T")

NAME: Final = ".numbers"
_MOST_BYTES: Final = 1 << 20

_log = logging.getLogger(__name__)


class Keeping:
    """A file of results that calls have computed, read and extended.

    Args:
        path: The file; it need not be there, and nobody else need be able to read it. What it
            holds is checked against the type that is asked for and computed anew where it differs.
        most_bytes: Greatest length of the file; nothing is kept where it would be longer.
    """

    def __init__(self, path: Path, most_bytes: int = _MOST_BYTES) -> None:
        self._path = path
        self._most_bytes = most_bytes
        try:
            found = json.loads(files.read(path, most_bytes))
        except (OSError, ValueError, RecursionError):
            found = {}
        self._found: dict[str, Any] = found if isinstance(found, dict) else {}
        self._used: dict[str, Any] = {}

    def once(self, key: bytes, kind: type[T], compute: Callable[[], T]) -> T:
        """The value of a key, computed where it is not known.

        Args:
            key: A digest of everything that the value comes from.
            kind: A msgspec struct.
            compute: Gives the value.
        """
        name = key.hex()
        try:
            value = msgspec.convert(self._found[name], kind)
        except (KeyError, msgspec.ValidationError):
            value = compute()
        self._used[name] = msgspec.to_builtins(value)
        return value

    def save(self) -> None:
        """Keep what this call used; a folder that can't be written is no fault."""
        if self._used == self._found:
            return
        content = json.dumps(self._used).encode()
        if len(content) > self._most_bytes:
            return
        try:
            files.write(self._path, content)
        except OSError as error:
            _log.debug("not kept: %s: %s", self._path, error)
