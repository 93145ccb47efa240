"""The command that serves models on this machine."""

import argparse
import os
import socket
import sys

from orchestrator import contracts, plugins
from orchestrator.errors import LaunchError, UsageError
from orchestrator.serving import ServeOptions


def serve(options: argparse.Namespace) -> int:
    """Serve models; the server takes this process's place.

    Raises:
        UsageError: If the weights are wrong, or another program has the port.
    """
    _check_free(options.host, options.port)
    kind = "fake" if options.fake else "embedded"
    launch = contracts.load(plugins.LAUNCH, kind)
    asked = ServeOptions(
        models=tuple(options.model),
        host=options.host,
        port=options.port,
        threads=options.threads,
        device=options.device,
        dtype=options.dtype,
    )
    try:
        command = list(launch(launch.Config()).serve_command(asked))
    except LaunchError as error:
        # Here the weights are the command's, so the command is wrong.
        raise UsageError(str(error)) from error
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606 (the server takes this process's place)


def _check_free(host: str, port: int) -> None:
    """See that the address can be listened on, before models load.

    Raises:
        UsageError: If it can't.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; use --port 0 for a "
            "free one"
        ) from error
