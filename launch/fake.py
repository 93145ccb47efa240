"""A small server without a model, to try a recipe or a plug-in: `launch._fake_server` as a process.

In place of weights stands any text. Where it ends in a number, as in `fake:0.7`, that is the
model's quality. Give each model its own, since models with the same weights count as one.
"""

import json
import re
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import Field

from launch._spec import HOST, ServerSpec, python_module
from launch._starting import CARRIED, start_server
from orchestrator.plugins.base import Settings
from orchestrator.serving import LaunchKind, RunningServer, ServedModel, ServeOptions

_QUALITY: Final = re.compile(r":(0?\.\d+|[01](?:\.\d+)?)$")


class Config(Settings):
    """Settings of the fake server."""

    start_timeout_s: float = Field(30.0, gt=0, description="Time from start to ready, in seconds.")


def argv(models: tuple[ServedModel, ...], port: int, host: str = HOST) -> tuple[str, ...]:
    """Command line of a server for models by name, which states the qualities in their weights."""
    names = [part for model in models for part in ("--model", model.name)]
    found = ((model.name, _QUALITY.search(model.weights)) for model in models)
    quality = json.dumps({name: float(match[1]) for name, match in found if match})
    place = ("--port", str(port), "--host", host)
    return python_module("launch._fake_server", *place, *names, "--quality", quality)


class Launch(LaunchKind[Config]):
    """The fake server, one process for all its models."""

    backend = "fake"
    multi_model = True
    carried = CARRIED

    def identity(self, weights: str) -> dict[str, str]:
        """Return what decides the numbers: this version of the server, and the text for weights."""
        return {"kind": "fake", "weights": weights, "version": "2"}

    async def start(self, models: tuple[ServedModel, ...], log_path: Path) -> RunningServer:
        """A server for all `models` that is ready to answer."""
        spec = ServerSpec(
            kind="fake",
            names=tuple(model.name for model in models),
            argv=partial(argv, models),
            start_timeout_s=self.config.start_timeout_s,
            takes_socket=True,
        )
        return await start_server(spec, log_path, self.carrier)

    def serve_command(self, options: ServeOptions) -> tuple[str, ...]:
        """Return the command line of a fake server; a name may state its quality (`a:0.7`)."""
        models = tuple(ServedModel(name, name) for name in options.models)
        return argv(models, options.port, options.host)
