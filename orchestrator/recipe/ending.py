"""Settings of what follows a call of a run; they change no number, so no revision holds them."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from orchestrator.recipe.secret_values import is_secret
from orchestrator.settings import Settings

VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class OnEnd(Settings):
    """A command that is run when a call of `run` ends."""

    command: str = Field(min_length=1)
    """Command for `/bin/sh`. `ORCHESTRATOR_STATE` (complete, partial, interrupted or failed),
    `ORCHESTRATOR_RUN` and others in its environment have the result."""
    env_from: list[VariableName] = Field([])
    """Names of further environment variables that it gets, such as the address of a chat."""
    timeout_s: float = Field(60.0, gt=0)
    """Time after which it is stopped, in seconds."""

    @model_validator(mode="after")
    def _no_secret(self) -> Self:
        if is_secret(self.command):
            raise ValueError(
                "command: it looks as if it holds a secret; set it in your environment and name "
                "the variable in `env_from`"
            )
        return self


class LogTo(Settings):
    """A tracker of experiments that gets the progress and the results of a run."""

    kind: Literal["mlflow", "trackio", "wandb"]
    """Tracker; each needs the extra of the same name."""
    project: str | None = Field(None, min_length=1, max_length=100)
    """Project (experiment) of the tracker. Default: the recipe's name."""
    uri: str | None = Field(None, min_length=1)
    """mlflow: its tracking URI. Default: the environment variable MLFLOW_TRACKING_URI."""
    mode: Literal["online", "offline"] | None = None
    """wandb: offline writes to the run folder and sends nothing. Default: WANDB_MODE."""

    @model_validator(mode="after")
    def _only_its_own(self) -> Self:
        if self.uri is not None and self.kind != "mlflow":
            raise ValueError(f"uri is a setting of mlflow, not of {self.kind}")
        if self.mode is not None and self.kind != "wandb":
            raise ValueError(f"mode is a setting of wandb, not of {self.kind}")
        if self.uri is not None and is_secret(self.uri):
            raise ValueError("uri: it looks as if it holds a secret; use the tracker's variables")
        return self
