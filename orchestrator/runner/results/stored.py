"""What the store says of a run: columns and items of its frames, units that ended, its record.

Nothing here reads a frame, so a run that begins needs nothing that computes with them.
"""

import asyncio
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from orchestrator.columns import RowRoles, decoded, schema_fault
from orchestrator.contracts.method import roles_of
from orchestrator.dataset import Dataset
from orchestrator.disk.paths import STORE_NAME
from orchestrator.errors import PluginError
from orchestrator.probing.record import ProbeRecord
from orchestrator.report.progress import Completeness
from orchestrator.runner.models.identity import identity_key, provenance_words, server_label
from orchestrator.runner.models.records import probe_record
from orchestrator.runner.planning.budget import Spent, spent_by
from orchestrator.runner.planning.revisions import stored_revision
from orchestrator.runner.planning.stopping import NOT_NEEDED
from orchestrator.store import (
    FRAMES,
    ROLES,
    FailureCount,
    RunDirectory,
    RunStatus,
    ServerUse,
    Store,
    damaged,
    is_network_fs,
)
from orchestrator.units import Plan


class Record(msgspec.Struct, frozen=True):
    """The content of a store and of the last status.

    Attributes:
        version: Of the program that began the last call.
        recipe: The resolved recipe of that call.
        identities: What decides each model's numbers, in words.
        status: The last one; None where there is none.
        servers: Those that answered for each model, in the order they were met.
        probes: What was found out about the server of a model.
        failures: Failed requests, the most frequent first.
        spent: By all calls; None where nothing was kept.
    """

    version: str = ""
    recipe: Mapping[str, Any] = {}
    identities: Mapping[str, Mapping[str, str]] = {}
    status: RunStatus | None = None
    servers: Mapping[str, Sequence[ServerUse]] = {}
    probes: Mapping[str, ProbeRecord] = {}
    failures: Sequence[FailureCount] = ()
    spent: Spent | None = None

    @property
    def keys(self) -> dict[str, bytes]:
        """The identities of the models as the store names them."""
        return {model: identity_key(identity) for model, identity in self.identities.items()}

    def metadata(self, path: Path, completeness: Completeness) -> dict[str, Any]:
        """Return the identity and progress of the run for machine-readable results."""
        settings, status = self.recipe, self.status
        return {
            "run": str(path),
            "name": settings.get("name", path.name),
            "orchestrator": self.version,
            "at": None if status is None else status.at.isoformat(timespec="seconds"),
            "seed": settings.get("seed"),
            "limit": settings.get("limit"),
            "subset": settings.get("subset"),
            "dataset": settings.get("dataset"),
            "models": {
                name: {
                    str(key): str(value) for key, value in (self.identities.get(name) or {}).items()
                }
                for name in settings.get("models", {})
            },
            "methods": [one.get("name") or one.get("kind") for one in settings.get("methods", ())],
            "confidence_level": settings.get("statistics", {}).get("confidence_level", 0.95),
            **completeness.as_json(),
        }


def record_of(store: Store, run_dir: RunDirectory, status: RunStatus | None) -> Record:
    """Read the record of a run.

    The status was read before the store was opened, so that the store is not behind it.

    Raises:
        StoreError: If a part of it is damaged.
    """
    revision = stored_revision(store, run_dir)
    found = Record(
        version=str(revision.get("orchestrator", "")),
        recipe=revision.get("recipe", {}),
        identities=revision.get("identities", {}),
        status=status,
        failures=store.failures(),
        spent=spent_by(store),
    )
    labels = {model: server_label(model, key) for model, key in found.keys.items()}
    probes = {}
    for model, label in labels.items():
        with suppress(msgspec.MsgspecError):  # damaged, or of another version
            if (probe := probe_record(store, label)) is not None:
                probes[model] = probe
    return msgspec.structs.replace(
        found,
        servers={model: store.servers_used(label) for model, label in labels.items()},
        probes=probes,
    )


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
    known = store.meta.get(ROLES)
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


def completeness(store: Store, n_not_needed: int | None = None, n_failed: int = 0) -> Completeness:
    """Return how far the run of the current plan is.

    Without `n_not_needed`, units that a stopping rule found to be not needed are those that its
    last call knew. Only rows tell how many units failed.
    """
    plan_id, total = store.current_plan, store.meta.get(UNITS)
    if plan_id is None or total is None:
        return Completeness(failed=n_failed)
    n_units = store.n_units(plan_id)
    if total != str(n_units):
        raise damaged("the number of units is", f"it is {n_units:,} and {total!r:.80}")
    if n_not_needed is None:
        of_plan, _, said = (store.meta.get(NOT_NEEDED) or "").partition(" ")
        said = said if of_plan == str(plan_id) else "0"
        if not (said.isascii() and said.isdecimal()):
            raise damaged("the number of units that are not needed is", f"{said!r:.80}")
        n_not_needed = int(said)
    ended = store.n_ended(plan_id)
    return Completeness(n_units, ended, failed=n_failed, not_needed=n_not_needed)


def failed_units(store: Store) -> int:
    """Count the units of the current plan with a failed row: as `frames` does, without frames."""
    if (plan_id := store.current_plan) is None:
        return 0
    n_failed = 0
    for frame, schema in schemas_of(store).items():
        if "status" in schema:
            at = [*schema].index("status")
            units = store.iter_rows(plan_id, frame)
            n_failed += sum(any(row[at] != "ok" for row in unit.rows) for unit in units)
    return n_failed


def schemas_of(store: Store) -> dict[str, dict[str, str]]:
    """Columns of each frame of the current plan."""
    known = store.meta.get(FRAMES)
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


def missing_notes(store: Store, run_dir: RunDirectory, said: int) -> list[str]:
    """Return a line if the store lacks outcomes that the run said were recorded.

    `said` is the number of the last outcome, read before the store was opened: a run that goes on
    meanwhile is ahead of what it said before.
    """
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
    """Return notes on outcomes copied from other runs, and on models with several servers."""
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


# How often is looked whether the first request is sent, seconds.
_LOOK_S: Final = 0.05


async def keep_items(
    n_sent: Callable[[], int],
    dataset: Dataset,
    run_dir: RunDirectory,
    meanwhile: Callable[[], object] | None = None,
) -> None:
    """Write the frame in steps between the loop's turns, from the first request on.

    Args:
        n_sent: How many requests this call has sent.
        dataset: Of the run.
        run_dir: Held for writing.
        meanwhile: Called first, in a thread.

    Cancelled, it leaves the frame that was there; `results.export_items` writes it after sending.

    Raises:
        StoreError: If the file can't be written.
    """
    # Sending, which happens thousands of times a second, sets no event for it.
    while not n_sent():  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_S)
    if meanwhile is not None:
        await asyncio.to_thread(meanwhile)
    # In a thread too: to import polars takes long.
    frames = await asyncio.to_thread(importlib.import_module, "orchestrator.runner.results.frames")
    with closing(frames.export_items(dataset, run_dir)) as steps:
        for _ in steps:
            await asyncio.sleep(0)
