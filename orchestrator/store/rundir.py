"""The directory of one run: where its files are, and that only one process writes them."""

import contextlib
import glob
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import psutil

from orchestrator.disk import files, paths
from orchestrator.disk.paths import STORE_NAME, is_foreign, is_text, keep_private, owner_fault
from orchestrator.errors import RunDirectoryError, StoreError, on_disk_error
from orchestrator.store.owner import (
    Check,
    Owner,
    held_by_file,
    held_by_flock,
    is_network_fs,
    read_owner,
    this_process,
)

_MARK: Final = "run.json"
_LOCK: Final = "lock"
_OWNER: Final = "owner.json"
_FORMAT: Final = 1
_LAST_OUTCOME: Final = "last_outcome"
# A writer on another machine can't be asked; it writes its status each second.
_REMOTE_ALIVE_S: Final = 30.0


class _Mark(msgspec.Struct, frozen=True):
    """The mark of a run directory: its name without number, and its number."""

    name: str
    number: int = 1
    format: int = _FORMAT


class RunStatus(msgspec.Struct, frozen=True):
    """The last status of a run.

    Attributes:
        values: As given to `write_status`.
        writer: Who wrote it.
        at: When, in UTC.
        age_s: How long ago.
        is_alive: Whether the writer still runs.
    """

    values: dict[str, Any]
    writer: Owner
    at: datetime
    age_s: float
    is_alive: bool


class RunDirectory:
    """The paths of a run. `lock` opens it for writing, `open` for reading.

    Attributes:
        path: The folder.
        store_path: The store.
        results: Folder of exported frames.
        servers: Folder of the logs of launched servers.
        revisions: Folder of the recipes as they were run, numbered.
        control: Folder where a running run is given commands.
        log_path: The log, JSON lines.
        status_path: The last status.
        check_owned: Raises `StoreError` once another process has taken over a run held for writing.
    """

    def __init__(self, path: Path, owner: Owner | None = None) -> None:
        self.path = path
        self.store_path = path / STORE_NAME
        self.results, self.servers = path / "results", path / "servers"
        self.revisions, self.control = path / "revisions", path / "control"
        self.log_path, self.status_path = path / "log.jsonl", path / "status.json"
        self._folders = (self.results, self.servers, self.revisions, self.control)
        self.check_owned: Check = lambda: None
        self._owner = owner

    @classmethod
    @contextlib.contextmanager
    def lock(cls, path: Path, *, fresh: bool = False, exactly: bool = False) -> Iterator[Self]:
        """Hold a run for writing; made where there is none.

        The path is `runs/<recipe name>`. Where `--fresh` began `<path>.2` and so on, the newest of
        them is held, unless this one is wanted `exactly`; a numbered path means that one.

        Raises:
            RunDirectoryError: If another process holds it, another user owns or may write it, or
                the folder is something else.
        """
        found = path if exactly else newest(path)
        path, mark = _next(path) if fresh else (found, _Mark(path.name))
        _make(path)
        owner = this_process()
        directory = cls(path, owner)
        directory.check_entries()
        if is_network_fs(path):
            held = held_by_file(path / _OWNER, owner)
        else:
            held = held_by_flock(path / _LOCK, owner)
        with held as directory.check_owned:
            directory.prepare(mark)
            yield directory

    @classmethod
    def open(cls, path: Path) -> Self:
        """A run to read.

        Raises:
            RunDirectoryError: If there is none.
        """
        _read_mark(path)
        return cls(path)

    @staticmethod
    def mend(path: Path) -> list[str]:
        """Write the mark of a run anew where it is damaged, and return what was done, in words.

        Raises:
            RunDirectoryError: If there is no run.
        """
        if _mark(path) is not None or not (path / STORE_NAME).exists():
            return []
        _write(path / _MARK, msgspec.json.encode(_guessed(path)), durable=True)
        return [f"rewrote {_MARK}, which was damaged or missing"]

    def server_log(self, model: str) -> Path:
        """The log of a model's server; two models never share one."""
        safe = re.sub(r"[^\w.-]", "_", model, flags=re.ASCII).lstrip(".")[:100]
        if safe != model:
            safe += "-" + blake2b(model.encode("utf-8", "replace"), digest_size=4).hexdigest()
        return self.servers / f"{safe}.log"

    # -- revisions ---------------------------------------------------------------------------------

    def write_revision(self, text: str) -> int:
        """Keep a resolved recipe under the next number, which is returned.

        Raises:
            StoreError: If it can't be written.
        """
        last = self.last_revision
        number = 1 if last is None else int(last.stem) + 1
        _write(self.revisions / f"{number}.yaml", text.encode(), durable=True)
        return number

    @property
    def last_revision(self) -> Path | None:
        """The file of the last recipe that was run; None before the first."""
        files = (file for file in self.revisions.glob("*.yaml") if file.stem.isdecimal())
        return max(files, key=lambda file: int(file.stem), default=None)

    # -- status ------------------------------------------------------------------------------------

    def write_status(self, values: Mapping[str, object], *, last_outcome: int = 0) -> None:
        """Replace the status as a whole; not made durable, it comes again in a second.

        `last_outcome` is the number of the one that its store wrote to the disk last.

        Raises:
            RunDirectoryError: If the run was opened for reading.
            StoreError: If it can't be written, or another process has taken over the run.
        """
        if self._owner is None:
            raise RunDirectoryError(f"{self.path} was opened for reading only")
        self.check_owned()
        status = {"writer": self._owner, "at": datetime.now(UTC), "values": values}
        status |= {_LAST_OUTCOME: last_outcome} if last_outcome else {}
        try:
            content = msgspec.json.encode(status)
        except UnicodeEncodeError:
            # Text of a model or server with lone surrogates, which JSON can escape.
            content = json.dumps(msgspec.to_builtins(status)).encode()
        _write(self.status_path, content, durable=False)

    @property
    def last_outcome(self) -> int:
        """Number of the last outcome that the run has said to be on the disk; 0 where it said none.

        A store whose write-ahead log was left behind, or removed, is whole without the last ones.
        """
        said = self._status().get(_LAST_OUTCOME)
        return said if isinstance(said, int) else 0

    def forget_outcomes(self) -> None:
        """Forget which outcome was the last, as the store was written anew.

        Raises:
            StoreError: If that can't be written.
        """
        status = self._status()
        if status.pop(_LAST_OUTCOME, None) is not None:
            _write(self.status_path, json.dumps(status).encode(), durable=True)

    def _status(self) -> dict[str, Any]:
        try:
            found = json.loads(files.read(self.status_path))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def status(self) -> RunStatus | None:
        """Return the last status of the run; None if there is none that can be read."""
        try:
            found = self._status()
            writer = msgspec.convert(found["writer"], Owner)
            at = datetime.fromisoformat(found["at"])
            values = dict(found["values"])
        except (ValueError, KeyError, TypeError):
            return None
        age_s = max(0.0, (datetime.now(UTC) - at).total_seconds())  # a clock may be set back
        is_alive = writer.is_alive if writer.is_here else age_s < _REMOTE_ALIVE_S
        return RunStatus(values, writer, at, age_s, is_alive)

    def holder(self) -> Owner | None:
        """The process that says it holds this run; None where there is none or it is gone."""
        owner = read_owner(self.path / _LOCK) or read_owner(self.path / _OWNER)
        if owner is None or (owner.is_here and not owner.is_alive):
            return None
        return owner

    def prepare(self, mark: _Mark) -> None:
        """Mark the folder as a run's and make those inside."""
        if not (self.path / _MARK).exists():
            _write(self.path / _MARK, msgspec.json.encode(mark), durable=True)
        _read_mark(self.path)
        try:
            for folder in self._folders:
                files.real_folder(folder)
        except OSError as error:
            raise RunDirectoryError(
                f"{error.filename or self.path}: {error.strerror or error}: a run directory needs "
                f"a folder here; remove what is in its place"
            ) from error
        # Killed processes left these of files that they were writing.
        for folder in (self.path, self.revisions):
            for part in folder.glob(".*.part"):
                writer = part.name.split(".")[-2]
                if writer.isdecimal() and not psutil.pid_exists(int(writer)):
                    part.unlink(missing_ok=True)

    def check_entries(self) -> None:
        """Refuse a run that holds links, or what another user put there.

        What is written or cleared through a link would be elsewhere.

        Raises:
            RunDirectoryError: If it does.
        """
        # The run directory itself may stand elsewhere, by a link of its user.
        for folder in (self.path, *self._folders):
            for path in files.entries(folder):
                with contextlib.suppress(FileNotFoundError):
                    fault = owner_fault(path)
                    if path.is_symlink():
                        fault = f"{path} is a link, which a run directory must not have"
                    if fault:
                        raise RunDirectoryError(f"{fault}: remove it, or use another --run-dir")


def newest(path: Path) -> Path:
    """The last run that `--fresh` began beside `path`; `path` itself where there is none.

    Runs of other users count only where there is none of this user.
    """
    numbered = [
        (mark.number, sibling)
        for sibling in path.parent.glob(f"{glob.escape(path.name)}.*")
        # One whose mark is damaged must not make an older run the newest.
        if (mark := _mark(sibling) or _guessed(sibling)).name == path.name
        and (_mark(sibling) or (sibling / STORE_NAME).exists())
        and sibling.name == f"{path.name}.{mark.number}"
    ]
    found = [*numbered, (1, path)] if path.exists() else numbered
    own = [pair for pair in found if not is_foreign(pair[1])]
    return max(own or found, default=(1, path))[1]


def _next(path: Path) -> tuple[Path, _Mark]:
    """The first path for a new run of the same name that does not exist."""
    mark = _mark(path)
    base = path if mark is None else path.with_name(mark.name)
    if not base.exists():
        return base, _Mark(base.name)
    numbered = ((number, base.with_name(f"{base.name}.{number}")) for number in itertools.count(2))
    number, free = next(pair for pair in numbered if not pair[1].exists())
    return free, _Mark(base.name, number)


def _make(path: Path) -> None:
    """Make a folder that is this user's alone."""
    if not is_text(path.absolute()):
        raise RunDirectoryError(
            f"{path.absolute()}: frames cannot be written to a path that is not UTF-8: rename the "
            f"folder, or use another --run-dir"
        )
    try:
        for folder in reversed(path.absolute().parents):
            if not folder.exists():
                # Not writable for others, whatever the umask.
                folder.mkdir(mode=0o755, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        fault = keep_private(path)
    except OSError as error:
        raise RunDirectoryError(
            f"{path}: {error.strerror or error}: use another --run-dir"
        ) from error
    if fault:
        raise RunDirectoryError(f"{fault}; use a --run-dir that only you can write to")
    check_usable(path)


def check_usable(path: Path) -> None:
    """See that a folder, if it is there, is empty or holds a run.

    Raises:
        RunDirectoryError: If it is something else.
    """
    try:
        found = {entry.name for entry in path.iterdir()}
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunDirectoryError(
            f"{path}: {error.strerror or error}: use another --run-dir"
        ) from error
    # What a process leaves that is ended between making the folder and marking it.
    begun = (_LOCK, _OWNER, _MARK, f".{_MARK}.")
    if _MARK not in found and STORE_NAME in found:
        raise RunDirectoryError(_unmarked(path))
    if _MARK not in found and any(not name.startswith(begun) for name in found):
        raise RunDirectoryError(
            f"{path} has files but no run: use an empty or new folder as --run-dir"
        )


def _mark(path: Path) -> _Mark | None:
    try:
        return msgspec.json.decode(files.read(path / _MARK), type=_Mark)
    except (OSError, msgspec.MsgspecError):
        return None


def _unmarked(path: Path) -> str:
    return f"{path / _MARK} is damaged or missing: {paths.repair(path, 'rewrites it')}"


def _guessed(path: Path) -> _Mark:
    """Guess a run directory's mark, by its name and those beside it."""
    numbered = re.fullmatch(r"(.+)\.([1-9][0-9]{0,8})", path.name)
    if numbered and int(numbered[2]) > 1 and path.with_name(numbered[1]).is_dir():
        return _Mark(numbered[1], int(numbered[2]))
    return _Mark(path.name)


def _read_mark(path: Path) -> _Mark:
    mark = _mark(path)
    if mark is None and (path / STORE_NAME).exists():
        raise RunDirectoryError(_unmarked(path))
    if mark is None:
        raise RunDirectoryError(f"no run found at {path}")
    if mark.format > _FORMAT:
        raise RunDirectoryError(
            f"{path} was written by a newer version of orchestrator: use that version, or start "
            f"again with --fresh"
        )
    return mark


def _write(path: Path, content: bytes, *, durable: bool) -> None:
    with on_disk_error(f"{path} cannot be written", StoreError):
        files.write(path, content, durable=durable, own=True)
