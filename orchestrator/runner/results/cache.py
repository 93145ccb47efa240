"""Numbers that take long to compute, kept beside the frames of a run by what they come from."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import polars as pl
import scipy

from orchestrator import __version__
from orchestrator.clusters import clusters_of
from orchestrator.columns import ITEMS
from orchestrator.contracts.context import roles_in
from orchestrator.disk import files
from orchestrator.frames import FrameFiles
from orchestrator.ranking.analysis import RankingAnalysis
from orchestrator.runner.results.frames import analyse
from orchestrator.statistics.results import Thresholds
from orchestrator.statistics.trust import DEFAULTS

RANKINGS: Final = ".rankings"
_KEY_BYTES: Final = 16

T = TypeVar("T")

NAME: Final = ".numbers"
# Forty models in twenty categories take less than 1 MB a judge.
_MOST_BYTES: Final = 16 << 20
_FOLDERS: Final = ("contracts", "judgment", "methods", "ranking", "statistics", "summaries")
_MODULES: Final = (
    "clusters.py", "frames.py", "numbers.py", "columns.py", "tables.py", "runner/results/frames.py",
    "runner/results/tables.py",
)  # fmt: skip

_log = logging.getLogger(__name__)


class Keeping:
    """A file of results that calls have computed, read and extended.

    It need not be there, and nobody else need be able to read it. Where its checksum differs, or a
    value is not of the type that is asked for, it is computed anew; nothing is kept where it would
    be longer than `most_bytes`.
    """

    def __init__(self, path: Path, most_bytes: int = _MOST_BYTES) -> None:
        self._path = path
        self._most_bytes = most_bytes
        try:
            said, _, content = files.read(path, most_bytes).partition(b"\n")
            found = json.loads(content) if said == checksum(content) else {}
        except (OSError, ValueError, RecursionError):
            found = {}
        self._found: dict[str, Any] = found if isinstance(found, dict) else {}
        self._used: dict[str, Any] = {}

    def once(self, key: bytes, kind: type[T], compute: Callable[[], T]) -> T:
        """The value of a key, computed where it is not known.

        The key is a digest of everything that the value comes from; `kind` a type that msgspec
        reads.
        """
        name = key.hex()
        with suppress(KeyError, msgspec.ValidationError):
            value = msgspec.convert(self._found[name], kind)
            self._used[name] = self._found[name]
            return value
        value = compute()
        self._used[name] = msgspec.to_builtins(value)
        return value

    def drop(self, key: bytes) -> None:
        """Do not keep a value."""
        self._used.pop(key.hex(), None)

    def save(self) -> None:
        """Keep what this call used; a folder that can't be written is no fault."""
        if self._used == self._found:
            return
        content = json.dumps(self._used).encode()
        content = checksum(content) + b"\n" + content
        if len(content) > self._most_bytes:
            return
        try:
            files.write(self._path, content, own=True)
        except OSError as error:
            _log.debug("not kept: %s: %s", self._path, error)


def checksum(content: bytes) -> bytes:
    """Return the first line of a file with this content."""
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode()


@cache
def code_digest() -> bytes:
    """Digest of the code that computes rankings and tables, and of the versions it runs with."""
    root = resources.files("orchestrator")
    versions = (__version__, np.__version__, pl.__version__, scipy.__version__)
    digest = hashlib.blake2b(repr(versions).encode())
    for name in _FOLDERS:
        for part in _modules(root / name):
            digest.update(part.read_bytes())
    for name in _MODULES:
        digest.update((root / name).read_bytes())
    return digest.digest()


def _modules(folder: Traversable) -> Iterator[Traversable]:
    for one in sorted(folder.iterdir(), key=lambda one: one.name):
        if one.is_dir():
            yield from _modules(one)
        elif one.name.endswith(".py"):
            yield one


# Rankings of a run, computed once for the same judgments.


def rankings_of(
    frames: FrameFiles, *, confidence_level: float, thresholds: Thresholds = DEFAULTS
) -> list[RankingAnalysis]:
    """Return what `analyse` returns, computed only where no earlier call has kept it."""
    settings = repr((confidence_level, thresholds))
    key = _key(frames, settings)
    if key is None:
        return []

    def compute() -> list[RankingAnalysis]:
        return analyse(frames, confidence_level=confidence_level, thresholds=thresholds)

    keeping = Keeping(frames.beside / RANKINGS)
    found = keeping.once(key, list[RankingAnalysis], compute)
    # Where the run went on meanwhile, the rankings may be those of newer files.
    if _key(frames, settings) == key:
        keeping.save()
    return found


def _key(frames: FrameFiles, settings: str) -> bytes | None:
    """Digest of everything that the rankings come from; None where no frame is ranked."""
    ranked = {
        name: role
        for name, role in roles_in(frames).items()
        if role.pairs is not None and role.pairs.ranked
    }
    if not ranked:
        return None
    digest = hashlib.blake2b(code_digest(), digest_size=_KEY_BYTES)
    digest.update(settings.encode())
    for name, role in ranked.items():
        digest.update(msgspec.json.encode((name, role)))
        digest.update(frames.digest(name))
    if clusters_of(frames).are_known:
        digest.update(frames.digest(ITEMS))
    return digest.digest()
