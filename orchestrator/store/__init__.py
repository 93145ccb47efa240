"""The durable store of a run, the only code that knows SQL, and the directory it is in.

What puts stores together, collects garbage (`merging`) or salvages one is imported from there: a
run needs none of it.
"""

from orchestrator.store.blobs import damaged
from orchestrator.store.entries import FRAMES, ROLES
from orchestrator.store.lending import EndedStore, Lender, Lent, check_ended, opened
from orchestrator.store.owner import Owner, is_network_fs
from orchestrator.store.reading import FailureCount, ServerUse, StoredServer
from orchestrator.store.rundir import RunDirectory, RunStatus, check_usable, newest
from orchestrator.store.store import Store

__all__ = [
    "FRAMES", "ROLES", "EndedStore", "FailureCount", "Lender", "Lent", "Owner", "RunDirectory",
    "RunStatus", "ServerUse", "Store", "StoredServer", "check_ended", "check_usable", "damaged",
    "is_network_fs", "newest", "opened",
]  # fmt: skip
