"""`python -m launch.embedded.server --model NAME=DIR …`: our own OpenAI-compatible server.

Serves language models of `transformers` on machines without an inference server. DIR is a folder in
Hugging Face's layout, or `bundled:NAME`. The API key is read from ORCHESTRATOR_SERVER_KEY, and must
be there where other machines can ask. When it listens, it writes one line to stderr, `ready
http://HOST:PORT`; SIGTERM lets what is in flight finish for a few seconds and exits 0.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from types import FrameType
from typing import NoReturn, TypeVar

import torch
import uvicorn

from launch._spec import given
from launch.embedded import MAX_ROWS, NO_MPS, PREFIX_BYTES
from launch.embedded.app import Service
from launch.embedded.served import Settings, load
from orchestrator.errors import OrchestratorError

KEY_VARIABLE = "ORCHESTRATOR_SERVER_KEY"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(prog="python -m launch.embedded.server", description=__doc__)
    add = found.add_argument
    add("--model", action="append", required=True, metavar="NAME=DIR", help="may be repeated")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8000, help="port to listen on; 0 picks a free port")
    add("--threads", type=int, default=0, help="for all models together; 0: all cores but one")
    add("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    add("--device", default="cpu", help="cpu, cuda, cuda:1, …")
    add("--max-model-len", type=int, default=0, metavar="N", help="0: the model's own")
    add("--max-rows", type=int, default=MAX_ROWS, metavar="N", help="answers decoding at a time")
    add("--max-waiting", type=int, default=4096, metavar="N", help="more are answered 503")
    prefix_mb = PREFIX_BYTES >> 20
    add("--prefix-cache-mb", type=int, default=prefix_mb, metavar="MB", help="per model; 0: off")
    add(
        "--kv-cache-mb", type=int, default=0, metavar="MB", help="per model; 0: a share of the free"
    )
    add("--attention-tokens", type=int, default=4096, metavar="N", help="longest with attention")
    add("--weight-noise", type=float, default=0.0, metavar="SD", help="to make a model worse")
    add("--noise-seed", type=int, default=0, metavar="N")
    add("--skip-layers", type=_numbers, default=(), metavar="N,N", help="to make a model worse")
    return found


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal comes; returns the exit code."""
    options = parser().parse_args(argv)
    _stop_on_signals()
    # Read by the threading library when torch is loaded: threads that wait long must not burn the
    # cores that other processes need. A step has hundreds of waits of microseconds, and to fall
    # asleep in each took half of its time on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    try:
        _serve(options)
    except OrchestratorError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


def _stop_on_signals() -> None:
    """Exit 0 on a signal, also while models load; uvicorn drains first and then passes it on."""

    def leave(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a server that listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _serve(options: argparse.Namespace) -> None:
    models: dict[str, str] = {}
    for entry in options.model:
        name, separator, place = entry.partition("=")
        if not (name and separator and place):
            text = f"--model {entry}: expected NAME=DIR"
            raise OrchestratorError(text)
        if name in models:
            raise OrchestratorError(f"--model {name} is given twice")
        models[name] = place
    if options.device.startswith("mps"):
        raise OrchestratorError(NO_MPS)
    key = os.environ.get(KEY_VARIABLE, "")
    if not key and not is_loopback(options.host):
        raise OrchestratorError(
            f"--host {options.host} exposes this server to other machines; set a key that they "
            f"must send in the environment variable {KEY_VARIABLE}"
        )
    # Loaded late: a wrong command line answers at once, and the environment is set before.
    from launch.embedded.served import Settings  # noqa: PLC0415
    from launch.embedded.server import Listener, serve  # noqa: PLC0415

    settings = Settings(
        dtype=options.dtype,
        device=options.device,
        max_len=options.max_model_len,
        max_rows=options.max_rows,
        max_waiting=options.max_waiting,
        prefix_bytes=options.prefix_cache_mb << 20,
        attention_tokens=options.attention_tokens,
        kv_bytes=options.kv_cache_mb << 20,
        n_models=len(models),
        weight_noise=options.weight_noise,
        noise_seed=options.noise_seed,
        skip_layers=options.skip_layers,
    )
    serve(models, settings, options.threads, Listener(options.host, options.port, key, given()))


if __name__ == "__main__":
    sys.exit(main())


class Threads:
    """Gives each busy engine an equal share of the threads, at least one.

    A number of threads belongs to the thread that set it, so each engine sets its own.

    Args:
        total: Threads for all engines together.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._busy: Sequence[Callable[[], bool]] = ()
        self._set = threading.local()

    def watch(self, busy: Sequence[Callable[[], bool]]) -> None:
        """Say how to see which engines have work."""
        self._busy = busy

    def share(self) -> None:
        """Set the calling thread's share."""
        n_busy = max(1, sum(check() for check in self._busy))
        share = max(1, self._total // n_busy)
        if getattr(self._set, "share", None) != share:
            self._set.share = share
            torch.set_num_threads(share)


T = TypeVar("T")
_KEEP_ALIVE_S = 120
_DRAIN_S = 5
_SWITCH_S = 0.001


@dataclass(frozen=True, slots=True)
class Listener:
    """Address to listen on, and the key required there (empty for none; never shown).

    `socket` is bound there already; None to bind one.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    key: str = field(default="", repr=False)
    socket: socket.socket | None = None


class Announcing(uvicorn.Server):
    """Says on stderr when it listens."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: D102
        await super().startup(sockets)
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            host = self.config.host
            shown = f"[{host}]" if ":" in host else host
            sys.stderr.write(f"ready http://{shown}:{port}\n")
            sys.stderr.flush()


def _in_thread(function: Callable[[], T], n_threads: int) -> T:
    """Call a function on a thread that ends with it and computes with `n_threads`.

    The threading library of `torch` keeps helpers for every thread that computed something, and
    with more of them than cores all wait asleep, which takes half of a decoding step's time.
    """
    found: list[T] = []
    errors: list[BaseException] = []

    def call() -> None:
        torch.set_num_threads(n_threads)
        try:
            found.append(function())
        except BaseException as error:  # noqa: BLE001 (raised again where it is waited for)
            errors.append(error)

    # Does not keep the process when a signal ends it meanwhile.
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return found[0]


def serve(
    models: Mapping[str, str], settings: Settings, n_threads: int, listener: Listener
) -> None:
    """Load models (name to place) and serve them until a signal comes.

    Raises:
        LaunchError: If a model can't be served.
        SystemExit: When the server has ended.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    # One core is left for the event loop and for the program that asks.
    total = n_threads or max(1, (cores or 2) - 1)
    threads = Threads(total)
    served = _in_thread(
        lambda: [load(name, place, settings, threads.share) for name, place in models.items()],
        total,
    )
    threads.watch([partial(attrgetter("busy"), one.engine) for one in served])
    # The loop's and the engines' bursts of Python are short; the default of 5 ms makes each wait.
    sys.setswitchinterval(_SWITCH_S)
    config = uvicorn.Config(
        Service(served, listener.key).app(),
        host=listener.host,
        port=listener.port,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        # Reads no more than 64 KB of a request's head; the other parser has no bound.
        http="h11",
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_DRAIN_S,
    )
    for one in served:
        one.engine.start()
    try:
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            sockets = None if listener.socket is None else [listener.socket]
            runner.run(Announcing(config).serve(sockets))
    finally:
        for one in served:
            one.engine.close()
