"""Numbers for what repeats: names of models, kinds, frames and causes, and servers.

A new number is queued before whatever uses it, so it is committed with it or before.
"""

import threading
from collections.abc import Callable
from typing import Final

from orchestrator.backend import Provenance
from orchestrator.store import reading
from orchestrator.store.blobs import printable
from orchestrator.store.clock import wall_ms
from orchestrator.store.entries import NameEntry, ServerEntry, StoredServer

_MAX_NAME: Final = 200

Submit = Callable[[NameEntry | ServerEntry], None]


class Names:
    """Numbers of names; `submit` queues a new one."""

    def __init__(self, query: reading.Query, submit: Submit) -> None:
        self._numbers: dict[str, int] = reading.names(query)
        self._submit = submit
        self._lock = threading.Lock()

    def number(self, text: str) -> int:
        """The number of a name, of which 200 characters count."""
        number = self._numbers.get(text)
        if number is not None:
            return number
        name = printable(text, _MAX_NAME)
        with self._lock:
            number = self._numbers.get(name)
            if number is None:
                number = len(self._numbers) + 1
                self._submit(NameEntry(number, name))
                self._numbers[name] = number
        return number


class Servers:
    """Numbers of the servers that answered for a model, and who did last."""

    def __init__(self, query: reading.Query, submit: Submit) -> None:
        self._numbers = {server: number for number, server in reading.servers(query).items()}
        self._turn = reading.last_turn(query)
        self._submit = submit
        self._lock = threading.Lock()

    def number(self, server: StoredServer, model_number: int) -> int:
        """The number of a server, which answers for its model from now on.

        One that answered another run takes no turn: it does not answer now.
        """
        with self._lock:
            known = self._numbers.get(server)
            if known is not None and server.run:
                return known
            number = len(self._numbers) + 1 if known is None else known
            turn = 0
            if not server.run:
                self._turn = turn = self._turn + 1
            text = reading.server_text(server)
            self._submit(ServerEntry(number, model_number, text, wall_ms(), turn))
            self._numbers[server] = number
        return number

    def known(self, model: str) -> list[Provenance]:
        """The servers that answered for a model, lent ones included."""
        with self._lock:
            return [server.provenance for server in self._numbers if server.model == model]
