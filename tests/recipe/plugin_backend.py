"""A back-end that is never connected, for tests of recipes."""

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from orchestrator.backend import Capabilities

CAPABILITIES = Capabilities()


class Config(BaseModel):
    """Settings of the test back-end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    top_logprobs: int = Field(20, ge=0, le=100, description="How many.")
    pin: SecretStr = Field(SecretStr(""), description="A secret of the back-end's own.")


def create(endpoint, config):
    raise NotImplementedError
