"""Measure the client's cost of a request to a server on another node, beside one on loopback.

    python -m benchmarks.scale.remote [--sizes SMALL LARGE] [--repeat N] [--write]

The same server gives the same replies at once, over loopback and through a pair of virtual network
cards. Processor time of the whole command, by the slope between two sizes; both places are measured
in turn, and the ratio is that of their means. Real network cards are not measured. Takes root.
"""

import argparse
import statistics
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks import _page, _runs
from benchmarks.scale import _nodes

MOST = 1.1
_SECTION = "scale-remote"


def slope(where: AbstractContextManager[_runs.Server], sizes: tuple[int, int]) -> float:
    """Milliseconds of the client's processor time that one more request takes."""
    runs = []
    with where as server:
        for n_requests in sizes:
            with tempfile.TemporaryDirectory() as name:
                _runs.write_recipe(Path(name), "judge", n_requests, server.url)
                runs.append(_runs.measure(Path(name), server))
    small, large = runs
    return 1e3 * (large.cpu_s - small.cpu_s) / (large.n_requests - small.n_requests)


def measure(reply: Path, sizes: tuple[int, int], repeat: int) -> tuple[list[float], list[float]]:
    """Milliseconds a request of each repetition: on loopback, and on a node."""
    here: list[float] = []
    there: list[float] = []
    if repeat > 1:
        # Modules are compiled by the first run.
        slope(_runs.served(reply), (20, 40))
    with _nodes.cabled() as (inside, address):
        for number in range(repeat):
            places = [
                (here, lambda: _runs.served(reply)),
                (there, lambda: _nodes.served_at(inside, address, reply)),
            ]
            # Whoever is second finds the machine in another state; so they take turns.
            for found, where in places if number % 2 == 0 else reversed(places):
                found.append(slope(where(), sizes))  # type: ignore[no-untyped-call]  # lambdas
    return here, there


def ratio_of(here: list[float], there: list[float]) -> float:
    """The mean cost on a node, as a multiple of that on loopback."""
    return statistics.fmean(there) / statistics.fmean(here)


def section(here: list[float], there: list[float], command: str, machine: str) -> str:
    """The section of the page."""
    ratio = ratio_of(here, there)
    verdict = "met" if ratio <= MOST else "**missed**"
    return "\n".join(
        [
            "## Servers on other nodes",
            "",
            "The client's processor time of a judgment of one token, median and range of "
            f"{len(here)}; **{ratio:.2f}** times as much where the server is on another node as on "
            f"loopback (means; target {MOST}: {verdict}).",
            "",
            "| server | client CPU, ms a request |",
            "| :-- | --: |",
            f"| on loopback | {_nodes.spread(here, 3)} |",
            f"| in another network namespace | {_nodes.spread(there, 3)} |",
            "",
            f"{machine}. Command: `{command}`",
        ]
    )


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sizes", type=int, nargs=2, default=[4_000, 24_000], help="requests of the runs"
    )
    parser.add_argument("--repeat", type=int, default=8)
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    options = parser.parse_args()
    machine, sizes = _page.machine(), (options.sizes[0], options.sizes[1])
    with tempfile.TemporaryDirectory() as name:
        here, there = measure(_runs.bodies(Path(name))["judge"], sizes, options.repeat)
    command = f"python -m benchmarks.scale.remote --sizes {sizes[0]} {sizes[1]}"
    command += f" --repeat {options.repeat}"
    text = section(here, there, command, machine)
    _page.publish(_SECTION, text, {"remote_ratio": ratio_of(here, there)}, write=options.write)


if __name__ == "__main__":
    main()
