"""Servers in actors of a Ray cluster: its nodes, and the command that brings a server to one.

Ray finds the node and the GPUs of each server. See docs/design/0023-servers-on-a-cluster.md.
"""

import importlib
import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import msgspec

from orchestrator.errors import EXIT_INTERRUPTED, UsageError, need
from orchestrator.placement import Node, Size
from orchestrator.recipe.settings import Cluster
from orchestrator.runner.servers.launched import CarrierOf
from orchestrator.runner.servers.ray_driver import NAME_CHARACTERS, NODE_LOST
from orchestrator.serving import Carrier
from orchestrator.store import RunDirectory

# Lists the nodes of a Ray cluster and their resources.
#
#     python -m orchestrator.runner.servers.ray ADDRESS
#
# A process of its own, because Ray ends the process of a driver when it loses the cluster.


_ANSWER_S: Final = 60.0
_MODULE: Final = "orchestrator.runner.servers.ray"

_log = logging.getLogger(__name__)


def nodes_of(address: str) -> tuple[Node, ...]:
    """Return the nodes of a cluster with CPUs, by name; empty if Ray does not tell."""
    if importlib.util.find_spec("ray") is None:
        return ()  # a plan can be made without it
    words = (sys.executable, "-P", "-m", _MODULE, address)
    try:
        ended = subprocess.run(  # noqa: S603 (this program)
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_S, check=True
        )
        return msgspec.json.decode(ended.stdout, type=tuple[Node, ...])
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1] if lines else str(error)
    except (OSError, subprocess.TimeoutExpired, msgspec.MsgspecError) as error:
        why = str(error)
    _log.warning("cannot list the nodes of Ray at %s, so Ray alone places: %s", address, why)
    return ()


def sized(nodes: list[dict[str, Any]]) -> tuple[Node, ...]:
    """Return the nodes of `ray.nodes()` that live and have CPUs, by name."""
    found = []
    for node in nodes:
        has = node["Resources"]
        size = Size(int(has.get("CPU", 0)), int(has.get("GPU", 0)), int(has.get("memory", 0)))
        if node["Alive"] and size.cpus:
            found.append(Node(node["NodeID"][:NAME_CHARACTERS], size))
    return tuple(sorted(found, key=lambda node: node.name))


def main(address: str, *limits: str) -> None:
    """Write the nodes as a line of JSON, or with `limits` run the commands on stdin."""
    import ray  # noqa: PLC0415 (an optional dependency)

    # Ray writes to stdout too.
    output = os.dup(1)
    os.dup2(2, 1)
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    if limits:
        cpus, gpus, n_bytes, n_at_once = map(int, limits)
        _run(json.load(sys.stdin), Size(cpus, gpus, n_bytes or None), n_at_once)
        # No orderly end: it waits for nodes that may be gone.
        sys.stderr.flush()
        os._exit(0)
    else:
        os.write(output, msgspec.json.encode(sized(ray.nodes())) + b"\n")


def _run(commands: list[list[str]], size: Size, n_at_once: int) -> None:
    """Run commands of this program as tasks of Ray, some at a time, to their ends."""
    import ray  # noqa: PLC0415 (an optional dependency)

    def task(folder: str, words: list[str]) -> int:
        # As a process of its own would: this program is found by the node's own Python.
        command = importlib.import_module("orchestrator.cli")
        names = importlib.import_module("orchestrator.runner.servers.slurm_chain")
        os.chdir(folder)
        # A client of the same run may live on at a node that Ray has lost: this one waits for it.
        os.environ[names.HANDS_ON] = names.OF_A_SHARD
        return int(command.main(words))

    # A process for each, which ends with its node's raylet.
    remote = ray.remote(
        num_cpus=size.cpus, num_gpus=size.gpus, memory=size.n_bytes, max_calls=1, max_retries=_TIMES
    )(task)
    here, running = str(Path.cwd()), dict[Any, _Running]()
    while commands or running:
        lost = {str(node["NodeID"]) for node in ray.nodes() if not node["Alive"]}
        while commands and len(running) < n_at_once:
            words = commands.pop(0)
            running[remote.remote(here, words)] = _Running(words, lost)
        ended, waiting = ray.wait([*running], timeout=_LOOK_S)
        for one in ended:
            try:
                said = f"ended with exit code {(code := ray.get(one))}"
            except ray.exceptions.RayError as error:
                code, said = None, f"was lost {_TIMES + 1} times: {error}"
            sys.stderr.write(f"{' '.join(running.pop(one).words)}: {said}\n")
            if code == EXIT_INTERRUPTED:
                commands.clear()
        for one in waiting:
            if running[one].is_silent(lost):
                # Ray begins a task again whose node it has lost, but not always (2.60).
                words = running.pop(one).words
                sys.stderr.write(f"{' '.join(words)}: is silent, begun again elsewhere\n")
                ray.cancel(one, force=True)
                commands.append(words)


class _Running:
    """A shard that runs; its client writes into `status.json` every second."""

    def __init__(self, words: list[str], lost: set[str]) -> None:
        self.words, self._lost = words, lost
        found = (word.partition("=") for word in words)
        run = next(value for name, _, value in found if name == "--run-dir")
        self._status, self._said = RunDirectory(Path(run)).status_path, b""
        self._since = time.monotonic()

    def is_silent(self, lost: set[str]) -> bool:
        """Return True if it has said nothing for long, and nodes were lost since it began."""
        with suppress(OSError):
            said, before = self._status.read_bytes(), self._said
            if said != before:
                self._said, self._since = said, time.monotonic()
        return time.monotonic() - self._since > _SILENT_S and not lost <= self._lost


# How often a task is begun again whose node or process is lost.
_TIMES: Final = 3
_LOOK_S: Final = 5.0
# More than a client needs from its start to its first word, and between two.
_SILENT_S: Final = 60.0

if __name__ == "__main__":
    main(*sys.argv[1:])


def run_tasks(
    cluster: Cluster, commands: Sequence[Sequence[str]], size: Size, n_at_once: int
) -> None:
    """Run commands of this program on nodes of a Ray cluster, and wait for their ends.

    A command whose node is lost is begun again on another. What each made of its run shows there.

    Args:
        cluster: Names the address.
        commands: The words of each behind `orchestrator`.
        size: What each takes of its node.
        n_at_once: How many may run at a time.

    Raises:
        UsageError: If Ray is not installed, too old or not there, or the address is wrong.
    """
    ray_actors(cluster)
    limits = (size.cpus, size.gpus, size.n_bytes or 0, n_at_once)
    words = (sys.executable, "-P", "-m", _MODULE, address_of(cluster), *map(str, limits))
    text = json.dumps([*map(list, commands)])
    ended = subprocess.run(words, input=text, text=True, check=False)  # noqa: S603 (this program)
    if ended.returncode:
        raise UsageError(f"Ray at {address_of(cluster)} did not run the shards to their ends")


OLDEST: Final = (2, 50)
_DRIVER: Final = "orchestrator.runner.servers.ray_driver"
_ADDRESS: Final = "RAY_ADDRESS"
# Of the driver.
_LOST: Final = re.compile(rf"^{re.escape(NODE_LOST)}(\S+)$", re.MULTILINE)


class RayActor(Carrier):
    """Brings one server to a node of a Ray cluster, in an actor of a placement group."""

    def __init__(self, cluster: Cluster, models: tuple[str, ...], address: str) -> None:
        self._cluster, self._size = cluster, cluster.size(models)
        self._address = address
        self.avoid = ""
        self.queues = True

    def command(self, words: Sequence[str]) -> tuple[str, ...]:
        """See `Carrier`; `avoid` and `prefer` hold for one command."""
        size, avoid, prefer = self._size, self.avoid, self.prefer
        self.avoid = self.prefer = ""
        choosy: list[str] = []
        if avoid and avoid not in self.lost:
            choosy = [f"--avoid={avoid}"]
        elif prefer:
            choosy = [f"--prefer={prefer}"]
        return (
            sys.executable,
            "-P",
            "-m",
            _DRIVER,
            f"--address={self._address}",
            f"--cpus={size.cpus}",
            *([f"--gpus={size.gpus}"] if size.gpus else []),
            *([f"--memory={size.memory_bytes()}"] if size.memory else []),
            *choosy,
            *([f"--lost={','.join(self.lost)}"] if self.lost else []),
            "--",
            *set_up(self._cluster, words),
        )

    def inside(self, words: Sequence[str]) -> tuple[str, ...]:
        """See `Carrier`."""
        return (*self._cluster.container, *words)

    def waiting(self) -> str:
        """See `Carrier`."""
        return f"no node of Ray had {self._size.cpus} CPUs and {self._size.gpus} GPUs free yet"

    def lost_machine(self, said: str) -> str:
        """See `Carrier`."""
        found = _LOST.search(said)
        return "" if found is None else found[1]

    def environment(self) -> Mapping[str, str]:
        """See `Carrier`."""
        return {name: value for name, value in os.environ.items() if name.startswith("RAY_")}


def set_up(cluster: Cluster, words: Sequence[str]) -> Sequence[str]:
    """Return the command of a watchdog with the recipe's Python and lines of set-up."""
    if cluster.python is not None:
        words = (cluster.python, *words[1:])
    if not cluster.setup:
        return words
    # What the lines write must not be taken for the address of the server.
    lines = "\n".join(["{", *cluster.setup, '} >&2 && exec "$@"'])
    return ("bash", "-lc", lines, "bash", *words)


def address_of(cluster: Cluster) -> str:
    """Return the address of the Ray cluster: the recipe's, else RAY_ADDRESS, else `auto`.

    Raises:
        UsageError: If it is not one of a cluster's own nodes.
    """
    address = cluster.address or os.environ.get(_ADDRESS) or "auto"
    if "://" in address or address == "local":
        raise UsageError(
            f"--on ray can't use the address {address!r}: run the command on a node of the "
            "cluster, with an address such as 10.0.0.1:6379, or none for the node's own cluster"
        )
    return address


def ray_actors(cluster: Cluster) -> CarrierOf:
    """Return what brings the servers of a run to the nodes of a Ray cluster.

    Nothing is connected to.

    Raises:
        UsageError: If Ray is not installed, or too old, or the address is wrong.
    """
    need("--on ray", "ray", ["ray"])
    found = metadata.version("ray")
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UsageError(f"--on ray needs Ray {oldest} or newer, found {found}")
    address = address_of(cluster)
    return lambda models: RayActor(cluster, models, address)
