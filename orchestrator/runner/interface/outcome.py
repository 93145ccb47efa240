"""The result of a call that has ended: its frames are written, and its status is completed.

`running` imports this when there is a result, for no request needs what it imports.
"""

from collections.abc import Sequence

import msgspec

from orchestrator.report.display import Display
from orchestrator.report.progress import ModelProgress, Progress
from orchestrator.runner.interface.result import Result
from orchestrator.runner.interrupts import DeferredInterrupts
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.planning.spending import money_spent
from orchestrator.runner.planning.stopping import read_orders
from orchestrator.runner.results.frames import completeness, export_items, notes_of
from orchestrator.runner.results.readable import frames_of
from orchestrator.runner.results.record import record_of
from orchestrator.runner.results.stored import counted
from orchestrator.runner.session.execute import Ended, Opened
from orchestrator.store import RunDirectory, Store


def result_of(  # noqa: PLR0913 (the parts of a run)
    prepared: Prepared,
    opened: Opened,
    directory: RunDirectory,
    store: Store,
    shown: Display,
    ended: Ended,
    late: DeferredInterrupts,
    *,
    is_read: bool,
    notes: Sequence[str],
    told: tuple[ModelProgress, ...],
) -> Result:
    """Return the result of a call, and write its frames if anything will read them.

    Args:
        prepared: The run.
        opened: Its plan.
        directory: Held for writing.
        store: Open for writing.
        shown: Gets the notes on the sources of the numbers.
        ended: How the call ended.
        late: Interrupts of the call.
        is_read: Whether anything reads the frames of this call.
        notes: Notes that were shown already.
        told: Requests by model of the last call that sent any.
    """
    if not is_read:
        done = counted(store, opened.n_not_needed)
        return Result(directory.path, ended, completeness=done, allow_code=prepared.allow_code)
    export_items(prepared.dataset, directory, late)
    frames = frames_of(store, directory, late=late)
    record = record_of(store, directory, None)
    found = notes_of(store, record, frames)
    for line in found:
        shown.note(line)
    orders = read_orders(store)
    done = completeness(store, frames, opened.n_not_needed)
    progress = ended.progress or Progress(
        run_dir=str(directory.path),
        units_total=done.total,
        units_stored=done.ended,
        units_not_needed=done.not_needed,
        money=money_spent(prepared, store),
    )
    # Units that failed in earlier calls.
    before = max(0, done.failed - progress.units_failed)
    progress = msgspec.structs.replace(progress, units_failed_before=before)
    if not progress.requests_sent and told:
        progress = msgspec.structs.replace(progress, models=told)
    directory.write_status(msgspec.to_builtins(progress), last_outcome=store.last_outcome)
    return Result(
        directory.path,
        ended,
        [*found, *notes],
        completeness=done,
        allow_code=prepared.allow_code,
        frames=frames,
        orders=orders,
        # Read here: a reader that opened the store afterwards would leave its log in the folder.
        record=msgspec.structs.replace(record, status=directory.read_status()),
    )
