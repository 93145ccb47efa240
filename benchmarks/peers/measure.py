"""One client, one job: what it took of the processor, of time and of memory; slopes of two jobs."""

import math
import os
import re
import resource
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.clients import Job, Ours, Peer

GROWTH = 5
_OPEN_FILES = 16_384
# At the margin, or just inside the box of a group; code stands further in.
_EXCEPTION = re.compile(r"(?:\s*\| )?((?!Traceback)[A-Za-z_][\w.]*(?:: .*)?)$")


class ClientError(Exception):
    """A client did not do its job."""


@dataclass(frozen=True)
class Measured:
    """One run of a client.

    Attributes:
        n: Requests answered.
        with_logprobs: Those whose log-probabilities are in the client's own result.
        cpu_s: User and system time of the process, its threads and its children.
        wall_s: From start to end.
        rss_mb: Largest resident memory of one process.
    """

    n: int
    with_logprobs: int
    cpu_s: float
    wall_s: float
    rss_mb: float


@dataclass(frozen=True)
class Slope:
    """Cost of one more request, start-up left out: medians over the repeats.

    Attributes:
        cpu_ms: Of the processor.
        low: Least of the repeats.
        high: Most of the repeats.
        per_s: Requests a second of wall time; nan where the larger run took no longer.
        larger: The last run of the larger size.
    """

    cpu_ms: float
    low: float
    high: float
    per_s: float
    larger: Measured


def run(client: Ours | Peer, url: str, body: str, n: int, in_flight: int) -> Measured:
    """Has a client do a job and waits for its end.

    Raises:
        ClientError: If it failed, or answered another number of requests.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        job = Job(url, body, n, in_flight, Path(name))
        command = client.command(job)
        said, log = job.folder / "stdout", job.folder / "stderr"
        with said.open("wb") as stdout, log.open("wb") as stderr:
            started = time.monotonic()
            process = subprocess.Popen(
                command, stdout=stdout, stderr=stderr, env=client.environment(), preexec_fn=_room
            )
            # Not `wait`: it would throw away what the kernel has counted.
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.monotonic() - started
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            why = last_words(log.read_text(encoding="utf-8", errors="replace"))
            raise ClientError(f"exit code {process.returncode}: {why}")
        did = client.did(job, said.read_text(encoding="utf-8", errors="replace"))
        if did.answered != n:
            raise ClientError(f"{did.answered} of {n} answered")
        cpu = usage.ru_utime + usage.ru_stime
        return Measured(n, did.with_logprobs, cpu, wall, usage.ru_maxrss / 1024)


def last_words(text: str) -> str:
    """Return the reason a failed program gives: of a group of tasks the last one's exception.

    Where an exception came of another one, the first is named too.
    """
    leaf = re.split(r"^[\s|+-]*\+-+ \d+ -+$", text, flags=re.MULTILINE)[-1]
    named = [found.group(1) for line in leaf.splitlines() if (found := _EXCEPTION.match(line))]
    if not named:
        return "".join(text.strip().splitlines()[-1:])
    return named[-1] if named[0] == named[-1] else f"{named[-1]} (from {named[0]})"


def slope(
    client: Ours | Peer, url: str, body: str, n: int, *, in_flight: int, repeats: int
) -> Slope:
    """Measure the cost of one more request, from runs of n and of `GROWTH` times n requests.

    Raises:
        ClientError: If a run failed.
    """
    costs, rates, larger = [], [], None
    for _ in range(repeats):
        smaller = run(client, url, body, n, in_flight)
        larger = run(client, url, body, GROWTH * n, in_flight)
        extra = larger.n - smaller.n
        costs.append(1000 * (larger.cpu_s - smaller.cpu_s) / extra)
        longer = larger.wall_s - smaller.wall_s
        # On a busy machine the larger run may take less time: that says nothing.
        rates.append(extra / longer if longer > 0 else math.nan)
    if larger is None:
        raise ValueError("at least one repeat is needed")
    return Slope(statistics.median(costs), min(costs), max(costs), statistics.median(rates), larger)


def _room() -> None:
    """Enough open files for thousands of connections, where the system allows it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else _OPEN_FILES
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_OPEN_FILES, most), hard))
