"""A launch kind that is never started, for tests of recipes."""

from pydantic import BaseModel, ConfigDict, Field

BACKEND = "tests.recipe.plugin_backend"


class Config(BaseModel):
    """Settings of the test server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    threads: int = Field(1, gt=0, description="Threads.")
