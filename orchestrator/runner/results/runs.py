"""The last status of a run, and the runs of a folder."""

import logging
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.disk.paths import STORE_NAME
from orchestrator.errors import OrchestratorError, RunDirectoryError, StoreError
from orchestrator.store import RunDirectory, RunStatus, newest, opened

_log = logging.getLogger(__name__)


def status(run_dir: str | Path) -> dict[str, object]:
    """Return the last status of a run, and whether it still runs.

    Raises:
        RunDirectoryError: If there is no run, or it never began to send.
    """
    path = newest(Path(run_dir))
    found = RunDirectory.open(path).read_status()
    if found is None:
        raise RunDirectoryError(
            f"{path}: this run has no status yet, or its status.json is damaged: `orchestrator "
            "run` with the same recipe rewrites it"
        )
    return {**found.values, "is_alive": found.is_alive, "age_s": found.age_s}


def list_runs(folder: Path) -> list[dict[str, Any]]:
    """The runs kept in a folder: path, state, units done, failed and planned, size in bytes.

    The state is `running`, `complete`, `stopped`, `damaged`, `unreadable` (of another version) or
    `foreign`; `fault` says why a run can't be read. Stores of runs that have ended are opened, and
    their outcomes counted; not all of them is read, so that other damage shows in a report or
    `repair` only.
    """
    found: list[dict[str, Any]] = []
    for store_path in sorted(folder.glob("*/store.sqlite")):
        try:
            said = RunDirectory.open(store_path.parent).read_status()
        except RunDirectoryError as error:
            # One folder that can't be read must not hide the others.
            found.append({"path": str(store_path.parent), "state": "foreign"})
            _log.info("%s", error)
            continue
        values = {} if said is None else said.values
        done = values.get("units_stored", 0) + values.get("units_done", 0)
        state, fault = _state(store_path.parent, said)
        # Bytes in a folder, without the files that go while they are counted
        total = 0
        for file in store_path.parent.rglob("*"):
            with suppress(FileNotFoundError):
                total += file.stat().st_size
        found.append(
            {
                "path": str(store_path.parent),
                "state": state,
                # Where the store can't be read, the last status proves nothing.
                "units_done": None if fault else done,
                "units_total": values.get("units_total"),
                "units_failed": None if fault else failed_of(values),
                "size": total,
                **({"fault": fault} if fault else {}),
            }
        )
    return found


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
