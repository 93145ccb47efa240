"""The durable store of a run, the only code that knows SQL, and the directory it is in."""

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
from orchestrator.store.store import Store

__all__ = [
    "FailureCount",
    "Origin",
    "OutcomeCount",
    "Owner",
    "RunDirectory",
    "RunStatus",
    "Sizes",
    "Store",
    "StoredUnit",
    "UnitCount",
    "is_network_fs",
    "newest",
]
