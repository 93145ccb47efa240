"""The fake server of our tests as a launch kind of its own: `server: {kind: scripted, rules: …}`.

`tests/conftest.py` makes it known as that of an installed package; the server is `tests.fake.main`.
Where the text in place of weights ends in a number, as in `fake:0.7`, that is the model's quality.
"""

import hashlib
import json
import re
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import Field, JsonValue

from launch._spec import HOST, ServerSpec, python_module
from launch._starting import CARRIED, start_server
from orchestrator.plugins.base import Settings
from orchestrator.serving import LaunchKind, RunningServer, ServedModel

KIND = "scripted"

_QUALITY: Final = re.compile(r":(0?\.\d+|[01](?:\.\d+)?)$")


class Config(Settings):
    """Settings of the fake server."""

    rules: list[JsonValue] | dict[str, JsonValue] | None = Field(
        None, description="Rules of answers, delays and faults, as the fake server reads them."
    )
    start_timeout_s: float = Field(30.0, gt=0, description="Time from start to ready, in seconds.")
    stop_grace_s: float = Field(
        5.0, ge=0, description="Time between SIGTERM and SIGKILL, in seconds."
    )


def argv(
    config: Config, models: tuple[ServedModel, ...], port: int, host: str = HOST
) -> tuple[str, ...]:
    """Command line of a server for models by name."""
    names = [part for model in models for part in ("--model", model.name)]
    stated = ((model.name, _QUALITY.search(model.weights)) for model in models)
    qualities: dict[str, JsonValue] = {name: float(match[1]) for name, match in stated if match}
    if not qualities:
        rules = config.rules
    else:
        table = config.rules if isinstance(config.rules, dict) else {"rules": config.rules or []}
        given = table.get("quality")
        rules = {**table, "quality": {**qualities, **(given if isinstance(given, dict) else {})}}
    settings = [] if rules is None else ["--rules", _canonical(rules)]
    address = ["--port", str(port), *(["--host", host] if host != HOST else [])]
    return python_module("tests.fake.main", *address, *names, *settings)


def _canonical(value: JsonValue) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


class Scripted(LaunchKind[Config]):
    """The fake server, one process for all its models."""

    backend = "fake"
    multi_model = True
    carried = CARRIED

    def identity(self, weights: str) -> dict[str, str]:
        """Return all that decides the numbers: the rules and the name given in place of weights."""
        rules = hashlib.sha256(_canonical(self.config.rules).encode()).hexdigest()
        return {"kind": KIND, "weights": weights, "rules": rules}

    def spec(self, models: tuple[ServedModel, ...]) -> ServerSpec:
        """Return the process to start."""
        return ServerSpec(
            kind=KIND,
            names=tuple(model.name for model in models),
            argv=partial(argv, self.config, models),
            start_timeout_s=self.config.start_timeout_s,
            stop_grace_s=self.config.stop_grace_s,
            takes_socket=True,
        )

    async def start(self, models: tuple[ServedModel, ...], log_path: Path) -> RunningServer:
        """A server for all `models` that is ready to answer.

        Raises:
            LaunchError: If it does not get ready, with the likely cause.
        """
        return await start_server(self.spec(models), log_path, self.carrier)
