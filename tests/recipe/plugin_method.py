"""A method with settings of every shape, for tests of recipes."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.ask import Ask
from orchestrator.contracts.method import Method, MethodSettings, ModelName
from orchestrator.records import Row, Unit


class Drawing(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    max_tokens: int = Field(512, gt=0, description="Upper bound.")
    temperature: float = Field(0.0, ge=0, description="Sampling temperature; 0 is greedy.")


class Config(MethodSettings):
    """Settings of the test method."""

    candidates: tuple[ModelName, ...] | None = Field(None, description="Models.", min_length=2)
    judges: tuple[ModelName, ...] = Field((), description="Models that act as judges.")
    answer: Drawing = Field(Drawing(), description="Sampling settings of answers.")
    rounds: int = Field(1, description="How often.")
    stages: tuple[Drawing, ...] = Field((), description="One after the other.")

    @model_validator(mode="after")
    def _judged_in_rounds(self) -> "Config":
        if self.rounds > 1 and not self.judges:
            raise ValueError("'rounds' need 'judges'")
        return self


class Made(Method[Config]):
    """A method for tests of recipes."""

    columns: ClassVar = {"text": "str"}

    @property
    def judges(self) -> tuple[str, ...]:
        return self.config.judges

    async def evaluate(self, unit: Unit, ask: Ask) -> Row:
        return {"text": ""}
