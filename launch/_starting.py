"""Starts a server, here or by a carrier elsewhere, and waits until it answers under all its names.

What a server needs (argv, environment) is built by pure functions of the launch kinds; here are the
parts they share: the port, the API key, the log file, readiness and likely causes.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from launch import _spec, _watchdog
from launch._spec import HOST, ServerSpec
from launch._supervisor import ADDRESS_IN_USE, Server, ServerLog, likely_cause
from orchestrator import network
from orchestrator.errors import LaunchError, NodeLostError, SchedulerError
from orchestrator.records import Failure
from orchestrator.serving import Carrier
from orchestrator.wire import replies

if TYPE_CHECKING:
    import aiohttp

PORT_TRIES: Final = 5

_WATCHDOG: Final = (sys.executable, "-I", "-S", _watchdog.__file__)
CARRIED: Final = (*_WATCHDOG, _watchdog.ELSEWHERE)
"""The program that a carrier brings to another machine: a watchdog, told the rest on stdin."""

logger = logging.getLogger(__name__)


async def _waited(server: Server, spec: ServerSpec) -> str | None:
    """Wait until a server is ready: None then, else what it lacked, to be added to the cause."""
    # Imported here: checking a recipe loads its launch kinds, and connects to nothing.
    import aiohttp  # noqa: PLC0415

    lacks, wait_s = f"none of its processes listens at {server.base_url}", 0.05
    with contextlib.suppress(TimeoutError):
        async with (
            asyncio.timeout(spec.start_timeout_s),
            aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {server.api_key}"},
                timeout=aiohttp.ClientTimeout(total=5.0),
                auto_decompress=False,
            ) as client,
        ):
            is_proved = await server.is_proved()
            while server.exit_code() is None:
                # The key goes to nobody else.
                if is_proved:
                    lacks = await _lacking(server.base_url, spec.names, client)
                if not lacks and server.exit_code() is None:
                    return None
                await asyncio.sleep(wait_s)
                wait_s = min(1.0, wait_s * 1.5)
    return f" ({lacks})" if lacks and server.exit_code() is None else ""


async def _lacking(base_url: str, names: tuple[str, ...], client: "aiohttp.ClientSession") -> str:
    """Return what a server lacks to be ready; empty if nothing.

    Args:
        base_url: Of the server.
        names: Models that it must list.
        client: That has the server's key.
    """
    import aiohttp  # noqa: PLC0415 (as above)

    try:
        async with client.get(f"{base_url}/health") as reply:
            if reply.status != 200:
                return f"/health answers {reply.status}"
        async with client.get(f"{base_url}/v1/models") as reply:
            if reply.status != 200:
                return f"/v1/models answers {reply.status}"
            encoding = reply.headers.get("Content-Encoding", "")
            chunks = reply.content.iter_any()
            body = await network.collect(chunks, base_url, encoding, network.CONTROL_BYTES)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return f"{base_url} does not answer: {type(error).__name__}"
    listed = body if isinstance(body, Failure) else replies.model_names(body)
    if isinstance(listed, Failure):
        return f"/v1/models: {listed.message}"
    missing = [name for name in names if name not in listed]
    return f"/v1/models does not list {', '.join(missing)}" if missing else ""


async def start_server(spec: ServerSpec, log_path: Path, carrier: Carrier | None = None) -> Server:
    """A server that answers under all its names.

    Args:
        spec: Of the server.
        log_path: File of its output.
        carrier: Brings it to another machine; None for this one.

    Raises:
        LaunchError: With the likely cause and the tail of its log.
        NodeLostError: If the cluster has lost the machine where it had to start.
    """
    tries_left = PORT_TRIES
    planned = "" if carrier is None else carrier.prefer
    while (outcome := await _attempt(spec, log_path, carrier, planned))[1]:
        server, cause, is_tried_again = outcome
        tries_left -= 1
        if tries_left == 0 or not is_tried_again:
            raise LaunchError(
                f"{spec.kind} server for {', '.join(spec.names)} did not start: {cause}\n"
                f"last lines of {log_path}:\n{server.log.tail()}"
            )
    logger.info("%s server for %s is ready", spec.kind, ", ".join(spec.names))
    return outcome[0]


async def _attempt(
    spec: ServerSpec, log_path: Path, carrier: Carrier | None, planned: str
) -> tuple[Server, str, bool]:
    """Start once; the server, why it is not ready if it isn't, and if it may be tried again."""
    was_choosy = carrier is not None and bool(carrier.avoid or carrier.prefer)
    server, env, here = _spawn(spec, log_path, carrier)
    try:
        fault = None if carrier is None else await server.settle(spec, env, here)
        if fault is None:
            was_choosy = False
            fault = await _waited(server, spec)
    except BaseException:
        server.kill()
        raise
    if fault is None:
        # What it complained of until now did not keep it from that.
        server.log.mark()
        return server, "", False
    exit_code = server.exit_code()
    await server.stop()
    log = server.log.text()
    if carrier is not None:
        if not server.node and not was_choosy and carrier.was_silent(log):
            last = server.log.tail(1)
            raise SchedulerError(f"the cluster does not answer for {', '.join(spec.names)}: {last}")
        lost = carrier.lost_machine(log)
        for node in () if lost or server.node else planned.split(","):
            if not lost and node and await asyncio.to_thread(carrier.is_down, node):
                lost = node
        if lost:
            raise NodeLostError(
                lost,
                f"the cluster has lost node {lost}, where {', '.join(spec.names)} had to start",
            )
        # Another machine may do better. Where none was free at once, any will do.
        carrier.avoid = server.node
    is_taken = exit_code is not None and ADDRESS_IN_USE.search(log) is not None
    return server, likely_cause(log, exit_code) + fault, was_choosy or is_taken


def _spawn(
    spec: ServerSpec, log_path: Path, carrier: Carrier | None
) -> tuple[Server, Mapping[str, str], Mapping[str, str]]:
    """Start a process; the server, the environment it has or gets, and what of it is ours."""
    api_key = secrets.token_urlsafe(32)
    env, hidden = _spec.environment(os.environ, spec, api_key)
    log = ServerLog(log_path, tuple(hidden))
    # What a container that the carrier starts inherits is not known.
    takes_socket = spec.takes_socket and not (carrier and carrier.inside(()))
    with socket.socket() as bound, os.fdopen(log.open(), "ab") as output:
        # A free port of the loopback interface, which nobody else can bind.
        bound.bind((HOST, 0))
        port: int = bound.getsockname()[1]
        if takes_socket:
            # Elsewhere it is the watchdog's own.
            env[_watchdog.LISTENING] = str(bound.fileno())
        if carrier or not takes_socket:
            bound.close()
        if carrier is None:
            arguments = spec.watched(spec.argv(port), HOST, port)
            command, here, inherited = [*_WATCHDOG, *arguments], env, env
        else:
            port = 0
            # Its environment may be listed on other machines, so it holds neither key nor secret.
            alone = (_watchdog.WITH_PARENT, str(os.getpid()))
            command = [*_WATCHDOG, *alone, *carrier.command(CARRIED)]
            inherited = _spec.inherited(os.environ)
            here = {**inherited, **carrier.environment()}
        # An own session: the terminal's Ctrl-C is ours to handle, the server must not see it.
        process = subprocess.Popen(  # noqa: S603 (no shell; the argv is built by a launch kind)
            [part.encode(errors="surrogateescape") for part in command],  # whatever the locale
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            env=here,
            start_new_session=True,
            pass_fds=() if carrier or not takes_socket else (bound.fileno(),),
        )
    server = Server(
        process,
        port=port,
        api_key=api_key,
        log=log,
        stop_grace_s=spec.stop_grace_s,
        carrier=carrier,
    )
    return server, env, inherited
