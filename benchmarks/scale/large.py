"""Measure a large run over many servers: memory along the way, rate, and the client's cost.

    python -m benchmarks.scale.large [--requests N …] [--servers N] [--latency-s S] [--write]

One client asks judgments of one token of fixed-reply servers, each on a node of its own (a network
namespace, which takes root), each answering after a latency, as many at a time as it is asked.
Memory is that of the client's process, looked at five times a second, with the requests that the
servers have counted by then.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks import _page, _runs
from benchmarks.scale import _nodes

MOST_GROWTH_MB = 40.0
_SECTION = "scale-large"
_LOOK_S = 0.2
_QUARTERS = (0.25, 0.5, 0.75, 1.0)


class Measured(NamedTuple):
    """Resources of one run.

    Attributes:
        n_requests: That the servers counted.
        cpu_s: Processor time of the client.
        sending_s: From the first request to the last, seconds.
        wall_s: Of the whole command.
        rss_mb: The client's memory when a quarter, a half, three quarters and all had been asked.
        peak_mb: Its most memory, the results at the end included.
        most_open: Requests that all servers had at a time, at most; a bound, since each server
            counts its own.
        n_bytes: Of the store, an outcome.
    """

    n_requests: int
    cpu_s: float
    sending_s: float
    wall_s: float
    rss_mb: tuple[float, ...]
    peak_mb: float
    most_open: int
    n_bytes: float

    @property
    def cpu_ms(self) -> float:
        """Processor time a request, milliseconds."""
        return 1e3 * self.cpu_s / self.n_requests

    @property
    def growth_mb(self) -> float:
        """Memory at the last request minus that at a quarter."""
        return self.rss_mb[-1] - self.rss_mb[0]


def measure(n_requests: int, n_servers: int, latency_s: float, folder: Path) -> Measured:
    """Run the command with so many requests, in a folder that is empty.

    Raises:
        SystemExit: If the run fails, or the servers counted others than the store holds.
    """
    reply = _runs.bodies(folder)["judge"]
    late = ("--latency-s", str(latency_s))
    with (
        _nodes.nodes(n_servers) as network,
        _nodes.served_on_all(network, n_servers, reply, *late) as servers,
    ):
        recipe = _runs.write_recipe(folder, "judge", n_requests, servers[0].url)
        _nodes.use(recipe, [server.url for server in servers])
        measured = _watched(recipe, servers)
    if measured.n_requests != n_requests:
        raise SystemExit(f"{measured.n_requests:,} requests for {n_requests:,} judgments")
    return measured


def _watched(recipe: Path, servers: Sequence[_runs.Server]) -> Measured:
    run = recipe.parent / "run"
    command = [sys.executable, "-m", "orchestrator", "run", str(recipe), "--run-dir", str(run),
               "--display", "none"]  # fmt: skip
    began = time.monotonic()
    with (recipe.parent / "said").open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, cwd=_runs.ROOT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
        )  # fmt: skip
        looks = _looks(process.pid, servers)
        code, usage = _runs.ended(process)
    if code:
        raise SystemExit((recipe.parent / "said").read_text(encoding="utf-8"))
    ended = time.monotonic()
    n_requests, n_held = (
        sum(server.n_answered() for server in servers),
        _runs.n_outcomes(run / "store.sqlite"),
    )
    if n_held != n_requests:
        said = (recipe.parent / "said").read_text(encoding="utf-8")
        raise SystemExit(f"{n_requests:,} requests, but {n_held:,} outcomes in the store: {said}")
    first = min(server.asked("/first")[0] for server in servers)
    last = next(at for at, n, _ in looks if n >= n_requests)
    n_bytes = sum(file.stat().st_size for file in run.glob("store.sqlite*"))
    return Measured(
        n_requests,
        usage.ru_utime + usage.ru_stime,
        last - first,
        ended - began,
        tuple(next(rss for _, n, rss in looks if n >= share * n_requests) for share in _QUARTERS),
        usage.ru_maxrss / 1024,
        sum(server.asked("/open") for server in servers),
        n_bytes / n_requests,
    )


def _looks(pid: int, servers: Sequence[_runs.Server]) -> list[tuple[float, int, float]]:
    """Time, requests so far, and MiB of a process, again and again until it ends."""
    process, looks = psutil.Process(pid), []
    while process.status() != psutil.STATUS_ZOMBIE:
        n = sum(server.n_answered() for server in servers)
        looks.append((time.monotonic(), n, process.memory_info().rss / 2**20))
        time.sleep(_LOOK_S)
    return looks


def section(
    found: Sequence[Measured], n_servers: int, latency_s: float, command: str, machine: str
) -> str:
    """The section of the page."""
    largest = found[-1]
    verdict = "met" if largest.growth_mb <= MOST_GROWTH_MB else "**missed**"
    rows = [
        f"| {one.n_requests:,} | {one.cpu_s:.0f} | {one.cpu_ms:.3f} | {one.wall_s:.0f} | "
        f"{one.n_requests / one.sending_s:,.0f} | {one.most_open:,} | "
        f"{' | '.join(f'{rss:.0f}' for rss in one.rss_mb)} | {one.peak_mb:.0f} | "
        f"{one.n_bytes:,.0f} |"
        for one in found
    ]
    return "\n".join(
        [
            "## A large run over many servers",
            "",
            f"One client, {n_servers} servers on nodes of their own that answer a judgment after "
            f"{latency_s:g} s. From a quarter of {largest.n_requests:,} requests to the last, the "
            f"client's memory grows by **{largest.growth_mb:.0f} MB** (target "
            f"{MOST_GROWTH_MB:.0f}: {verdict}). The servers share the cores with the client, so "
            "requests a second are a lower bound.",
            "",
            "| requests | CPU s | CPU ms a request | wall s | requests/s | most open | "
            "RSS at 25 %, MB | 50 % | 75 % | 100 % | peak | store B a request |",
            "| --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
            *rows,
            "",
            f"The peak of {largest.peak_mb:.0f} MB includes the ranking and the frames, which are "
            "made after the last request.",
            "",
            f"{machine}. Command: `{command}`",
            "",
            f"<!-- points: {json.dumps([points(one) for one in found])} -->",
        ]
    )


def points(one: Measured) -> dict[str, float]:
    """The figures that the simulation is held against."""
    return {
        "n": one.n_requests,
        "cpu_s": round(one.cpu_s, 2),
        "wall_s": round(one.wall_s, 1),
        "bytes": round(one.n_bytes * one.n_requests),
        "rss_mb": round(one.rss_mb[-1], 1),
        "peak_mb": round(one.peak_mb, 1),
    }


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--requests", type=int, nargs="+", default=[100_000], help="1000000 takes 10 minutes"
    )
    parser.add_argument("--servers", type=int, default=16)
    parser.add_argument("--latency-s", type=float, default=0.1)
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    options = parser.parse_args()
    machine, found = _page.machine(), []
    for n in sorted(options.requests):
        with tempfile.TemporaryDirectory() as name:
            found.append(measure(n, options.servers, options.latency_s, Path(name)))
    command = f"python -m benchmarks.scale.large --requests {' '.join(map(str, options.requests))}"
    text = section(found, options.servers, options.latency_s, command, machine)
    figures = {"large_growth_mb": found[-1].growth_mb, "large_n": float(found[-1].n_requests)}
    _page.publish(_SECTION, text, figures, write=options.write)


if __name__ == "__main__":
    main()
