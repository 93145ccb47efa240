"""A back-end that invents its replies in the process of the client: for runs of a million rows.

A reply is drawn by a hash of its request, so that numbers differ as those of models do and every
run has the same ones. A model whose name ends in a digit is the better the larger that digit.
"""

import math
import random
import re
import zlib
from typing import Final

import numpy as np

from orchestrator.plugin import (
    Backend,
    BackendKind,
    Capabilities,
    Choice,
    ChooseAsk,
    Endpoint,
    Failure,
    GenerateAsk,
    Generation,
    Provenance,
    ScoreAsk,
    Scored,
    ServerLoad,
    Settings,
)
from orchestrator.records import FEATURES, TOKEN_FEATURES

_VOCABULARY: Final = 32_000
_HEADS: Final = (2, 2)
_NAMED: Final = re.compile(r"m(\d) gives")
_STEP: Final = 0.15


class Config(Settings):
    """Settings that a recipe gives beside `kind`: none."""


class Connection(Backend):
    """A connection to one model."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        digits = re.search(r"\d$", endpoint.model)
        self._quality = _STEP * int(digits[0]) if digits else 0.0

    async def generate(self, ask: GenerateAsk, seed: int) -> Generation | Failure:
        """Draw some tokens."""
        rng = self._rng(ask.messages, seed)
        n = rng.randint(4, 12)
        ids = np.array([rng.randrange(_VOCABULARY) for _ in range(n)], np.int32)
        return Generation(
            " ".join(f"w{one}" for one in ids),
            "stop",
            n_prompt_tokens=20,
            n_completion_tokens=n,
            token_ids=ids,
            logprobs=self._logprobs(rng, n),
        )

    async def score(self, ask: ScoreAsk) -> Scored | Failure:
        """Score a given text."""
        rng = self._rng(ask.messages, ask.token_ids)
        n = len(ask.token_ids)
        features = {
            name: self._logprobs(rng, n)
            if name in TOKEN_FEATURES
            else np.array([rng.random() for _ in range(4)], np.float32).reshape(_HEADS)
            for name in ask.features
        }
        return Scored(
            np.array(ask.token_ids, np.int32),
            self._logprobs(rng, n),
            n_prompt_tokens=20,
            features=features or None,
        )

    async def choose(self, ask: ChooseAsk) -> Choice | Failure:
        """Read the probabilities of labels, which lean to later ones for a better answer."""
        rng = self._rng(ask.messages, "labels")
        found = _NAMED.search(ask.messages[-1].content)
        lean = _STEP * int(found[1]) if found else 0.0
        logits = [lean * place + rng.gauss(0.0, 1.0) for place in range(len(ask.labels))]
        total = math.log(sum(map(math.exp, logits))) + rng.random() * 0.05
        logprobs = tuple(one - total for one in logits)
        return Choice(logprobs, logprobs, "invented", n_prompt_tokens=40)

    async def provenance(self) -> Provenance | Failure:
        """Say who answers."""
        endpoint = self._endpoint
        return Provenance(backend="invented", base_url=endpoint.base_url, model=endpoint.model)

    async def load(self) -> ServerLoad | None:
        """Return None: no request waits."""
        return None

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _rng(self, *asked: object) -> random.Random:
        said = repr((self._endpoint.model, *asked)).encode()
        return random.Random(zlib.crc32(said))  # noqa: S311 (invented numbers)

    def _logprobs(self, rng: random.Random, n: int) -> np.ndarray:
        return np.array([-rng.expovariate(1.0) - 1.0 + self._quality for _ in range(n)], np.float32)


class Kind(BackendKind[Config]):
    """Invented replies."""

    capabilities = Capabilities(score=True, choose="exact", features=FEATURES)

    def connect(self, endpoint: Endpoint) -> Backend:
        """Return a connection to one model."""
        return Connection(endpoint)
