"""The durable store of a run, the only code that knows SQL, and the directory it is in."""

from orchestrator.store.blobs import damaged
from orchestrator.store.entries import (
    FailureCount,
    Origin,
    OutcomeCount,
    Sizes,
    StoredUnit,
    UnitCount,
)
from orchestrator.store.filesystem import is_network_fs
from orchestrator.store.gc import Unplanned, drop, plan_hashes, unplanned
from orchestrator.store.owner import Owner
from orchestrator.store.rundir import RunDirectory, RunStatus, newest
from orchestrator.store.salvage import Salvaged, salvage
from orchestrator.store.store import Store

__all__ = [
    "FailureCount",
    "Origin",
    "OutcomeCount",
    "Owner",
    "RunDirectory",
    "RunStatus",
    "Salvaged",
    "Sizes",
    "Store",
    "StoredUnit",
    "UnitCount",
    "Unplanned",
    "damaged",
    "drop",
    "is_network_fs",
    "newest",
    "plan_hashes",
    "salvage",
    "unplanned",
]
