"""Servers are held to what answered this run before, as far as they say what they are."""

import logging
from collections.abc import Mapping

import msgspec

from orchestrator.backend import Provenance
from orchestrator.errors import ServerChangedError
from orchestrator.recipe.schema import ModelSpec
from orchestrator.runner.models.identity import (
    LAUNCHED,
    address,
    answered_words,
    provenance_words,
    server_label,
)
from orchestrator.runner.planning.reuse import Copies
from orchestrator.store import Store, StoredServer

_log = logging.getLogger(__name__)


class Held:
    """Knows which servers answered.

    Args:
        store: Keeps them.
        identities: Of the models; a server is held to what answered for the same identity.
        copies: What is copied from other runs, whose servers are compared; None for nothing.
        accept_change: Go on although a server is not the one the run was started with.

    Attributes:
        server_ids: Number in the store of the server that a model is connected to.
    """

    def __init__(
        self,
        store: Store,
        identities: Mapping[str, bytes],
        copies: Copies | None,
        *,
        accept_change: bool,
    ) -> None:
        self._store = store
        self._identities = dict(identities)
        self._copies = copies
        self._accept_change = accept_change
        self.server_ids: dict[str, int] = {}

    def label(self, spec: ModelSpec) -> str:
        """Return what the store remembers the servers of a model by."""
        return server_label(spec.name, self._identities[spec.name])

    def check(self, spec: ModelSpec, provenance: Provenance) -> str:
        """Hold a server to what answered before; return its label.

        Raises:
            ServerChangedError: If another server answered this run before.
        """
        if spec.server is not None:
            provenance = msgspec.structs.replace(provenance, base_url=LAUNCHED)
        elif spec.base_urls:
            provenance = msgspec.structs.replace(provenance, base_url=address(spec))
        label = self.label(spec)
        earlier = self._changed(label, provenance)
        if earlier is not None:
            now = provenance_words(provenance)
            if not self._accept_change:
                raise ServerChangedError(
                    f"model {spec.name!r}: {answered_words(earlier)}, now it would be by "
                    f"{now}. Their numbers may differ. Continue with --accept-server-change, "
                    "or start a new run with "
                    f"--fresh{' and without that run' if earlier.run else ''}"
                )
            before = provenance_words(earlier.provenance)
            said = f"{spec.name}: served by {now}, previously by {before}"
            _log.warning("%s", said, extra={"model": spec.name})
        if self._copies is not None:
            self._copies.meet(spec.name, provenance)
        self.server_ids[spec.name] = self._store.server_id(label, provenance)
        return label

    def _changed(self, label: str, provenance: Provenance) -> StoredServer | None:
        """The server that answered before this one; None where this one is no other."""
        earlier = self._store.server_of_model(label)
        if earlier is None or earlier.provenance == provenance:
            return None
        # Of several whose answers were copied none was the last.
        if earlier.run and provenance in self._store.known_servers(label):
            return None
        return earlier
