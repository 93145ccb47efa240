"""The fake server, run as a process: deterministic answers without a model, for tests and demos.

Here is its launch kind; the server itself is `launch._fake_server`.
"""

import hashlib
import json
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from launch._supervisor import ServerSpec, python_module, start_server
from orchestrator.serving import RunningServer, ServedModel

KIND = "fake"
BACKEND = "fake"
MULTI_MODEL = True


class Config(BaseModel):
    """Settings of the fake server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rules: JsonValue = Field(
        None, description="How it answers, delays and fails, as the fake server reads them."
    )
    start_timeout_s: float = Field(30.0, gt=0, description="Seconds from start to ready.")
    stop_grace_s: float = Field(
        5.0, ge=0, description="Seconds between the polite signal and the one that kills."
    )


def identity(config: Config, weights: str) -> dict[str, str]:
    """What decides the numbers: the rules and the name given in place of weights."""
    rules = hashlib.sha256(_canonical(config.rules).encode()).hexdigest()
    return {"kind": KIND, "weights": weights, "rules": rules}


def argv(config: Config, names: tuple[str, ...], port: int) -> tuple[str, ...]:
    """Command line of a server for models by name."""
    models = [part for name in names for part in ("--model", name)]
    rules = [] if config.rules is None else ["--rules", _canonical(config.rules)]
    return python_module("launch._fake_server", "--port", str(port), *models, *rules)


async def start(config: Config, models: tuple[ServedModel, ...], log_path: Path) -> RunningServer:
    """A server for all `models` that is ready to answer.

    Raises:
        LaunchError: If it does not get ready, with the likely cause.
    """
    names = tuple(model.name for model in models)
    spec = ServerSpec(
        kind=KIND,
        names=names,
        argv=partial(argv, config, names),
        start_timeout_s=config.start_timeout_s,
        stop_grace_s=config.stop_grace_s,
    )
    return await start_server(spec, log_path)


def _canonical(value: JsonValue) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
