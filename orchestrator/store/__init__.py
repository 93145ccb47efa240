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
    "damaged",
    "is_network_fs",
    "newest",
    "salvage",
]
