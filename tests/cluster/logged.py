"""The fake server as a launch kind that also writes down each request that it gets."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic import Field

from launch._supervisor import start_server
from tests.fake import launch as scripted
from tests.fake.launch import Scripted


class Config(scripted.Config):
    """Settings of the fake server, and the file that it appends to."""

    requests: str = Field(description="File that gets a line for each request.")


class Logged(Scripted):
    """The fake server with `--log`."""

    Config = Config

    async def start(self, models, log_path: Path):
        """See `Scripted`."""
        spec = self.spec(models)
        assert isinstance(self.config, Config)
        argv = partial(logged, spec.argv, self.config.requests)
        return await start_server(replace(spec, argv=argv), log_path, self.carrier)


def logged(argv, file, *address):
    """Command line of a server that writes its requests to a file."""
    return (*argv(*address), "--log", file)
