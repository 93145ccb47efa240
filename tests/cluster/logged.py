"""The fake server as a launch kind that also writes down each request that it gets.

Several nodes can share its model: then each has a part of it (`tests.cluster.part`).
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic import Field

from launch._spec import HOST, beside, python_module
from launch._starting import start_server
from tests.fake import launch as scripted
from tests.fake.launch import Scripted


class Config(scripted.Config):
    """Settings of the fake server, and the file that it appends to."""

    requests: str = Field(description="File that gets a line for each request.")


class Logged(Scripted):
    """The fake server with `--log`."""

    Config = Config

    def no_split(self, n_nodes: int) -> str:
        """See `LaunchKind`."""
        return "" if n_nodes < 4 else "it has three parts at most"

    async def start(self, models, log_path: Path):
        """See `Scripted`."""
        spec = self.spec(models)
        assert isinstance(self.config, Config)
        argv = partial(logged, spec.argv, self.config.requests)
        return await start_server(replace(spec, argv=partial(split, argv)), log_path, self.carrier)


def logged(argv, file, *address):
    """Command line of a server that writes its requests to a file."""
    return (*argv(*address), "--log", file)


def split(argv, port, host=HOST, part=(0, ())):
    """Command line of a server, or of a part of one."""
    rank, hosts = part
    if not hosts:
        return argv(port, host)
    words = (str(rank), str(len(hosts)), host, str(beside(port, 1)))
    return python_module("tests.cluster.part", *words, *argv(port, host))
