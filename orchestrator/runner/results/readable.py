"""Frames of a run as its reader has them: files that nobody else changes, of one moment.

A reader takes the files of `results` under names of its own, if they are those of the store as it
sees it, and makes them otherwise. Then it gives them the names in `results`, unless the store has
gone on: so what stands there is never older than what stood there before.
"""

import contextlib
import fcntl
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import polars as pl

from orchestrator.columns import ITEMS
from orchestrator.disk import columnar, files
from orchestrator.disk.paths import is_foreign, repair
from orchestrator.errors import StoreError, on_disk_error
from orchestrator.frames import FrameFiles
from orchestrator.runner.event_loop import DeferredInterrupts
from orchestrator.runner.results.frames import (
    EXPORTED,
    ITEM_COLUMNS,
    KEPT,
    export,
    is_exported,
    items_path,
    read_mark,
    version,
)
from orchestrator.runner.results.stored import roles, schemas_of
from orchestrator.store import RunDirectory, Store

_LOCK: Final = ".lock"
# Names are given in milliseconds; who was suspended meanwhile is not waited for any longer.
_WAIT_S: Final = 5.0
_TRY_S: Final = 0.02
# Looks at a file and its mark, which the run may be writing anew.
_LOOKS: Final = 5


def frames_of(
    store: Store,
    directory: RunDirectory,
    apart: Path | None = None,
    late: DeferredInterrupts | None = None,
) -> FrameFiles:
    """Return the frames of a run, exported if that was not done.

    They go to `apart` if nothing may be written into the run. `late` is looked at between units: a
    Ctrl-C leaves the frames that were there before.

    Raises:
        StoreError: If the run is damaged, or a file can't be written.
        KeyboardInterrupt: As `late` says.
    """
    # What another user's results hold need not be what their store does.
    mayread = not is_foreign(directory.path)
    maywrite = mayread and apart is None
    with ExitStack() as side:
        own = apart
        if maywrite:
            # On the disk of the results, where that can be written.
            with contextlib.suppress(OSError):
                files.real_folder(directory.results)
                own = side.enter_context(files.temporary_folder(directory.results))
        own = own or side.enter_context(files.temporary_folder())
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = _taken(store, directory.results, own) if mayread else None
        if held is None:
            export(store, own, late)
            if maywrite:
                _give(store, own, directory)
        elif apart is not None:
            # A change replaces such a file, and leaves the one that stands here.
            for name in KEPT:
                with contextlib.suppress(OSError):
                    (own / name).unlink(missing_ok=True)
                    files.check_plain(directory.results / name)
                    files.link_or_copy(directory.results / name, own / name)
        items = items_path(directory)
        if mayread:
            items = own / f"{ITEMS}.parquet"
            check_items(directory, items)
        beside = directory.results if maywrite else own
        frames = FrameFiles(held or own, _readable(items), roles(store), beside)
        weakref.finalize(frames, side.pop_all().close)
    return frames


def _taken(store: Store, results: Path, own: Path) -> Path | None:
    """Take the frames of the results, if they are those of the store; return the folder of them.

    Where no second name can be given, as on another disk, the files stay where they are.
    """
    names = [f"{frame}.parquet" for frame in schemas_of(store)]
    try:
        for name in (EXPORTED, *names):
            (own / name).unlink(missing_ok=True)
            files.check_plain(results / name)
            (own / name).hardlink_to(results / name)
    except FileNotFoundError:
        return None
    except OSError:
        return results if is_exported(store, results) else None
    return own if is_exported(store, own) else None


def _give(store: Store, own: Path, directory: RunDirectory) -> None:
    """Let the frames of this reader be those of the results, unless the store has gone on."""
    names = [f"{frame}.parquet" for frame in schemas_of(store)]
    if not (own / EXPORTED).exists():
        return  # there is no plan, or one without frames
    results = directory.results
    with on_disk_error(f"{results} cannot be written", StoreError):
        files.real_folder(results)
        with _alone(results):
            if not store.writes:
                with Store.open(store.path, read_only=True) as now:
                    if version(now) != version(store):
                        return
            for name in (*names, EXPORTED):
                with files.renaming(results / name, own=True) as part:
                    files.check_plain(own / name)
                    files.link_or_copy(own / name, part)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep others from giving names in a folder, unless they hold it for too long."""
    lock = files.open_plain(folder / _LOCK, os.O_RDWR | os.O_CREAT)
    try:
        end = time.monotonic() + _WAIT_S
        while time.monotonic() < end:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_TRY_S)
            except OSError:
                break  # a file system without locks
        yield
    finally:
        os.close(lock)


def check_items(run_dir: RunDirectory, taken: Path | None = None) -> None:
    """See that the file of items is what was written, as far as a mark says what that was.

    `taken` is where the file that was looked at gets a second name; the run may be writing it anew.
    """
    path = items_path(run_dir)
    for _ in range(_LOOKS):
        said = read_mark(run_dir.results / f".{ITEMS}")
        mark, _, expected = (said or "").rpartition(" ")
        try:
            looked_at = path
            if taken is not None:
                taken.unlink(missing_ok=True)
                files.check_plain(path)
                files.link_or_copy(path, taken)
                looked_at = taken
            is_right = not mark or files.has_checksum(looked_at, expected)
        except OSError:
            is_right = not os.path.lexists(path)  # gone, as `repair` leaves it
        if is_right:
            return
        if said == read_mark(run_dir.results / f".{ITEMS}"):
            break
    raise StoreError(
        f"{path} is damaged: `orchestrator run` with the same recipe rewrites it without "
        f"sending requests; {repair(run_dir.path, 'sets it aside')}"
    )


def _readable(path: Path) -> list[Path]:
    """Return a file of items, if there is one and its columns are those of items."""
    try:
        schema = columnar.scan(path).collect_schema()
    except columnar.UNREADABLE:
        return []
    is_right = "item" in schema and all(
        name in ITEM_COLUMNS and kind == pl.String for name, kind in schema.items()
    )
    return [path] if is_right else []
