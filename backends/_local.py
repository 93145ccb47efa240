"""Base of back-ends that compare texts on this machine: one worker thread, no server."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from orchestrator.ask import SimilarityAsk
from orchestrator.backend import LOCAL, Backend, Provenance
from orchestrator.records import Failure, PairScores


class Comparer(NamedTuple):
    """A comparer of the texts of one item.

    Attributes:
        compare: Precision and recall of every ordered pair; called in the worker thread only.
        version: Of what computes, and `device`: the numbers may depend on both in their last
            digits.
        device: Where it computes.
    """

    compare: Callable[[Sequence[str]], PairScores]
    version: str = ""
    device: str = ""


class LocalBackend(Backend):
    """Compares texts in a thread of its own, so that the event loop goes on meanwhile.

    Args:
        kind: Of the back-end.
        model: What it is called in rows and logs.
        make: Loads the comparer; called in the thread when it is first needed.
    """

    def __init__(self, kind: str, model: str, make: Callable[[], Comparer]) -> None:
        self._kind = kind
        self._model = model
        self._make = make
        self._comparer: Comparer | None = None
        self._worker = ThreadPoolExecutor(1, kind)

    async def similarity(self, ask: SimilarityAsk) -> PairScores | Failure:
        """Compare every ordered pair of the texts."""
        return await asyncio.get_running_loop().run_in_executor(
            self._worker, self._compare, ask.texts
        )

    async def provenance(self) -> Provenance | Failure:
        """Load it and say what it is."""
        loaded = await asyncio.get_running_loop().run_in_executor(self._worker, self._loaded)
        return Provenance(
            backend=self._kind,
            base_url=LOCAL,
            model=self._model,
            version=loaded.version,
            fingerprint=loaded.device,
        )

    async def close(self) -> None:
        """Let the thread end after what it is doing, and the encoder with it."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        self._comparer = None

    def _loaded(self) -> Comparer:
        if self._comparer is None:
            self._comparer = self._make()
        return self._comparer

    def _compare(self, texts: Sequence[str]) -> PairScores | Failure:
        try:
            return self._loaded().compare(texts)
        except (MemoryError, RuntimeError) as error:
            # torch raises RuntimeError also where memory is short: the next call may have more.
            return Failure("encoder", f"{type(error).__name__}: {str(error)[:300]}")
