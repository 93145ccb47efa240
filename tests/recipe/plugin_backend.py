"""A back-end that is never connected, for tests of recipes."""

from pydantic import Field, SecretStr

from orchestrator.backend import BackendKind
from orchestrator.plugins.base import Settings


class Config(Settings):
    """Settings of the test back-end."""

    top_logprobs: int = Field(20, ge=0, le=100, description="How many.")
    pin: SecretStr = Field(SecretStr(""), description="A secret of the back-end's own.")


class Kind(BackendKind[Config]):
    """A back-end that is never connected."""

    def connect(self, endpoint):
        raise NotImplementedError
