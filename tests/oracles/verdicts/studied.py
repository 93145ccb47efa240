"""A back-end in the client's own process whose replies follow from the texts alone.

A judge's verdict on two known answers stands in a file; every other reply is drawn by a hash of the
request's texts. Neither knows the name of an item or of a model, so that none can matter.
"""

import functools
import json
import math
import random
import re
import zlib
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import Field

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
_KNOWN: Final = re.compile(r"Reply (\d+\.\d+)\b")
_FLOOR: Final = 1e-12
# Prompts of judges begin with how to answer, which names the scale.
_BEGIN: Final = "[User Prompt]"


class Config(Settings):
    """Settings that a recipe gives beside `kind`."""

    table: str = Field("", description="File with the verdicts on pairs of answers.")
    quality: float = Field(0.0, description="Added to the log-probabilities of texts.")


@functools.cache
def _verdicts(path: str) -> dict[str, list[float] | None]:
    found: dict[str, list[float] | None] = json.loads(Path(path).read_text(encoding="utf-8"))
    return found


class Connection(Backend):
    """A connection to one model."""

    def __init__(self, endpoint: Endpoint, config: Config) -> None:
        self._endpoint = endpoint
        self._config = config

    async def generate(self, ask: GenerateAsk, seed: int) -> Generation | Failure:
        """Draw some tokens."""
        rng = self._rng(ask.messages, seed)
        n = rng.randint(4, 12)
        ids = np.array([rng.randrange(_VOCABULARY) for _ in range(n)], np.int32)
        return Generation(
            " ".join(f"w{one % 50}" for one in ids),
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
        """Read the probabilities of labels: those of the file for answers that it knows."""
        known = " ".join(_KNOWN.findall(ask.messages[-1].content))
        verdicts = _verdicts(self._config.table) if self._config.table else {}
        if known not in verdicts:
            # Neither the scale nor what was read of another answer matters.
            texts = ask.messages[-1].content.rpartition(_BEGIN)[2]
            rng = self._rng(texts, bool(ask.prefix.text))
            weights = [rng.random() for _ in ask.labels]
        elif (given := verdicts[known]) is None:
            return Failure("too_long", "no verdict on these", permanent=True)
        else:
            weights = given
        logprobs = tuple(math.log(max(one, _FLOOR) / sum(weights)) for one in weights)
        return Choice(logprobs, logprobs, "studied", n_prompt_tokens=40)

    async def provenance(self) -> Provenance | Failure:
        """Say who answers."""
        endpoint = self._endpoint
        return Provenance(backend="studied", base_url=endpoint.base_url, model=endpoint.model)

    async def load(self) -> ServerLoad | None:
        """Return None: no request waits."""
        return None

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _rng(self, *asked: object) -> random.Random:
        said = repr((self._endpoint.model, *asked)).encode()
        return random.Random(zlib.crc32(said))

    def _logprobs(self, rng: random.Random, n: int) -> np.ndarray:
        drawn = [-rng.expovariate(1.0) - 1.0 + self._config.quality for _ in range(n)]
        return np.minimum(np.array(drawn, np.float32), -1e-6)


class Kind(BackendKind[Config]):
    """Replies that follow from the texts."""

    capabilities = Capabilities(score=True, choose="exact", features=FEATURES)

    def connect(self, endpoint: Endpoint) -> Backend:
        """Return a connection to one model."""
        return Connection(endpoint, self.config)
