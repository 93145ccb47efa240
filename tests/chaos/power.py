"""Files after a power cut: all that was synced, and of the rest any part.

The model is the strict one of POSIX: bytes are safe once their file was synced; that a name exists,
or is another file's now, once its folder was. Of unsynced writes any may have reached the disk,
each also in part, by sectors; names change in their order.
"""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

_HEAD: Final = struct.Struct("<cQQQ")
_SECTOR: Final = 512
# Shared memory is gone with the power, and SQLite makes it anew.
_VOLATILE: Final = "-shm"


class Change(NamedTuple):
    """One record of `shim.c`."""

    kind: str
    path: str
    number: int
    data: bytes


def changes(log: Path) -> list[Change]:
    """All whole records."""
    return list(_changes(log.read_bytes()))


def _changes(content: bytes) -> Iterator[Change]:
    at = 0
    while at + _HEAD.size <= len(content):
        kind, n_path, number, n_data = _HEAD.unpack_from(content, at)
        start = at + _HEAD.size
        at = start + n_path + (n_data if kind in b"WR" else 0)
        if at > len(content):
            return
        path = content[start : start + n_path].decode()
        yield Change(kind.decode(), path, number, content[start + n_path : at])


@dataclass
class _File:
    safe: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.safe, change)
        self.pending = []

    def after_cut(self, rng: random.Random, share: float) -> bytes:
        content = bytearray(self.safe)
        for change in self.pending:
            if change.kind == "T":
                if rng.random() < share:
                    _apply(content, change)
                continue
            for part in _sectors(change):
                if rng.random() < share:
                    _apply(content, part)
        return bytes(content)


def _sectors(change: Change) -> Iterator[Change]:
    start, end = change.number, change.number + len(change.data)
    while start < end:
        stop = min(end, (start // _SECTOR + 1) * _SECTOR)
        part = change.data[start - change.number : stop - change.number]
        yield change._replace(number=start, data=part)
        start = stop


def _apply(content: bytearray, change: Change) -> None:
    if change.kind == "T":
        del content[change.number :]
        content.extend(bytes(change.number - len(content)))
        return
    end = change.number + len(change.data)
    content.extend(bytes(max(end - len(content), 0)))
    content[change.number : end] = change.data


class Disk:
    """Files as a process changed them, and as much of that as is safe."""

    def __init__(self) -> None:
        self._names: dict[str, _File] = {}
        self._safe_names: dict[str, _File] = {}
        # Changes of names that no folder's sync has made safe: path and what it names then.
        self._renamed: list[tuple[str, _File | None]] = []

    def change(self, change: Change) -> None:
        """Do what the process did."""
        if change.path.endswith(_VOLATILE):
            return
        match change.kind:
            case "S":
                self._sync(change.path)
            case "R":
                moved = self._names.pop(change.path, None)
                if moved is not None:
                    self._name(change.data.decode(), moved)
                    self._renamed.append((change.path, None))
            case "U":
                self._names.pop(change.path, None)
                self._renamed.append((change.path, None))
            case "O":
                file = self._file(change.path)
                if change.number:
                    file.pending.append(change._replace(kind="T", number=0))
            case _:
                self._file(change.path).pending.append(change)

    def _file(self, path: str) -> _File:
        if path not in self._names:
            self._name(path, _File())
        return self._names[path]

    def _name(self, path: str, file: _File) -> None:
        self._names[path] = file
        self._renamed.append((path, file))

    def _sync(self, path: str) -> None:
        if path in self._names:
            self._names[path].sync()
            return
        rest = []
        for name, file in self._renamed:
            if str(Path(name).parent) == path:
                self._settle(self._safe_names, name, file)
            else:
                rest.append((name, file))
        self._renamed = rest

    @staticmethod
    def _settle(names: dict[str, _File], name: str, file: _File | None) -> None:
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file

    def cut(self, rng: random.Random) -> dict[str, bytes]:
        """The files that a power cut now might leave, by path."""
        share = rng.choice([0.0, 0.5, 0.95, 1.0])
        names = dict(self._safe_names)
        for name, file in self._renamed[: rng.randint(0, len(self._renamed))]:
            self._settle(names, name, file)
        return {name: file.after_cut(rng, share) for name, file in names.items()}
