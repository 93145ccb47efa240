"""Measure the seconds that a run loses when a node of its servers dies.

    python -m benchmarks.scale.node_death [--requests N] [--servers N] [--write]

A judge has a server on each of some nodes, and one node dies while they are asked: it is killed, so
that connections are reset, or no packet reaches or leaves it any more, or none reaches it and its
own still arrive. The time lost is that of the
command minus that of an undisturbed one. It includes what the rest of the run takes longer with one
server less, which is computed and shown beside it. Takes root.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import _page, _runs
from benchmarks.scale import _nodes
from tests.cluster.network import Network

MOST_S = 30.0
_SECTION = "scale-node-death"
_LATENCY_S = 0.2
# Of each server; the run then takes N / 120 s with three.
_IN_FLIGHT = 8
# An answer that left its server so long before the node's death had arrived.
_UNDER_WAY_S = 0.1


class Death(NamedTuple):
    """A node dies.

    Attributes:
        name: For the table.
        of: What happens to a node of the network.
        share: Of the requests that are answered by then.
    """

    name: str
    of: Callable[[Network, str], AbstractContextManager[None]]
    share: float


class Measured(NamedTuple):
    """A run during which a node died, or none.

    Attributes:
        wall_s: Of the whole command.
        n_twice: Requests that were asked more than once.
        n_again: Of these, those whose answer had arrived before.
        n_lost: Judgments that the run lacks.
    """

    wall_s: float
    n_twice: int = 0
    n_again: int = 0
    n_lost: int = 0


@contextmanager
def silent(network: Network, node: str) -> Iterator[None]:
    """Cut a node off until the block ends."""
    network.silence(node)
    yield
    network.reconnect(node)


@contextmanager
def deaf(network: Network, node: str) -> Iterator[None]:
    """Let nothing reach a node, whose packets still arrive, until the block ends."""
    network.deafen(node)
    yield
    network.reconnect(node)


@contextmanager
def killed(network: Network, node: str) -> Iterator[None]:
    """Kill all on a node, where nothing is started before the block ends."""
    _nodes.kill(network, node)
    yield


DEATHS = (
    Death("killed in the middle", killed, 0.5),
    Death("silent in the middle", silent, 0.5),
    Death("silent when 95 % are answered", silent, 0.95),
    Death("receives nothing from the middle on", deaf, 0.5),
)


def measure(network: Network, n_requests: int, n_servers: int, death: Death | None) -> Measured:
    """Run the command, during which the last of n nodes may die.

    Raises:
        SystemExit: If it fails.
    """
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        reply, log = _runs.bodies(folder)["judge"], folder / "requests.log"
        late = ("--latency-s", str(_LATENCY_S), "--log", str(log))
        servers = stack.enter_context(_nodes.served_on_all(network, n_servers, reply, *late))
        recipe = _runs.write_recipe(folder, "judge", n_requests, servers[0].url)
        urls = [server.url for server in servers]
        _nodes.use(recipe, urls, limits={"max_in_flight": _IN_FLIGHT})
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", "run", str(recipe), "--run-dir",
             str(folder / "run"), "--display", "none"],
            cwd=_runs.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        died_at = began
        if death is not None:
            _wait(process, log, round(death.share * n_requests))
            # Answers come in waves; half a latency after one all places are taken again.
            time.sleep(_LATENCY_S / 2)
            stack.enter_context(death.of(network, _nodes.names(n_servers)[-1]))
            died_at = time.monotonic()
        _, said = process.communicate()
        wall_s = time.monotonic() - began
        if process.returncode:
            raise SystemExit(f"orchestrator run ended with {process.returncode}: {said.decode()}")
        n_lost = n_requests - _runs.n_outcomes(folder / "run" / "store.sqlite")
        return Measured(wall_s, *asked_again(log, died_at), n_lost)


def _wait(process: "subprocess.Popen[bytes]", log: Path, n: int) -> None:
    """Wait until the servers have answered so many requests."""
    while log.read_bytes().count(b" answered ") < n:
        if process.poll() is not None:
            raise SystemExit("the run ended before the node died; ask for more requests")
        time.sleep(0.05)


def asked_again(log: Path, died_at: float) -> tuple[int, int]:
    """Requests that were asked more than once, and those of them whose answer had arrived."""
    asked: Counter[str] = Counter()
    arrived = set()
    for line in log.read_text(encoding="ascii").splitlines():
        at, what, key = line.split()
        if what == "asked":
            asked[key] += 1
        elif float(at) < died_at - _UNDER_WAY_S:
            arrived.add(key)
    twice = {key for key, n in asked.items() if n > 1}
    return len(twice), len(twice & arrived)


def section(
    plain: Measured, found: Sequence[tuple[Death, Measured]], n_requests: int, n_servers: int,
    command: str, machine: str,
) -> str:  # fmt: skip
    """The section of the page."""
    most = max(one.wall_s - plain.wall_s for _, one in found)
    # Seconds that one server would have saved, for each request that was left.
    saved_s = (1 / (n_servers - 1) - 1 / n_servers) * _LATENCY_S / _IN_FLIGHT
    rows = [
        f"| {death.name} | {one.wall_s:.1f} | {one.wall_s - plain.wall_s:.1f} | "
        f"{(1 - death.share) * n_requests * saved_s:.1f} | {one.n_twice} | {one.n_again} | "
        f"{one.n_lost} |"
        for death, one in found
    ]
    return "\n".join(
        [
            "## The death of a node",
            "",
            f"{n_requests:,} judgments by {n_servers} servers on nodes of their own, "
            f"{_IN_FLIGHT} in flight at each, {_LATENCY_S:g} s a reply. One node dies and stays "
            f"away. At most **{most:.1f} s** are lost (target {MOST_S:.0f}: "
            f"{'met' if most <= MOST_S else '**missed**'}).",
            "",
            "| node | s | s lost | because a server is missing, s | asked twice | "
            "of these, answered before | judgments lost |",
            "| :-- | --: | --: | --: | --: | --: | --: |",
            f"| undisturbed | {plain.wall_s:.1f} | | | {plain.n_twice} | {plain.n_again} | "
            f"{plain.n_lost} |",
            *rows,
            "",
            f"Asked twice: {max(one.n_twice for _, one in found)} at most, which the node had "
            "received and not answered when it died.",
            "",
            f"{machine}. Command: `{command}`",
        ]
    )


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=2_400)
    parser.add_argument("--servers", type=int, default=3, help="at least 2")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    options = parser.parse_args()
    machine = _page.machine()
    # One network for all: the kernel takes a while to delete one.
    with _nodes.nodes(options.servers) as network:
        plain, *others = (
            measure(network, options.requests, options.servers, death) for death in (None, *DEATHS)
        )
    found = list(zip(DEATHS, others, strict=True))
    command = f"python -m benchmarks.scale.node_death --requests {options.requests}"
    text = section(plain, found, options.requests, options.servers, command, machine)
    lost = max(one.wall_s - plain.wall_s for _, one in found)
    again = sum(one.n_again + one.n_lost for _, one in found)
    figures = {"node_death_s": lost, "node_death_units": float(again)}
    _page.publish(_SECTION, text, figures, write=options.write)


if __name__ == "__main__":
    main()
