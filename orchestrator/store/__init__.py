"""The durable store of a run, the only code that knows SQL, and the directory it is in."""

from orchestrator.store.blobs import damaged
from orchestrator.store.entries import (
    FRAMES,
    ROLES,
    FailureCount,
    OutcomeCount,
    ServerUse,
    StoredServer,
    StoredUnit,
)
from orchestrator.store.lending import EndedStore, Lender, Lent, check_ended, opened
from orchestrator.store.merging import FromRun, drop_failures, merge, put_in_place, unplanned
from orchestrator.store.owner import Owner, is_network_fs
from orchestrator.store.rundir import RunDirectory, RunStatus, check_usable, newest
from orchestrator.store.salvage import Salvaged, salvage
from orchestrator.store.store import Store

__all__ = [
    "FRAMES", "ROLES", "EndedStore", "FailureCount", "FromRun", "Lender", "Lent", "OutcomeCount",
    "Owner", "RunDirectory", "RunStatus", "Salvaged", "ServerUse", "Store",
    "StoredServer", "StoredUnit", "check_ended", "check_usable", "damaged",
    "drop_failures", "is_network_fs", "merge", "newest", "opened",
    "put_in_place", "salvage", "unplanned",
]  # fmt: skip
