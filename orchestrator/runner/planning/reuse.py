"""`reuse` of a recipe: what other runs were answered is copied instead of asked."""

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from orchestrator.backend import Provenance
from orchestrator.disk.paths import STORE_NAME
from orchestrator.errors import OrchestratorError, ServerChangedError, StoreError
from orchestrator.recipe.settings import ReusedRun
from orchestrator.records import Outcome
from orchestrator.runner.models.identity import provenance_words, server_label
from orchestrator.runner.models.records import adopt_probe
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.store import Lender, Lent, Store, StoredServer
from orchestrator.store.blobs import located

_log = logging.getLogger(__name__)


_Opened = tuple[ReusedRun, Lender]


class Lenders:
    """The runs that a recipe reuses, open for reading.

    Attributes:
        n_found: Outcomes that `get` found, by run as the recipe names it.
    """

    def __init__(self, opened: Sequence[_Opened] = ()) -> None:
        self.opened = tuple(opened)
        self.n_found: Counter[str] = Counter()

    def find(self, key: bytes) -> tuple[_Opened, Lent] | None:
        """The first run that holds a good outcome of a key, and the outcome.

        Raises:
            RecipeError: If a store can't be read.
        """
        for run, lender in self.opened:
            with _reading(run):
                lent = lender.find(key)
            if lent is not None:
                return (run, lender), lent
        return None

    def get(self, key: bytes) -> Outcome | None:
        """An outcome that one of them holds, counted; nothing is copied.

        Raises:
            RecipeError: If a store can't be read.
        """
        found = self.find(key)
        if found is None:
            return None
        (run, _), (outcome, _) = found
        self.n_found[run.said] += 1
        return outcome


@contextlib.contextmanager
def open_lenders(runs: Sequence[ReusedRun], own: Path | None) -> Iterator[Lenders]:
    """Open the runs of a recipe.

    `own` is the directory of the run that reuses them, which need not be there.

    Raises:
        RecipeError: If one is no run, can't be read, or is the run itself.
    """
    with contextlib.ExitStack() as stack:
        opened = []
        for run in runs:
            if own is not None and own.exists() and Path(run.path).samefile(own):
                raise run.error(f"{run.said!r} is this run; give a different one")
            with _reading(run):
                lender = Lender(Path(run.path))
            stack.callback(lender.close)
            opened.append((run, lender))
        yield Lenders(opened)


class Copies:
    """Copies what the runs of `reuse` hold into the store of a run, as it is asked for.

    Where `accept_change`, also what another server answered than the one of this run.

    Attributes:
        n_copied: Outcomes, by run as the recipe names it.
    """

    def __init__(
        self, lenders: Lenders, store: Store, labels: Mapping[str, str], *, accept_change: bool
    ) -> None:
        self._lenders = lenders
        self._store = store
        self._labels = labels
        self._accept_change = accept_change
        self._numbers: dict[tuple[str, str, int], int] = {}
        self.n_copied: Counter[str] = Counter()

    def find(self, key: bytes, kind: str, model: str) -> Outcome | None:
        """The outcome of a key that this run lacks, which it holds from now on.

        Raises:
            RecipeError: If a store can't be read.
            ServerChangedError: If another server gave it than the one that answers this run.
        """
        found = self._lenders.find(key)
        if found is None:
            return None
        opened, lent = found
        outcome, entry = lent
        self._store.copy_outcome(kind, model, lent, self._server(model, opened, entry.server))
        self.n_copied[opened[0].said] += 1
        return outcome

    def check(self, model: str, provenance: Provenance) -> None:
        """Hold a server that has been connected to those that answered the other runs.

        Now rather than when the first answer of theirs is needed, which may be hours later.

        Raises:
            RecipeError: If a store can't be read.
            ServerChangedError: If another one answered there.
        """
        label = self._labels[model]
        for (run, lender), server in self.servers(label):
            self._compare(model, run, server, [provenance])
            adopt_probe(self._store, label, lender, server)

    def servers(self, label: str) -> Iterator[tuple[_Opened, StoredServer]]:
        """Yield the servers that answered for the same identity in the other runs.

        Raises:
            RecipeError: If a store can't be read.
        """
        for run, lender in self._lenders.opened:
            with _reading(run):
                found = lender.servers().values()
            for server in found:
                # Whatever the model is called there.
                if server.model.rpartition(" ")[2] == label.rpartition(" ")[2]:
                    yield (run, lender), server

    def _server(self, model: str, opened: _Opened, number: int) -> int:
        """The number here of a server by its number there."""
        run, lender = opened
        known = self._numbers.get((model, run.path, number))
        if known is not None:
            return known
        server, label = lender.servers().get(number), self._labels[model]
        here = 0
        if server is not None:
            self._compare(model, run, server, [])
            here = self._store.server_id(label, server.provenance, run=run.path)
            self._store.vocabulary.put(here, lender.tokens(number))
            adopt_probe(self._store, label, lender, server)
        self._numbers[model, run.path, number] = here
        return here

    def _compare(
        self, model: str, run: ReusedRun, server: StoredServer, others: Sequence[Provenance]
    ) -> None:
        label = self._labels[model]
        known = [*self._store.servers.known(label), *others]
        if not known or server.provenance in known:
            return
        said = (
            f"model {model!r}: {run.said} was answered by "
            f"{provenance_words(server.provenance)}, this run by {provenance_words(known[-1])}"
        )
        if not self._accept_change:
            raise ServerChangedError(
                f"{said}. Their numbers may differ. Continue with --accept-server-change, or "
                f"remove {run.said} from 'reuse'"
            )
        _log.warning("%s", said, extra={"model": model})
        # Once it is accepted, no later call asks again.
        self._store.server_id(label, server.provenance, run=run.path)


def copies_of(prepared: Prepared, store: Store, *, accept_change: bool) -> Copies | None:
    """Return the outcomes that a run copies from others; None if its recipe names none."""
    lenders = prepared.lenders
    if lenders is None or not lenders.opened:
        return None
    labels = {name: server_label(name, key) for name, key in prepared.plan.identities.items()}
    return Copies(lenders, store, labels, accept_change=accept_change)


@contextlib.contextmanager
def _reading(run: ReusedRun) -> Iterator[None]:
    """Raise an error of this block as one of the recipe, which names the run."""
    try:
        yield
    except OrchestratorError as error:
        said: OrchestratorError = error
        if isinstance(error, StoreError):
            said = located(error, Path(run.path, STORE_NAME))
        raise run.error(f"{run.said!r} cannot be reused: {said}") from error
