"""A server to start: its command line, its environment, and how it is known to be ours."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from launch import _environment

HOST: Final = "127.0.0.1"
KEY_VARIABLE: Final = "ORCHESTRATOR_SERVER_KEY"


class Argv(Protocol):
    """Makes the command line of a server."""

    def __call__(self, port: int, host: str = ..., /) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """A server to start.

    Attributes:
        kind: Launch kind, for messages.
        names: Models that it must list before it counts as ready.
        argv: From a port, and perhaps an address, to the command line; never holds the key.
        env: Variables added to those that are inherited.
        env_from: Names of variables of this process that it gets too, secrets mostly.
        key_variable: The variable by which it takes its key.
        start_timeout_s: From start to ready.
        stop_grace_s: Between SIGTERM and SIGKILL.
        takes_socket: True for a server of ours, which listens at the socket that it is given
            (`_ports.given`). Others are proved to listen before they are sent the key.
        published: From a port to a command that succeeds once the port leads to the server, for
            one whose processes are not children of ours, such as a container's.
        clean_up: From a port to a command that ends what lives on where the process is gone, such
            as a container; harmless where nothing does. None where there is none.
    """

    kind: str
    names: tuple[str, ...]
    argv: Argv
    env: Mapping[str, str] = field(default_factory=dict)
    env_from: tuple[str, ...] = ()
    key_variable: str = KEY_VARIABLE
    start_timeout_s: float = 300.0
    stop_grace_s: float = 10.0
    takes_socket: bool = False
    published: Callable[[int], tuple[str, ...]] | None = None
    clean_up: Callable[[int], tuple[str, ...]] | None = None


def python_module(module: str, *arguments: str) -> tuple[str, ...]:
    """Command line that runs a module of ours with this interpreter.

    `-P` keeps the working directory off the module path, and `orchestrator.plugins` has our
    `launch` come before another one on PYTHONPATH.
    """
    return (sys.executable, "-P", "-m", "orchestrator.plugins", module, *arguments)


def server_env(
    ours: Mapping[str, str], spec: ServerSpec, api_key: str
) -> tuple[dict[str, str], list[str]]:
    """Environment of a server, and what of it no message may repeat.

    Args:
        ours: The environment of this process, of which it gets what is harmless and what the
            recipe names.
        spec: Of the server.
        api_key: Of the server.

    Raises:
        LaunchError: If a variable that the recipe names is not set.
    """
    named = _environment.taken(spec.env_from, ours)
    kept = _environment.inherited(ours) | {"PYTHONUNBUFFERED": "1"} | named
    env = {**kept, **spec.env, spec.key_variable: api_key}
    return env, [api_key, *_environment.secrets_in(env, spec.env_from)]
