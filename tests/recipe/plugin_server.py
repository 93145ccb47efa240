"""A launch kind that is never started, for tests of recipes."""

from pydantic import Field

from orchestrator.plugins.base import Settings
from orchestrator.serving import LaunchKind


class Config(Settings):
    """Settings of the test server."""

    threads: int = Field(1, gt=0, description="Threads.")


class Server(LaunchKind[Config]):
    """A launch kind that is never started."""

    backend = "tests.recipe.plugin_backend"

    def identity(self, weights):
        return {}

    async def start(self, models, log_path):
        raise NotImplementedError
