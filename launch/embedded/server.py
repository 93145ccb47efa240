"""`python -m launch.embedded.server --model NAME=DIR …`: our own OpenAI-compatible server.

Serves language models of `transformers` on machines without an inference server. DIR is a folder in
Hugging Face's layout, or `bundled:NAME`. The API key is read from ORCHESTRATOR_SERVER_KEY, and must
be there where other machines can ask. When it listens, it writes one line to stderr, `ready
http://HOST:PORT`; SIGTERM lets what is in flight finish for a few seconds and exits 0.
"""

from __future__ import annotations

import argparse
import ipaddress
import logging
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Any, NoReturn

from launch.embedded import NO_MPS
from orchestrator.errors import OrchestratorError

KEY_VARIABLE = "ORCHESTRATOR_SERVER_KEY"


def parser() -> argparse.ArgumentParser:
    """The command line; what is not given is left to `launch.embedded.engine.Settings`."""
    found = argparse.ArgumentParser(prog="python -m launch.embedded.server", description=__doc__)
    found.add_argument(
        "--model", action="append", required=True, metavar="NAME=DIR", help="may be repeated"
    )
    found.add_argument("--host", default="127.0.0.1")
    found.add_argument("--port", type=int, default=8000, help="to listen on; 0 picks a free one")
    found.add_argument(
        "--threads", type=int, default=0, help="for all models together; 0: all cores but one"
    )
    add = partial(found.add_argument_group().add_argument, default=argparse.SUPPRESS)
    number: dict[str, Any] = {"type": int, "metavar": "N"}
    mebibytes: dict[str, Any] = {"type": lambda text: int(text) << 20, "metavar": "MB"}
    add("--dtype", choices=("float32", "bfloat16", "float16"))
    add("--device", help="cpu, cuda, cuda:1, …")
    add("--max-model-len", dest="max_len", **number, help="0: the model's own")
    add("--max-rows", **number, help="answers decoding at a time")
    add("--max-waiting", **number, help="more are answered 503")
    add("--prefix-cache-mb", dest="prefix_bytes", **mebibytes, help="per model; 0: off")
    add("--kv-cache-mb", dest="kv_bytes", **mebibytes, help="per model; 0: a share of the free")
    add("--attention-tokens", **number, help="longest with attention")
    add("--weight-noise", type=float, metavar="SD", help="to make a model worse")
    add("--noise-seed", **number)
    add("--skip-layers", type=_numbers, metavar="N,N", help="to make a model worse")
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
    if getattr(options, "device", "").startswith("mps"):
        raise OrchestratorError(NO_MPS)
    key = os.environ.get(KEY_VARIABLE, "")
    if not key and not is_loopback(options.host):
        raise OrchestratorError(
            f"--host {options.host} exposes this server to other machines; set a key that they "
            f"must send in the environment variable {KEY_VARIABLE}"
        )
    # Loaded late: a wrong command line answers at once, and the environment is set before.
    from launch.embedded.app import serve  # noqa: PLC0415
    from launch.embedded.engine import Settings  # noqa: PLC0415

    of_models = vars(options)
    del of_models["model"]
    n_threads, host, port = (of_models.pop(name) for name in ("threads", "host", "port"))
    settings = Settings(**of_models, n_models=len(models))
    serve(models, settings, n_threads=n_threads, host=host, port=port, key=key)


if __name__ == "__main__":
    sys.exit(main())
