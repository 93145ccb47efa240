"""The shelf on which the servers of a run are found again, and kept after its end."""

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from orchestrator.runner.servers.registry import KeptServer, ServerRegistry, let_go
from orchestrator.serving import RunningServer

_log = logging.getLogger(__name__)


class Keep(msgspec.Struct, frozen=True):
    """The shelf on which the servers of a run are found again and kept.

    Attributes:
        shelf: Where kept servers are remembered.
        identities: Of the models.
        wanted: Whether servers are kept when the run ends.
    """

    shelf: ServerRegistry
    identities: Mapping[str, bytes]
    wanted: bool


class Keeping(msgspec.Struct):
    """The record by which one server is found again and kept.

    Attributes:
        shelf: Where kept servers are remembered.
        key: What it serves and how.
        kind: Of the launch module.
        models: Names that it answers to.
        wanted: Whether it is kept when the run ends.
    """

    shelf: ServerRegistry
    key: str
    kind: str
    models: tuple[str, ...]
    wanted: bool

    def find(self) -> KeptServer | None:
        """The server, where an earlier run kept it and no other part of this run has it."""
        return self.shelf.find(self.key)

    def keep(self, server: RunningServer) -> bool:
        """Keep a server when the run ends; return False if it ends with the run."""
        if isinstance(server, KeptServer):
            return server.exit_code() is None
        kept = let_go(server, self.key, self.kind, self.models) if self.wanted else None
        if kept is None:
            return False
        try:
            self.shelf.put(kept, server.api_key)
        except OSError as error:
            # What nobody would find again must not stay.
            _log.warning("cannot keep the server %r: %s", kept.name, error)
            self.shelf.stop(kept)
        return True

    async def end(self, server: RunningServer) -> None:
        """End a server although it is kept."""
        if isinstance(server, KeptServer):
            await asyncio.to_thread(self.shelf.stop, server.kept)
