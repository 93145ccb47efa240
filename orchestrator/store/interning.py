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
    """Numbers of the servers that answered for a model, and who did last.

    The servers of a model have epochs, 0, 1, … in the order they were met; one that also answered
    another run has one epoch.

    Attributes:
        are_several: Whether some model had more than one.
    """

    def __init__(self, query: reading.Query, submit: Submit) -> None:
        self._numbers: dict[StoredServer, int] = {}
        self._of_model: dict[str, dict[Provenance, int]] = {}
        self._epochs: dict[int, int] = {}
        self.are_several = False
        for number, server in reading.servers(query).items():
            self._add(server, number)
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
            self._add(server, number)
        return number

    def known(self, model: str) -> list[Provenance]:
        """The servers that answered for a model, lent ones included, by epoch."""
        with self._lock:
            return list(self._of_model.get(model, ()))

    def epoch(self, number: int) -> int:
        """The epoch of a server by its number; 0 where there is none."""
        return self._epochs.get(number, 0)

    def _add(self, server: StoredServer, number: int) -> None:
        self._numbers[server] = number
        epochs = self._of_model.setdefault(server.model, {})
        self._epochs[number] = epochs.setdefault(server.provenance, len(epochs))
        self.are_several |= len(epochs) > 1
