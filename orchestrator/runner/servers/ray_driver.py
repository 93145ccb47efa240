"""Runs a command on a node of a Ray cluster, with its stdin, stdout and stderr connected to ours.

    python -m orchestrator.runner.servers.ray_driver --cpus=4 --gpus=1 -- COMMAND…

    orchestrator ──stdin, stdout──▶ this driver ──Ray──▶ actor on a node ──▶ watchdog ──▶ server

Each server has a driver of its own, in a process of its own: Ray ends a driver's process when it
loses the cluster, and that must not be the client's. The command runs in an actor, in a placement
group of one bundle, so on one node.

It has ended, at the latest `LEASE_S` later, when this driver has ended or can't reach it, or the
node's raylet has: no server outlives its node for Ray. See
docs/design/0023-servers-on-a-cluster.md.
"""

import argparse
import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from orchestrator.errors import NodeLostError

if TYPE_CHECKING:
    from ray.util.placement_group import PlacementGroup

LEASE_S = 10.0
"""Seconds after which an actor ends that its driver has asked for nothing."""
_LOOK_S = 0.5
_POLL_S = 1.0
_PART_BYTES = 65536
# How long resources on a node that is not the one to avoid are waited for, seconds.
_CHOOSY_S = 3.0
# And those on the planned node: a server of the wave before may just be ending there.
_PLANNED_S = 10.0
_SAYS_AFTER_S = 5.0
# For the end of the command after that of our stdin; more than its own grace period then.
_END_S = 15.0
NAME_CHARACTERS = 12
_NODE = "ray.io/node-id"
_OF_THE_NODE = (
    "ASCEND_RT_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "LD_LIBRARY_PATH",
    "NEURON_RT_VISIBLE_CORES", "ONEAPI_DEVICE_SELECTOR", "PATH", "ROCR_VISIBLE_DEVICES", "TMPDIR",
    "TPU_VISIBLE_CHIPS",
)  # fmt: skip
_OUT_OF_REACH = "it is out of reach"
NODE_LOST = "Ray: lost node "
"""What it writes when a node is out of reach begins with this; then comes the node's name."""


class Place:
    """A command on a node, as an actor. Pickled by value: a node needs no code of ours for it.

    Its arguments are kept by Ray, so secrets come by `write`. It ends with its command after
    `lease_s` without a call of `read`.
    """

    def __init__(self, words: Sequence[str], lease_s: float) -> None:
        # No others of this process: they would win over the client's, and Ray sets some, such as
        # the number of threads.
        env = {name: os.environ[name] for name in _OF_THE_NODE if name in os.environ} | _where()
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(  # noqa: S603 (no shell; the client made the command)
            words, stdin=pipe, stdout=pipe, stderr=pipe, env=env, start_new_session=True
        )
        streams = (self._process.stdout, self._process.stderr)
        self._open = {
            stream.fileno(): number
            for number, stream in enumerate(streams, 1)
            if stream is not None
        }
        self._lease_s = lease_s
        self._renewed = time.monotonic()
        threading.Thread(target=self._fence, args=(os.getppid(),), daemon=True).start()

    def _fence(self, raylet: int) -> None:
        """End when the raylet has ended, or the lease. The command's stdin closes with that."""
        while os.getppid() == raylet and time.monotonic() - self._renewed < self._lease_s:
            time.sleep(_LOOK_S)
        os._exit(1)

    def write(self, words: bytes) -> None:
        """Write to the command's stdin; close it where there is nothing to write."""
        stdin = self._process.stdin
        if stdin is None:
            return
        with contextlib.suppress(BrokenPipeError):
            if words:
                stdin.write(words)
                stdin.flush()
            else:
                stdin.close()

    def read(self) -> tuple[list[tuple[int, bytes]], int | None]:
        """Renew the lease, and wait shortly for output.

        Returns parts of its stdout (1) and stderr (2), and its exit code when all is read.
        """
        self._renewed = time.monotonic()
        parts = []
        for descriptor in select.select([*self._open], [], [], _POLL_S)[0]:
            part = os.read(descriptor, _PART_BYTES)
            if part:
                parts.append((self._open[descriptor], part))
            else:
                del self._open[descriptor]
        if not self._open:
            # A process that closes its output may still run; the next call asks again.
            with contextlib.suppress(subprocess.TimeoutExpired):
                return parts, self._process.wait(_POLL_S)
        return parts, None


def _where() -> dict[str, str]:
    """Return the variables that tell the watchdog where it is, on this node of Ray."""
    import ray  # noqa: PLC0415 (an optional dependency)

    return {
        "ORCHESTRATOR_NODE_ADDRESS": str(ray.util.get_node_ip_address()),
        "ORCHESTRATOR_NODE_NAME": ray.get_runtime_context().get_node_id()[:NAME_CHARACTERS],
    }


def main(arguments: Sequence[str]) -> NoReturn:
    """Run the command to its end, then end with its exit code."""
    options = _options(arguments)
    # Our stdout is the command's. Ray writes to it, of nodes that have died, so it gets another.
    sys.stdout.flush()
    outputs = {1: os.dup(1), 2: 2}
    os.dup2(2, 1)
    stdin = _Stdin()
    stdin.start()
    try:
        code = _run(options, stdin, outputs)
    except NodeLostError as error:
        _say(f"{NODE_LOST}{error.node[:NAME_CHARACTERS]}")
        code = 1
    except Exception as error:  # noqa: BLE001 (of Ray, which documents few: a boundary)
        _say(f"Ray: {type(error).__name__}: {error}")
        code = 1
    # No orderly end: it waits for nodes that may be gone. The actor ends with this process.
    os._exit(code)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run a command on a node of a Ray cluster.")
    parser.add_argument("--address", default="auto", help="of the cluster")
    parser.add_argument("--cpus", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--memory", type=int, default=0, help="bytes; 0 for any")
    parser.add_argument("--avoid", default="", help="node that is not taken if another is free")
    parser.add_argument("--prefer", default="", help="node that is taken if it is free at once")
    parser.add_argument("--lost", default="", help="nodes that are not taken, by commas")
    parser.add_argument("words", nargs="+", metavar="COMMAND")
    return parser.parse_args(arguments)


class _Stdin(threading.Thread):
    """Hands what comes on our stdin to the actor `place`, once `is_placed`."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._lock = threading.Lock()
        self.place: Any = None
        self.is_placed = threading.Event()

    def run(self) -> None:
        """See `Thread`."""
        import ray  # noqa: PLC0415 (an optional dependency)

        while words := os.read(sys.stdin.fileno(), _PART_BYTES):
            self.is_placed.wait()
            # What is out of reach is the main thread's to tell.
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(self.place.write.remote(words))
        # The client is gone, or has killed what stands for the server.
        if self.is_placed.is_set():
            self.place.write.remote(b"")
            time.sleep(_END_S)
        os._exit(1)


def _run(options: argparse.Namespace, stdin: _Stdin, outputs: Mapping[int, int]) -> int:
    import ray  # noqa: PLC0415 (an optional dependency)
    from ray.util import placement_group_table  # noqa: PLC0415
    from ray.util.scheduling_strategies import (  # noqa: PLC0415
        PlacementGroupSchedulingStrategy,
    )

    ray.init(
        address=options.address,
        namespace="orchestrator",
        log_to_driver=False,
        logging_level="ERROR",
    )
    needs = {"CPU": options.cpus, "GPU": options.gpus, "memory": options.memory}
    bundle = {name: float(amount) for name, amount in needs.items() if amount}
    group = _room(bundle, options)
    node = str(placement_group_table(group)["bundles_to_node_id"][0])
    actor = ray.remote(Place).options(
        num_cpus=options.cpus,
        num_gpus=options.gpus,
        memory=options.memory or None,
        max_restarts=0,
        # `write` must not wait for `read`.
        max_concurrency=2,
        scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0),
    )
    place = actor.remote(options.words, LEASE_S)
    stdin.place = place
    stdin.is_placed.set()
    while True:
        try:
            parts, code = ray.get(place.read.remote())
        except ray.exceptions.ActorUnavailableError as error:
            # Of a process that has ended on a node that lives, Ray says so.
            raise NodeLostError(node, _OUT_OF_REACH) from error
        except ray.exceptions.ActorDiedError as error:
            if not _lives(node):
                raise NodeLostError(node, _OUT_OF_REACH) from error
            raise
        for number, part in parts:
            os.write(outputs[number], part)
        if code is not None:
            return int(code if code >= 0 else 128 - code)


def _room(bundle: dict[str, float], options: argparse.Namespace) -> "PlacementGroup":
    """Return a placement group that is ready; wait for the resources until they are there.

    All resources are on one node; nodes are named by the beginnings of their ids.
    """
    from ray.util import placement_group, remove_placement_group  # noqa: PLC0415

    lost = [node for name in options.lost.split(",") if (node := _node(name))]
    avoided, planned = _node(options.avoid), _node(options.prefer)
    if avoided or planned:
        first = planned or _none_of([*lost, avoided])
        group = placement_group([bundle], "STRICT_PACK", bundle_label_selector=[{_NODE: first}])
        if group.wait(_PLANNED_S if planned else _CHOOSY_S):
            return group
        remove_placement_group(group)
    where = [{_NODE: _none_of(lost)}] if lost else None
    group = placement_group([bundle], "STRICT_PACK", bundle_label_selector=where)
    if not group.wait(_SAYS_AFTER_S):
        words = ", ".join(f"{name} {amount:g}" for name, amount in bundle.items())
        _say(f"Ray: no node has these resources free now; waiting: {words}")
        while not group.wait(_SAYS_AFTER_S):
            if planned and not _lives(planned):
                raise NodeLostError(planned, _OUT_OF_REACH)
    return group


def _none_of(nodes: Sequence[str]) -> str:
    return f"!in({','.join(nodes)})" if len(nodes) > 1 else f"!{nodes[0]}"


def _node(name: str) -> str:
    """Return the whole id of a node; empty where Ray does not know it."""
    import ray  # noqa: PLC0415 (an optional dependency)

    ids = [str(node["NodeID"]) for node in ray.nodes()] if name else []
    return next((found for found in ids if found.startswith(name)), "")


def _lives(node: str) -> bool:
    """Return False if Ray says that a node, by its whole id, is lost."""
    import ray  # noqa: PLC0415 (an optional dependency)

    return any(one["NodeID"] == node and one["Alive"] for one in ray.nodes())


def _say(words: str) -> None:
    sys.stderr.write(words.rstrip() + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
