"""Status of runs without opening them, and the runs of a folder."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.errors import RunDirectoryError
from orchestrator.store import RunDirectory, newest

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
    """The runs kept in a folder: path, state, units done, failed and planned, size in bytes."""
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
        complete = done + values.get("units_not_needed", 0) == values.get("units_total")
        state = "complete" if complete else "stopped"
        # Bytes in a folder, without the files that go while they are counted
        total = 0
        for file in store_path.parent.rglob("*"):
            with suppress(FileNotFoundError):
                total += file.stat().st_size
        found.append(
            {
                "path": str(store_path.parent),
                "state": "running" if said is not None and said.is_alive else state,
                "units_done": done,
                "units_total": values.get("units_total"),
                "units_failed": failed_of(values),
                "size": total,
            }
        )
    return found


def failed_of(values: Mapping[str, Any]) -> int | None:
    """Units that failed, in all calls; None where that is not known."""
    now: int | None = values.get("units_failed")
    return None if now is None else now + int(values.get("units_failed_before", 0))
