"""The process: where it listens, what it prints, and how it ends."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil
import uvicorn

from orchestrator.errors import UsageError
from orchestrator.report.streams import write_to
from orchestrator.report.text import safe_line
from orchestrator.runner.servers.registry import state_folder
from orchestrator.view.app import make_app
from orchestrator.view.guard import TOKEN, Door, Guard
from orchestrator.view.labelling import Desk
from orchestrator.view.library import Library

HOST: Final = "127.0.0.1"
USUAL_PORT: Final = 8765
_MAX_PORT: Final = 65_535
_KEEP_ALIVE_S: Final = 30
_DRAIN_S: Final = 2


def serve(
    paths: Sequence[Path],
    *,
    port: int | None,
    open_browser: bool,
    allow_code: bool,
    labels: Path | None = None,
) -> None:
    """Serve the pages of runs until a signal comes.

    Args:
        paths: Folders of runs, and run directories.
        port: To listen on; 0 takes any, None the usual one where it is free.
        open_browser: Whether to open the first link.
        allow_code: Import kinds from outside this project.
        labels: A sheet of labels to fill in; the only file that is written.

    Raises:
        UsageError: If the port is taken.
        DatasetError: If a row of the sheet is wrong.
    """
    desk = None if labels is None else Desk(labels)
    listening = _listen(port)
    taken = listening.getsockname()[1]

    def announce(token: str) -> None:
        link = f"http://{HOST}:{taken}/?{TOKEN}={token}"
        write_to(sys.stderr, f"open {link}\n")

    door = Door(announce)
    with _side_folder() as folder, contextlib.closing(listening):
        library = Library(paths, folder, allow_code=allow_code)
        places = ", ".join(safe_line(str(path)) for path in paths)
        shown = f"runs in {places}" if places else "no runs"
        shown += "" if labels is None else f"; labels go to {safe_line(str(labels))}"
        write_to(sys.stderr, f"{shown}; press Ctrl-C to stop\n")
        door.begin()
        if open_browser:
            webbrowser.open(f"http://{HOST}:{taken}/?{TOKEN}={door.token}")
        config = uvicorn.Config(
            Guard(make_app(library, desk), door, writes=desk is not None),
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            # Reads no more than 64 KB of a request's head; the other parser has no bound.
            http="h11",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_DRAIN_S,
        )
        # The server raises a signal again when it has ended; that must not skip what is left.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt), asyncio.Runner() as runner:
            runner.run(uvicorn.Server(config).serve(sockets=[listening]))


def _listen(port: int | None) -> socket.socket:
    if port is not None and not 0 <= port <= _MAX_PORT:
        raise UsageError(f"--port must be from 0 (any free port) to {_MAX_PORT}, not {port}")
    for wanted in (USUAL_PORT, 0) if port is None else (port,):
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, wanted))
            # A link that is opened before the server runs then waits instead of being refused.
            listening.listen()
        except OSError as error:
            listening.close()
            if wanted and port is None:
                continue
            raise UsageError(
                f"cannot listen on port {wanted}: {error.strerror or error}; use --port 0"
            ) from error
        return listening
    raise AssertionError


@contextlib.contextmanager
def _side_folder() -> Iterator[Path]:
    """A private folder for what is made from runs; gone with this process.

    Raises:
        UsageError: If it can't be made.
    """
    above = state_folder().parent / "view"
    try:
        above.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in above.iterdir():
            number = left.name.partition("-")[0]
            if number.isdecimal() and not psutil.pid_exists(int(number)):
                shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=above))
    except OSError as error:
        raise UsageError(f"{above} cannot be written: {error.strerror or error}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
