"""What the store says of a run: columns of its frames, units that ended, servers that answered.

Nothing here reads a frame, so a run that begins needs nothing that computes with them.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from orchestrator.columns import RowRoles, decoded, schema_fault
from orchestrator.contracts.method import roles_of
from orchestrator.disk.paths import STORE_NAME
from orchestrator.errors import PluginError, RunDirectoryError
from orchestrator.report.progress import Completeness
from orchestrator.runner.models.identity import provenance_words
from orchestrator.runner.planning.stopping import NOT_NEEDED
from orchestrator.store import FRAMES, ROLES, RunDirectory, ServerUse, Store, damaged, is_network_fs
from orchestrator.units import Plan

_CLIENTS = "clients"
UNITS = "units"
"""Key of the number of units of the plan in a store."""


def plan_values(plan: Plan) -> dict[str, str]:
    """What a store has to say of a plan, so that its rows can be read without recipe.

    Raises:
        PluginError: If a frame or a column has no name that can be used.
    """
    schemas = {part.frame: part.columns for part in plan.parts}
    fault = schema_fault(schemas)
    if fault is not None:
        raise PluginError(f"a method's frame or columns are wrong: {fault}")
    row_roles: dict[str, RowRoles] = {}
    for part in plan.parts:
        known = row_roles.setdefault(part.frame, roles_of(type(part.method)))
        compared = part.method.compared()
        if known.distribution is not None and compared is not None:
            lowest = {**known.lowest, part.name: math.floor(compared.low)}
            row_roles[part.frame] = msgspec.structs.replace(known, lowest=lowest)
    return {
        FRAMES: msgspec.json.encode(schemas).decode(),
        ROLES: msgspec.json.encode(row_roles).decode(),
        UNITS: str(len(plan)),
    }


def roles(store: Store) -> dict[str, RowRoles] | None:
    """Return the roles of the columns of each frame; None where an older version wrote the run.

    Raises:
        StoreError: If they are damaged.
    """
    known = store.get_meta(ROLES)
    if known is None:
        return None
    schemas = schemas_of(store)
    try:
        found = decoded(known, schemas)
    except ValueError as error:
        raise damaged("the roles of columns are", error) from error
    if found.keys() != schemas.keys():
        raise damaged("the roles of columns are", "those of other frames")
    return found


def units_left(store: Store) -> int:
    """Return the units of the current plan that have no row and need one, by the last call."""
    return counted(store, None).left


def counted(store: Store, n_not_needed: int | None) -> Completeness:
    """As `completeness`, without the failed units, which only the frames tell."""
    plan_id, total = store.current_plan, store.get_meta(UNITS)
    if plan_id is None or total is None:
        return Completeness()
    n_units = store.n_units(plan_id)
    if total != str(n_units):
        raise damaged("the number of units is", f"it is {n_units:,} and {total!r:.80}")
    if n_not_needed is None:
        of_plan, _, said = (store.get_meta(NOT_NEEDED) or "").partition(" ")
        n_not_needed = _number(said) if of_plan == str(plan_id) else 0
    return Completeness(n_units, store.n_ended(plan_id), not_needed=n_not_needed)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise damaged("the number of units that are not needed is", f"{text!r:.80}")
    return int(text)


def schemas_of(store: Store) -> dict[str, dict[str, str]]:
    """Columns of each frame of the current plan."""
    known = store.get_meta(FRAMES)
    if known is None:
        return {}
    try:
        found = msgspec.json.decode(known, type=dict[str, dict[str, str]])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise damaged("the columns of frames are", error) from error
    fault = schema_fault(found)
    if fault is not None:
        raise damaged("the frames of this run are", fault)
    return found


def check_whole(run_dir: RunDirectory) -> None:
    """See that no stores stand beside that of a run, as processes of earlier versions left them.

    Raises:
        RunDirectoryError: If some do.
    """
    if (run_dir.path / _CLIENTS).is_dir():
        raise RunDirectoryError(_left_by_clients(run_dir.path))


def _left_by_clients(path: Path) -> str:
    return (
        f"{path / _CLIENTS} holds what clients of an earlier version recorded and did not merge: "
        f"`orchestrator merge {path} {path / _CLIENTS}/[0-9]* --into OTHER` puts it together "
        "with this run"
    )


def missing_notes(store: Store, run_dir: RunDirectory, said: int) -> list[str]:
    """Return a line if the store lacks outcomes that the run said were recorded.

    Args:
        store: Of the run.
        run_dir: Of the run.
        said: Number of the last outcome, by `RunDirectory.last_outcome` before the store was opened
            to read: a run that goes on meanwhile is ahead of what it said before.
    """
    if (run_dir.path / _CLIENTS).is_dir():
        return [_left_by_clients(run_dir.path)]
    # Where a copy is read that is some minutes old, the run itself is ahead of it.
    if is_network_fs(run_dir.path):
        return []
    n = said - store.last_outcome
    if n <= 0:
        return []
    return [
        f"{n:,} outcomes that this run recorded are missing from {STORE_NAME}: was it copied "
        f"or restored without {STORE_NAME}-wal? Restore that file before the next "
        "`orchestrator run`, or they will be requested again"
    ]


def server_notes(servers: Mapping[str, Sequence[ServerUse]]) -> list[str]:
    """Return notes on outcomes copied from other runs, and on models with several servers.

    Args:
        servers: Those that answered for each model, with counts of outcomes.
    """
    notes = []
    copied: dict[str, dict[str, int]] = {}
    for model, used in servers.items():
        for use in used:
            if use.run:
                of_run = copied.setdefault(use.run, {})
                of_run[model] = of_run.get(model, 0) + use.n
        epochs = dict.fromkeys(use.epoch for use in used)
        if len(epochs) > 1:
            words = "; ".join(f"{use_words(use)}: {use.n:,}" for use in used)
            notes.append(
                f"{model}: outcomes of this run come from {len(epochs)} different servers, whose "
                f"numbers may differ ({words})"
            )
    reused = []
    for run, of_run in copied.items():
        words = ", ".join(f"{model} {n:,}" for model, n in of_run.items())
        reused.append(f"{sum(of_run.values()):,} outcomes were copied from {run} ({words})")
    return [*reused, *notes]


def use_words(use: ServerUse, *, with_epoch: bool = True) -> str:
    """A server that answered, its epoch, and for which run if that was another one."""
    words = provenance_words(use.provenance)
    if with_epoch:
        words = f"server_epoch {use.epoch}, {words}"
    return f"{words}, copied from {use.run}" if use.run else words
