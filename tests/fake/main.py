"""A fake model server: `python -m tests.fake.main --port N --model NAME ... [--rules ...]`.

It speaks the embedded server's routes and vLLM's, answers by pure functions of what it is asked,
fails on demand, and counts everything. See `docs/fake-server.md`.
"""

import argparse
import asyncio
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from launch._spec import given
from orchestrator.errors import EXIT_COMPLETE, EXIT_FAILED, OrchestratorError
from tests.fake.rules import Rule, Rules, load
from tests.fake.server import FakeServer

KEY_VARIABLE: Final = "ORCHESTRATOR_SERVER_KEY"
LOOPBACK: Final = "127.0.0.1"


@asynccontextmanager
async def serving(
    rules: object = None,
    *,
    models: Sequence[str] = (),
    key: str = "",
    log: Path | None = None,
    port: int = 0,
    host: str = LOOPBACK,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[str, FakeServer]]:
    """A fake server in this process: its base URL and the server itself.

    Args:
        rules: JSON text, a path, or what JSON decodes to.
        models: Names it answers to; any name where empty.
        key: Required in requests where not empty.
        log: Gets a line for each request.
        port: 0 takes a free one.
        host: Address to listen on.
        tls: Its certificate; None for plain HTTP.

    Raises:
        UsageError: If the rules are malformed.
    """
    server = FakeServer(models, load(rules), key, log)
    try:
        taken = await server.listen(host, port, given(), tls)
        yield f"http{'s' if tls else ''}://{host}:{taken}", server
    finally:
        server.stop()


@asynccontextmanager
async def running(
    rules: object = None, *, models: Sequence[str] = (), key: str = ""
) -> AsyncIterator[str]:
    """A fake server in this process: its base URL."""
    async with serving(rules, models=models, key=key) as (base_url, _):
        yield base_url


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT, or the fault "exit"; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fake.main",
        description="A fake model server for tests, demonstrations and benchmarks.",
        epilog=f"Requests need the key in {KEY_VARIABLE} where that is set.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--host", help="address to listen on; only this machine's if left out")
    parser.add_argument(
        "--model", action="append", default=[], help="a name to answer to; any where none is given"
    )
    parser.add_argument("--rules", help="JSON, or a file with it")
    parser.add_argument(
        "--fixed",
        action="append",
        default=[],
        metavar="ROUTE=FILE",
        help="answer every request of a route (chat, choose, …) with a file",
    )
    parser.add_argument("--log", type=Path, help="append the hash of each request to this file")
    options = parser.parse_args(arguments)
    try:
        rules = load(options.rules)
        pairs = (pair.partition("=") for pair in options.fixed)
        fixed = [Rule(route=route, fixed=path) for route, _, path in pairs]
        rules = msgspec.structs.replace(rules, rules=(*fixed, *rules.rules))
        return asyncio.run(_serve(options, rules))
    except (OrchestratorError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_FAILED


async def _serve(options: argparse.Namespace, rules: Rules) -> int:
    key = os.environ.get(KEY_VARIABLE, "")
    asked_to_stop = False

    def stop() -> None:
        nonlocal asked_to_stop
        asked_to_stop = True
        server.stop()

    async with serving(
        rules,
        models=options.model,
        key=key,
        log=options.log,
        port=options.port,
        host=options.host or LOOPBACK,
    ) as (base_url, server):
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        sys.stderr.write(f"ready {base_url}\n")
        sys.stderr.flush()
        await server.stopped.wait()
    return EXIT_COMPLETE if asked_to_stop else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
