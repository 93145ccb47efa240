"""A back-end in this process of which some models fail, as a file says that a test changes."""

import json
from pathlib import Path

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
    Settings,
)
from tests.oracles.verdicts import studied


class Config(Settings):
    """Settings that a recipe gives beside `kind`."""

    faults: str = Field(description="File with the failure of each model that fails.")
    model: str = Field(description="Name of the model in that file.")


class Connection(studied.Connection):
    """A connection to one model."""

    def __init__(self, endpoint: Endpoint, config: Config) -> None:
        super().__init__(endpoint, studied.Config())
        self._faults, self._model = Path(config.faults), config.model

    async def generate(self, ask: GenerateAsk, seed: int) -> Generation | Failure:
        """Fail, or draw some tokens."""
        return self._fault() or await super().generate(ask, seed)

    async def choose(self, ask: ChooseAsk) -> Choice | Failure:
        """Fail, or choose a label."""
        return self._fault() or await super().choose(ask)

    def _fault(self) -> Failure | None:
        given = json.loads(self._faults.read_text(encoding="utf-8")).get(self._model)
        return None if given is None else Failure(*given)


class Kind(BackendKind[Config]):
    """Replies that follow from the texts, unless the model fails."""

    capabilities = Capabilities(choose="exact")

    def connect(self, endpoint: Endpoint) -> Backend:
        """Return a connection to one model."""
        return Connection(endpoint, self.config)
