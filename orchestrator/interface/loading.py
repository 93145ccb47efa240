"""Results of runs: read from their directories, or of a call that has just ended.

`run` imports this while requests are in flight, for none needs what it imports.
"""

import contextlib
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import msgspec

from orchestrator.columns import ITEMS
from orchestrator.disk.paths import STORE_NAME, distrust, is_foreign
from orchestrator.errors import RunDirectoryError, UsageError
from orchestrator.frames import FrameFiles
from orchestrator.interface.result import Result
from orchestrator.plugins.permission import is_allowed
from orchestrator.recipe import schema
from orchestrator.report.lines import Display
from orchestrator.report.progress import ModelProgress, Progress
from orchestrator.runner.event_loop import DeferredInterrupts
from orchestrator.runner.planning.budget import budget_of
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.planning.similar_items import notes_on_frame
from orchestrator.runner.planning.stopping import read_orders
from orchestrator.runner.results.frames import (
    NOTES,
    answer_notes,
    export_items,
    failed_units,
    notes_of,
)
from orchestrator.runner.results.readable import frames_of
from orchestrator.runner.results.stored import Record, completeness, missing_notes, record_of
from orchestrator.runner.results.tables import kept
from orchestrator.runner.session.opening import Opened
from orchestrator.runner.session.session import Ended
from orchestrator.store import RunDirectory, RunStatus, Store, newest


def load(
    run_dir: str | PathLike[str], *, allow_code: bool = False, untrusted: bool = False
) -> Result:
    """Read a run, also one that is still running or was interrupted.

    Args:
        run_dir: The run directory; the newest one where `--fresh` began others beside it.
        allow_code: Import kinds from outside this project, to summarise their rows.
        untrusted: Treat it as another user's run: write nothing into it, and bound what reading its
            store takes. `docs/security.md` says what that covers.

    Returns:
        The run, with its frames, rankings, tables and reports.

    Raises:
        RunDirectoryError: If there is no run.
        StoreError: If the run is damaged.
        UsageError: If code is allowed for a run of another user.

    Example:
        >>> result = orchestrator.load("runs/pairwise_ranking")  # doctest: +SKIP
        >>> result.frames["judgments"]  # doctest: +SKIP
    """
    path = newest(Path(run_dir))
    if untrusted:
        distrust(path)
    return read(path, allow_code=allow_code)


def read(path: Path, *, allow_code: bool = False, apart: Path | None = None) -> Result:
    """As `load`, of this very folder, also where a newer run stands beside it.

    `apart` is a folder for the frames where nothing may be written into the run's; those that are
    there and up to date are read all the same.

    Raises:
        RunDirectoryError: If there is no run.
    """
    if not (path / STORE_NAME).exists():
        raise RunDirectoryError(f"no run found at {path}; list runs with: orchestrator runs")
    if allow_code and is_foreign(path):
        raise UsageError(f"{path} belongs to another user; no code is imported for it")
    allow_code = allow_code or is_allowed(path)
    directory = RunDirectory.open(path)
    # Before the store: a run that goes on meanwhile is ahead of what it said.
    status, said = directory.status(), directory.last_outcome
    with Store.open(directory.store_path, read_only=True) as store:
        record = record_of(store, directory, status)
        frames = frames_of(store, directory, apart)
        notes = [*missing_notes(store, directory, said), *notes_of(store, record)]
        if store.current_plan is None:
            notes.append(
                "this run has no rows: it was repaired or has just started. `orchestrator run` "
                "with the same recipe rebuilds them and requests only what is missing"
            )
        orders = read_orders(store)
        n_not_needed = None if orders is None else orders.n_not_needed
        done = completeness(store, n_not_needed, failed_units(frames))
    return Result(
        path,
        None,
        # All answers and prompts are read for these, which not every reader wants.
        lambda: [*notes, *_notes(frames, record)],
        completeness=done,
        allow_code=allow_code,
        frames=frames,
        orders=orders,
        record=record,
    )


def _notes(frames: FrameFiles, record: Record) -> list[str]:
    """Return what to know of the rows, answers and prompts, all of which are read once for it."""

    def compute() -> list[str]:
        alike = notes_on_frame(frames.scan(ITEMS), record.recipe) if ITEMS in frames else ()
        return [*answer_notes(frames), *alike]

    return kept(NOTES, frames, repr(record.recipe.get("dataset")), [*frames], list[str], compute)


def result_of(  # noqa: PLR0913 (the parts of a run)
    prepared: Prepared,
    opened: Opened,
    directory: RunDirectory,
    store: Store,
    shown: Display,
    ended: Ended,
    late: DeferredInterrupts,
    *,
    notes: Sequence[str],
    before: RunStatus | None,
) -> Result:
    """Return the result of a call, and write its frames.

    `before` is the status of the run before this call, `notes` what it has shown already.
    """
    for _ in export_items(prepared.dataset, directory):
        late.look()
    frames = frames_of(store, directory, late=late)
    record = record_of(store, directory, None)
    found = [*notes_of(store, record), *_notes(frames, record)]
    for line in found:
        if line not in notes:
            shown.note(line)
    orders = read_orders(store)
    done = completeness(store, opened.n_not_needed, failed_units(frames))
    budget = budget_of(prepared, store, schema.Budget())
    progress = ended.progress or Progress(
        run_dir=str(directory.path),
        units_total=done.total,
        units_stored=done.ended,
        units_not_needed=done.not_needed,
        money=budget.money,
        bound=budget.spent.bound,
    )
    n_before = max(0, done.failed - progress.units_failed)
    progress = msgspec.structs.replace(progress, units_failed_before=n_before)
    if not progress.requests_sent and before is not None:
        # Of the last call that sent any; a status may be of another version, or damaged.
        with contextlib.suppress(msgspec.ValidationError):
            said = before.values.get("models", progress.models)
            models = msgspec.convert(said, tuple[ModelProgress, ...])
            progress = msgspec.structs.replace(progress, models=models)
    directory.write_status(msgspec.to_builtins(progress), last_outcome=store.last_outcome)
    return Result(
        directory.path,
        ended,
        lambda: found,
        completeness=done,
        allow_code=prepared.allow_code,
        frames=frames,
        orders=orders,
        # Read here: a reader that opened the store afterwards would leave its log in the folder.
        record=msgspec.structs.replace(record, status=directory.status()),
    )
