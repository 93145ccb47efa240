"""A recipe, the fake server it asks, and what a run of it gives that meets no fault."""

import asyncio
import contextlib
import io
import os
import random
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from polars.testing import assert_frame_equal

from orchestrator import cli
from tests.e2e.runs import (
    MODELS,
    ROOT,
    command,
    frames,
    recorded_requests,
    stats,
    write_recipe,
)
from tests.fake.main import serving
from tests.growing import lines_of

# How often each thing that is drawn at random is done: `make chaos` sets it, CI does not.
FULL = os.environ.get("CHAOS") == "full"
LONG_S = 120.0


class Ended:
    """The end of a command: its exit code and its whole output, on one line."""

    def __init__(self, code: int, words: str) -> None:
        self.code = code
        self.words = " ".join(words.split())

    def __repr__(self) -> str:
        return f"exit {self.code}: {self.words}"


class Arena:
    """One recipe at one address.

    The address is part of what identifies a model, so servers that fail and servers that do not
    stand on the same port, one after the other, and write one log of what they were asked.
    """

    def __init__(self, folder: Path, *, n: int, port: int | None = None, **changes: Any) -> None:
        self.folder = folder
        self.port = port or free_port()
        self.log = folder / "requests.log"
        self.url = f"http://127.0.0.1:{self.port}"
        self.recipe = write_recipe(folder / "r.json", self.url, n=n, **changes)
        with self.serving():
            ended = self.run(folder / "whole")
        assert ended.code == 0, ended
        self.expected = frames(folder / "whole")
        self._n_runs = 0

    @contextlib.contextmanager
    def serving(
        self, rules: object = None, models: Sequence[str] = MODELS, port: int | None = None
    ) -> Iterator[str]:
        """A server, with rules, in a thread of this process; at another port for another one."""
        port = port or self.port
        with asyncio.Runner() as runner:
            server = serving(rules, models=models, log=self.log, port=port)
            runner.run(server.__aenter__())
            thread = threading.Thread(target=runner.get_loop().run_forever, daemon=True)
            thread.start()
            try:
                yield f"http://127.0.0.1:{port}"
            finally:
                runner.get_loop().call_soon_threadsafe(runner.get_loop().stop)
                thread.join()
                runner.run(server.__aexit__(None, None, None))

    def new_run(self) -> Path:
        """A run directory that is not there yet."""
        self._n_runs += 1
        return self.folder / f"run-{self._n_runs}"

    def run(self, run_dir: Path, *more: str, display: str = "plain") -> Ended:
        """The command in this process, which saves most of a second."""
        said = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            code = cli.main([
                "run", str(self.recipe), "--run-dir", str(run_dir), "--display", display, *more,
            ])  # fmt: skip
        return Ended(code, said.getvalue())

    def start(
        self, run_dir: Path, *more: str, under: Sequence[str] = (), **environment: str
    ) -> subprocess.Popen[str]:
        """The command as a process, perhaps under another one."""
        return subprocess.Popen(
            [*under, *command(self.recipe, run_dir, *more)],
            cwd=ROOT,
            env={**os.environ, **environment},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def sent(self) -> Counter[str]:
        """Count each request, over all servers of this arena."""
        return Counter(line.partition("\t")[0] for line in lines_of(self.log))


class Oracle:
    """Holds a run that meets faults to one that met none.

    Attributes:
        n_recorded: Outcomes that were found on the disk at the last look.
        lost: Keys that were found once and are not there any more, or are not the same.
        asked_again: Requests that were sent after their outcome was found on the disk.
    """

    def __init__(self, arena: Arena, run_dir: Path) -> None:
        self._arena = arena
        self._run_dir = run_dir
        self._sent: dict[str, int] = {}
        self._kept: dict[bytes, tuple[Any, ...]] = {}
        self.n_recorded = 0
        self.lost: set[bytes] = set()
        self.asked_again: set[str] = set()

    def look(self) -> None:
        """Compare with what was there, after a process ended; remember what is there now."""
        found = outcomes(self._run_dir)
        self.lost |= {key for key, row in self._kept.items() if found.get(key) != row}
        self._kept |= found
        self.n_recorded = len(found)
        counts = self._arena.sent()
        self.asked_again |= {one for one, count in self._sent.items() if counts[one] > count}
        # Without outcomes there may be no tables yet to look for them in.
        for request in recorded_requests(self._arena.recipe, self._run_dir) if found else ():
            self._sent.setdefault(request, counts[request])

    def check(self) -> None:
        """The run is complete, and nothing was lost, changed or paid for twice."""
        self.look()
        assert not self.lost
        assert not self.asked_again
        same_frames(frames(self._run_dir), self._arena.expected)


def same_frames(found: dict[str, pl.DataFrame], expected: dict[str, pl.DataFrame]) -> None:
    """All frames are there and equal to the last bit."""
    assert found.keys() == expected.keys()
    for name, frame in expected.items():
        assert_frame_equal(found[name], frame, check_exact=True)


def outcomes(run_dir: Path) -> dict[bytes, tuple[Any, ...]]:
    """All that the store keeps of each outcome, by key."""
    path = run_dir / "store.sqlite"
    if not path.exists() or path.stat().st_size == 0:
        return {}
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as store:
        try:
            rows = store.execute("SELECT key, * FROM outcome").fetchall()
        except sqlite3.OperationalError:
            # Killed before it had tables.
            return {}
    return {row[0]: row[1:] for row in rows}


def free_port() -> int:
    """A port outside the range of which the system takes those of connections."""
    draw = random.SystemRandom()
    while True:
        port = draw.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def until_sent(process: subprocess.Popen[str], url: str, n: int) -> None:
    """Wait until the server was asked `n` more times, or the process has ended."""
    before = stats(url)["total"]
    deadline = time.monotonic() + LONG_S
    while process.poll() is None and stats(url)["total"] < before + n:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def until_recorded(process: subprocess.Popen[str], run_dir: Path) -> None:
    """Wait until outcomes were committed, or the process has ended."""
    deadline = time.monotonic() + LONG_S
    while process.poll() is None and not _copied_outcomes(run_dir):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _copied_outcomes(run_dir: Path) -> int:
    """Count the outcomes in a copy of the store: reading the store itself would make files."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("store.sqlite", "store.sqlite-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(run_dir / name, Path(folder) / name)
        try:
            return len(outcomes(Path(folder)))
        except sqlite3.DatabaseError:
            # Copied while it was being written.
            return 0


def end_of(process: subprocess.Popen[str], seconds: float = LONG_S) -> Ended:
    """Return the end of a process, which must come within `seconds`."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Ended(process.returncode, err + out)


def module(folder: Path, source: str) -> dict[str, str]:
    """Environment in which every Python process runs `source` first."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(source, encoding="utf-8")
    # Before the working directory, which is not yet on the path then.
    paths = [str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
