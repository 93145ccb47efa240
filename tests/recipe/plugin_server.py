"""A launch kind that is never started, for tests of recipes."""

from pydantic import BaseModel, ConfigDict, Field

BACKEND = "tests.recipe.plugin_backend"
MULTI_MODEL = False


class Config(BaseModel):
    """Settings of the test server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    threads: int = Field(1, gt=0, description="Threads.")


def identity(config, weights):
    return {}


async def start(config, models, log_path):
    raise NotImplementedError
