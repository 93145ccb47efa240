"""What a run says of itself beside its frames, all of one moment."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from orchestrator.probing.record import ProbeRecord
from orchestrator.report.progress import Completeness
from orchestrator.runner.models.identity import identity_key, server_label
from orchestrator.runner.planning.budget import Spent
from orchestrator.runner.planning.revisions import stored_revision
from orchestrator.runner.planning.spending import spent_by
from orchestrator.runner.probing.records import probe_record
from orchestrator.store import FailureCount, RunDirectory, RunStatus, ServerUse, Store


class Record(msgspec.Struct, frozen=True):
    """What stands in a store and in the last status.

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
        """Return the identity and progress of the run for machine-readable results.

        Args:
            path: The run directory.
            completeness: How far the run is.

        Returns:
            JSON values.
        """
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

    Args:
        store: Of the run, open at one moment.
        run_dir: Of the run.
        status: Read before the store was opened, so that the store is not behind it.

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
