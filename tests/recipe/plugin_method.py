"""A method with settings of every shape, for tests of recipes."""

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.methods.answers import FRAME as FRAME
from orchestrator.methods.answers import SCHEMA as SCHEMA
from orchestrator.methods.answers import VERSION as VERSION
from orchestrator.methods.answers import columns as columns
from orchestrator.methods.answers import combinations as combinations
from orchestrator.methods.answers import companions as companions
from orchestrator.methods.answers import evaluate as evaluate
from orchestrator.methods.answers import stages as stages


class Drawing(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    max_tokens: int = Field(512, gt=0, description="Upper bound.")
    temperature: float = Field(0.0, ge=0, description="0 is greedy.")


class Config(BaseModel):
    """Settings of the test method."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str | None = Field(None, description="What tables call it.")
    candidates: tuple[str, ...] | None = Field(None, description="Models.", min_length=2)
    judges: tuple[str, ...] = Field((), description="Models that judge.")
    answer: Drawing = Field(Drawing(), description="How answers are drawn.")
    rounds: int = Field(1, description="How often.")
    stages: tuple[Drawing, ...] = Field((), description="One after the other.")

    @model_validator(mode="after")
    def _judged_in_rounds(self) -> "Config":
        if self.rounds > 1 and not self.judges:
            raise ValueError("'rounds' need 'judges'")
        return self
