"""One server process, here or on other machines: its log, its watchdogs, and its end."""

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, Self

from launch import _watchdog
from launch._spec import HOST, ServerSpec
from orchestrator.disk import files
from orchestrator.serving import Carrier
from orchestrator.wire import failures

_TAIL_BYTES: Final = 64 * 1024
_SEARCHED_BYTES: Final = 16 * 2**20
_LINE_BYTES: Final = 64 * 1024


class ServerLog:
    """The file that takes a server's output, from where this start begins."""

    def __init__(self, path: Path, secrets: Sequence[str]) -> None:
        self.path = path
        self._secrets = [*secrets]
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._start = path.stat().st_size if path.exists() else 0
        self._mark = self._start

    def open(self) -> int:
        """A descriptor to append to, readable by its owner only."""
        descriptor = os.open(
            self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600
        )
        os.fchmod(descriptor, 0o600)
        return descriptor

    def mark(self) -> None:
        """Remember where the log ends now, for `lines`."""
        with contextlib.suppress(OSError):
            self._mark = self.path.stat().st_size

    def lines(self, *, whole: bool = False) -> Iterator[str]:
        """Lines since the mark, or since the start; of the first 16 MB, without the secrets."""
        hidden = files.blots(self._secrets)
        # A line that is too long is cut, but no secret in it.
        n_kept = max(map(len, hidden), default=1) - 1
        kept = b""
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            end = file.seek(self._start if whole else self._mark) + _SEARCHED_BYTES
            while file.tell() < end and (read := file.readline(_LINE_BYTES)):
                part = files.blot(kept + read, hidden)
                is_cut = len(read) == _LINE_BYTES and not read.endswith(b"\n")
                n_shown = max(len(part) - n_kept, 0) if is_cut else len(part)
                kept = part[n_shown:]
                yield part[:n_shown].decode(errors="replace")
        if kept:
            yield kept.decode(errors="replace")

    def text(self) -> str:
        """The last 64 KB since the start, without the secrets."""
        try:
            return files.tail(self.path, _TAIL_BYTES, self._secrets, self._start)
        except FileNotFoundError:
            return ""

    def tail(self, n_lines: int = 20) -> str:
        """The last lines of that."""
        return "\n".join(self.text().splitlines()[-n_lines:])


ADDRESS_IN_USE: Final = re.compile(
    r"address already in use|EADDRINUSE|Errno 98\b|couldn't bind HTTP server socket", re.IGNORECASE
)

# What logging puts before its words: a process, a level, a time and a place, in any order.
_PREFIX: Final = re.compile(
    r"^(?:\s*(?:\([\w: =/.-]+\)|\[[^\]]*\]|(?:ERROR|CRITICAL|FATAL)\b:?|[\d:.,TZ+/-]{5,}|\|))+\s*"
)
# The last line of a traceback of Python: a class, and what was said.
_EXCEPTION: Final = re.compile(r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Fault|Failure)(?:: .+)?$")
_ERROR: Final = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL)\b|\b(?:error|fatal|panicked|assertion failed|terminate called)\b|"
    r"GGML_ASSERT|Segmentation fault|CUDA error"
)
# What a server dumps of its own state may be megabytes long.
_MOST_CHARACTERS: Final = 4_000


def first_error(lines: Iterable[str]) -> str:
    """Return a server's own first error, on one line of printable characters.

    That is the first exception that it wrote, else the first line that calls itself an error; empty
    if there is none. What stands before the words (process, time, place) is left out.
    """
    found = ""
    for line in lines:
        words = _PREFIX.sub("", line[:_MOST_CHARACTERS].rstrip())
        if _EXCEPTION.match(words):
            return failures.clean(words)
        if not found and _ERROR.search(line[:_MOST_CHARACTERS]):
            found = failures.clean(words)
    return found


def likely_cause(log: str, exit_code: int | None) -> str:
    """One line on why a server did not start.

    Args:
        log: What it wrote since it was started.
        exit_code: As `subprocess` counts (negative: a signal); None where it still runs.
    """
    text = Path(__file__).with_name("causes.txt").read_text(encoding="utf-8")
    for block in text.replace("ADDRESS_IN_USE", ADDRESS_IN_USE.pattern).split("\n\n")[1:]:
        pattern, cause = block.splitlines()
        if match := re.search(pattern, log, re.IGNORECASE | re.MULTILINE):
            return cause.format(**match.groupdict()).rstrip(": ")
    match exit_code:
        case None:
            return "it was not ready in time"
        case -9:
            return "it was killed by signal 9, usually because memory ran out"
        case int() if exit_code < 0:
            return f"it was killed by signal {-exit_code}"
        case _:
            said = first_error(log.splitlines())
            return f"it exited with code {exit_code}" + (f": {said}" if said else "")


_STOP_MARGIN_S: Final = 5.0
# A watchdog on another machine that hears nothing for so long ends its server: it is cut off.
LEASE_S: Final = 30.0
_BEAT_S: Final = 5.0
# Between two looks at the queue of a cluster.
_QUEUE_S: Final = 60.0
# Of a carrier's command between SIGTERM and SIGKILL.
_CARRIER_S: Final = 3.0

logger = logging.getLogger(__name__)


class Parts:
    """The parts of a server, one on each of its machines, by what their watchdogs say.

    Attributes:
        nodes: Names of the machines by rank; empty until they are known, and on this machine.
    """

    def __init__(self) -> None:
        self.nodes: tuple[str, ...] = ()
        self._heard: dict[int, float] = {}
        self._ends: set[int] = set()
        self._told: set[int] = set()

    def place(self, nodes: Sequence[str]) -> None:
        """Note on which machines they are."""
        self.nodes = tuple(nodes)
        self._heard = dict.fromkeys(range(len(nodes)), time.monotonic())

    def read(self, said: bytes) -> None:
        """Note which parts live, which were told to end, and which have ended."""
        for line in said.splitlines():
            rank, _, word = line.partition(_watchdog.PART)[2].partition(b" ")
            if rank.isdigit():
                self._heard[int(rank)] = time.monotonic()
                if word.startswith(_watchdog.ENDS):
                    self._ends.add(int(rank))
                elif word.startswith(_watchdog.TOLD) and (self._told or not self._ends):
                    self._told.add(int(rank))

    @property
    def was_told(self) -> bool:
        """True if the cluster told parts to end before one did, and none is silent.

        The end of one part ends the others: by their connections, and by the cluster.
        """
        return bool(self._told) and len(self._told | self._ends) >= len(self.nodes)

    def silent(self) -> tuple[str, float]:
        """Return the machine whose part has said nothing for longest, its end included.

        Returns:
            The machine, and the seconds for which others have been heard since.
        """
        if not self.nodes:
            return "", 0.0
        left = self._heard.keys() - self._ends or self._heard.keys()
        rank = min(left, key=self._heard.__getitem__)
        heard_at = time.monotonic() if self._ends else max(self._heard.values())
        return self.nodes[rank], heard_at - self._heard[rank]


class Server:
    """A server process that we started; a `RunningServer`. Ended by `stop` or with its block.

    Its process is the watchdog's, or a carrier's command, which stands for a watchdog elsewhere.
    There the port is 0 until `settle` has learned the address.

    Attributes:
        log: What it has written since it was started, without its key.
        node: Name of the machine that a carrier has chosen; empty on this one. Of several, the
            first; once one of them is lost, that one.
        was_told: True if that machine told it to end; known once it is stopped.
        was_lost: True if the cluster said that it has lost that machine; known once it is stopped.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        port: int,
        api_key: str,
        log: ServerLog,
        stop_grace_s: float,
        carrier: Carrier | None = None,
    ) -> None:
        self.base_url = f"http://{HOST}:{port}"
        self._carrier = carrier
        self.node = ""
        self._parts = Parts()
        self._is_heard = self._is_cut_off = False
        self.was_told = False
        self.was_lost = False
        self._ended = threading.Event()
        self.api_key = api_key
        self.pid = 0
        self.log_path = log.path
        self.log = log
        self._process = process
        self._stop_grace_s = stop_grace_s

    def __repr__(self) -> str:
        return f"Server({self.base_url!r}, pid={self.pid})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def exit_code(self) -> int | None:
        """None while it runs; negative where a signal ended it."""
        return self._process.poll()

    def first_error(self) -> str:
        """Its own first error since it was ready, on one line without secrets; perhaps empty."""
        return first_error(self.log.lines()) or first_error(self.log.lines(whole=True))

    async def is_proved(self) -> bool:
        """Wait until nobody but the server is reached at its port; False if it ends before.

        The watchdog tells the server's pid before; it stays 0 where the server can't be run.
        """
        self.pid = int(await self._said(_watchdog.PID) or b"0")
        listens = bool(await self._said(_watchdog.LISTENS))
        self._is_heard = True
        return listens

    async def _said(self, mark: bytes) -> bytes:
        """Read up to a line of a watchdog, and return it without its mark; empty at the end.

        Other programs may write there before it, such as a prolog of Slurm's tasks.
        """
        while line := await _line(_opened(self._process.stdout)):
            _, found, words = line.partition(mark)
            if found:
                return words
            self._parts.read(line)
        return b""

    async def _placed(self) -> tuple[list[str], int]:
        """Return the addresses of all watchdogs by rank, and the port of the first.

        There are none if the carrier's command has ended.
        """
        n_nodes = 1 if self._carrier is None else self._carrier.n_nodes
        places: dict[int, list[str]] = {}
        while len(places) < n_nodes:
            words = (await self._said(_watchdog.PLACED)).decode().split()
            if not words:
                return [], 0
            places[int(words[3]) if n_nodes > 1 else 0] = words
        in_order = [words for _, words in sorted(places.items())]
        self._parts.place([words[2] for words in in_order])
        self.node = in_order[0][2]
        return [words[0] for words in in_order], int(in_order[0][1])

    async def settle(
        self, spec: ServerSpec, env: Mapping[str, str], here: Mapping[str, str]
    ) -> str | None:
        """Tell a watchdog elsewhere what to run.

        Args:
            spec: Of the server.
            env: Its environment, key included.
            here: Variables that the carrier's command has from this program's environment.

        Returns:
            None once it is told; else what it lacked, to be added to the cause. Empty if the
            carrier's command has ended.
        """
        carrier = self._carrier
        names = ", ".join(spec.names)
        waits = carrier is not None and carrier.queues
        reading = asyncio.ensure_future(self._placed())
        said = ""
        try:
            while not (
                await asyncio.wait([reading], timeout=_QUEUE_S if waits else spec.start_timeout_s)
            )[0]:
                if carrier is None or not waits:
                    return f" (no machine took it within {spec.start_timeout_s:g} s)"
                state = await asyncio.to_thread(carrier.waiting)
                if state != said:
                    said = state
                    logger.info("server for %s waits for a machine: %s", names, state or "unknown")
            hosts, port = reading.result()
        finally:
            # Before the pipe is closed.
            reading.cancel()
            await asyncio.wait([reading])
        if not hosts:
            # Its output ends a moment before it does.
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, _CARRIER_S)
            return ""
        host = hosts[0]
        if hosts[1:]:
            argvs = [spec.argv(port, host, (rank, hosts)) for rank in range(len(hosts))]
        else:
            argvs = [spec.argv(port, host)]
        told = {
            # The first listens at the port.
            "arguments": [
                spec.watched(carrier.inside(argv) if carrier else argv, host, 0 if rank else port)
                for rank, argv in enumerate(argvs)
            ],
            "env": {**env},
            "here": {**here},
            "lease_s": LEASE_S,
        }
        with contextlib.suppress(BrokenPipeError):
            self._tell(json.dumps(told).encode() + b"\n")
        # A thread, so that a busy event loop ends no server.
        threading.Thread(target=self._beat, name="server-lease", daemon=True).start()
        self.base_url = f"http://{host}:{port}"
        logger.info(
            "server for %s is placed on %s (%s)", names, " and ".join(self._parts.nodes), host
        )
        return None

    def _beat(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while not self._ended.wait(_BEAT_S):
                self._tell(_watchdog.BEAT)
                if self._is_heard and self._parts.nodes[1:]:
                    self._parts.read(_opened(self._process.stdout).read() or b"")
                node, silent_s = self._parts.silent()
                if silent_s > LEASE_S and not self._ended.is_set():
                    self.node, self._is_cut_off = node, True
                    logger.warning("nothing is heard of node %s for %g s", node, LEASE_S)
                    self._end()

    def _end(self) -> None:
        """End what stands for it here; it gives back what it waits for, or hangs if cut off."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CARRIER_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # It may have started others, which hold its pipes.
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._carrier is not None:
            self._carrier.give_back()

    def _tell(self, words: bytes) -> None:
        stdin = _opened(self._process.stdin)
        stdin.write(words)
        stdin.flush()

    async def stop(self) -> None:
        """End the process group; returns when it is gone. May be called twice.

        Cancelling it kills the group at once.
        """
        is_somewhere = self._carrier is None or self.node
        if is_somewhere and self._process.poll() is None:
            if self._carrier is None:
                self._process.send_signal(signal.SIGTERM)
            else:
                # srun answers SIGTERM by killing at once.
                with contextlib.suppress(BrokenPipeError):
                    self._tell(_watchdog.STOP)
            timeout_s = self._stop_grace_s + _STOP_MARGIN_S
            with contextlib.suppress(subprocess.TimeoutExpired):
                try:
                    await asyncio.to_thread(self._process.wait, timeout_s)
                except asyncio.CancelledError:
                    self.kill()
                    raise
        self.kill()

    def keep(self) -> int:
        """Let it run on when this program has ended; `stop` and `kill` then do nothing.

        Returns the process id of its watchdog: SIGTERM to that ends the server and its children.
        """
        self._tell(_watchdog.KEEP)
        for pipe in (self._process.stdin, self._process.stdout):
            _opened(pipe).close()
        # It is nobody's child from here on; Popen would complain that it was not waited for.
        self._process.returncode = 0
        return self._process.pid

    def kill(self) -> None:
        """End the process group with SIGKILL, reap it, close its pipes. May be called twice."""
        self._ended.set()
        has_ended = self._process.poll() is not None
        stdout = _opened(self._process.stdout)
        if self._carrier is not None and not stdout.closed:
            # Before it is killed: what it says after that is no word of the machine's.
            os.set_blocking(stdout.fileno(), False)
            self._parts.read(stdout.read() or b"")
            said = self.log.text()
            lost = self._carrier.lost_machine(said)
            if lost in self._parts.nodes:
                self.node = lost
            elif not has_ended:
                self.node = self._parts.silent()[0]
            self.was_lost = bool(self.node) and (self._is_cut_off or lost == self.node)
            self.was_told = self._parts.was_told or self._carrier.ended_it(said)
        if not has_ended:
            if self._carrier is not None:
                self._end()
            # The watchdog lives and has not reaped the server, so the number is still its group's.
            elif self.pid:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            # What could not be written any more is of no use to a process that has ended.
            with contextlib.suppress(BrokenPipeError):
                _opened(pipe).close()


def _opened(pipe: IO[bytes] | None) -> IO[bytes]:
    """Return a pipe of a process that was started with one."""
    if pipe is None:
        raise ValueError("the process was started without a pipe")
    return pipe


async def _line(pipe: IO[bytes]) -> bytes:
    """Read a line without a thread, which a wait in a queue would hold; empty at the end."""
    loop, descriptor = asyncio.get_running_loop(), pipe.fileno()
    os.set_blocking(descriptor, False)
    readable, found = asyncio.Event(), b""
    loop.add_reader(descriptor, readable.set)
    try:
        while not found.endswith(b"\n"):
            try:
                part = os.read(descriptor, 1)
            except BlockingIOError:
                readable.clear()
                await readable.wait()
                continue
            if not part:
                return b""
            found += part
    finally:
        loop.remove_reader(descriptor)
    return found
