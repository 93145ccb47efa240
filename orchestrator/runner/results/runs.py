"""The last status of a run, and the runs of a folder."""

import glob
import logging
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.disk.paths import STORE_NAME, answers, is_foreign
from orchestrator.errors import OrchestratorError, RunDirectoryError, StoreError
from orchestrator.runner.planning.prepare import Prepared, describe_change
from orchestrator.runner.planning.revisions import revision_of
from orchestrator.store import RunDirectory, RunStatus, newest, opened
from orchestrator.store.entries import wall_ms

_log = logging.getLogger(__name__)


def status(run_dir: str | Path) -> dict[str, object]:
    """Return the last status of a run, and whether it still runs.

    Raises:
        RunDirectoryError: If there is no run, or it never began to send.
    """
    path = newest(Path(run_dir))
    found = RunDirectory.open(path).status()
    if found is None:
        raise RunDirectoryError(
            f"{path}: this run has no status yet, or its status.json is damaged: `orchestrator "
            "run` with the same recipe rewrites it"
        )
    return {**found.values, "is_alive": found.is_alive, "age_s": found.age_s}


def list_runs(folder: Path) -> list[dict[str, Any]]:
    """The runs kept in a folder, as `describe` tells of each."""
    return [describe(store.parent) for store in sorted(folder.glob("*/store.sqlite"))]


def shards_of(run: Path) -> list[Path]:
    """Return the runs of a run's shards that have begun, in order."""
    found = []
    for path in run.parent.glob(f"{glob.escape(run.name)}.shard-*-of-*"):
        part, _, n = path.name.removeprefix(f"{run.name}.shard-").partition("-of-")
        # Of another user's folder nothing may be known.
        if part.isdecimal() and n.isdecimal() and answers(path / STORE_NAME, Path.exists):
            found.append((int(n), int(part), path))
    return [path for _, _, path in sorted(found)]


def unfinished(prepared: Prepared, paths: Sequence[Path]) -> dict[int, str]:
    """Return the shards that have not ended, by number, and how far each is, in words.

    Args:
        prepared: One of the shards. Those that ended with another recipe have not ended with this.
        paths: Runs of all shards, in order.
    """
    found = {}
    for part, path in enumerate(paths, 1):
        if is_foreign(path):
            found[part] = "belongs to another user"
            continue
        row = describe(path) if (path / STORE_NAME).exists() else {"state": "not begun"}
        if row["state"] == "complete":
            settings = {"subset": f"{part}/{len(paths)}"}
            recipe = prepared.recipe
            recipe = replace(recipe, settings=recipe.settings.model_copy(update=settings))
            before = revision_of(RunDirectory.open(path), recipe.name)
            if changes := describe_change(before, prepared.identities, recipe):
                found[part] = f"ended before the recipe changed ({', '.join(changes)})"
        elif row.get("units_total") and "fault" not in row:
            found[part] = f"{row['state']}, {row['units_done']} of {row['units_total']} units"
        else:
            found[part] = row["state"]
    return found


def describe(run: Path) -> dict[str, Any]:
    """Return path, state, units done, failed and planned, size in bytes and age of a run.

    The state is `running`, `complete`, `stopped`, `damaged`, `unreadable` (of another version) or
    `foreign`; `fault` says why a run can't be read. The store of a run that has ended is opened,
    and its outcomes counted; not all of it is read, so that other damage shows in a report or
    `repair` only. `age_s` is the time since anything in it was written, in seconds.
    """
    size, written = 0, 0.0
    for file in run.rglob("*"):
        # Files go while they are counted.
        with suppress(OSError):
            found = file.lstat()
            size += found.st_size
            written = max(written, found.st_mtime)
    row = {"path": str(run), "size": size, "age_s": max(0.0, wall_ms() / 1000 - written)}
    try:
        said = RunDirectory.open(run).status()
    except RunDirectoryError as error:
        # One folder that can't be read must not hide the others.
        _log.info("%s", error)
        return {**row, "state": "foreign"}
    values = {} if said is None else said.values
    done = values.get("units_stored", 0) + values.get("units_done", 0)
    state, fault = _state(run, said)
    return {
        **row,
        "state": state,
        # Where the store can't be read, the last status proves nothing.
        "units_done": None if fault else done,
        "units_total": values.get("units_total"),
        "units_failed": None if fault else failed_of(values),
        **({"fault": fault} if fault else {}),
    }


def _state(path: Path, said: RunStatus | None) -> tuple[str, str]:
    """Return the state of a run by its store and its last status, and why it can't be read."""
    # The process of a notebook goes on when its run has ended, and holds it no more.
    if said is not None and said.is_alive and RunDirectory(path).holder() is not None:
        return "running", ""
    values = {} if said is None else said.values
    try:
        # Without a trace: a list writes nothing into runs.
        with tempfile.TemporaryDirectory() as folder, opened(path, Path(folder)):
            pass
    except StoreError as error:
        return "damaged", str(error)
    except OrchestratorError as error:
        if (path / STORE_NAME).stat().st_size:
            return "unreadable", str(error)
        # A run that has just been made has an empty store and no status.
        return ("stopped", "") if said is None else ("damaged", str(error))
    done = values.get("units_stored", 0) + values.get("units_done", 0)
    is_done = done + values.get("units_not_needed", 0) == values.get("units_total")
    return "complete" if is_done else "stopped", ""


def failed_of(values: Mapping[str, Any]) -> int | None:
    """Units that failed, in all calls; None where that is not known."""
    now: int | None = values.get("units_failed")
    return None if now is None else now + int(values.get("units_failed_before", 0))
