"""A real Ray on this machine: a head without resources, and nodes with addresses of their own.

    with RayRig(Path("/tmp/rig")) as rig:
        subprocess.run([...], env=rig.env)

Each node is a raylet with its workers in a network namespace, and with a folder for temporary
files of its own. Everything that is started is a child
of this process, or of one of them, and ended by its process id.

`python -m tests.cluster.ray_rig FOLDER` keeps one up until its input ends.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import psutil

from tests.chaos.arena import free_port
from tests.cluster.network import Network, lacks_network

CPUS: Final = 2
_UP_S: Final = 120.0
_STORE_BYTES: Final = 80_000_000
# Ray's own programs of a node; all others there are of servers.
_OF_RAY: Final = ("ray/core/src/ray", "site-packages/ray/", "ray::", "bin/ray")

# Tells the nodes that are alive for each line on its input.
_OBSERVER: Final = """
import os, sys, ray
# Ray writes to stdout too, of nodes that have died.
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
ray.init(log_to_driver=False, logging_level="ERROR")
for _ in sys.stdin:
    alive = [node for node in ray.nodes() if node["Alive"]]
    found = (f"{node['NodeID'][:12]}:{node['NodeManagerAddress']}" for node in alive)
    print(*found, file=out, flush=True)
"""


class RayRig:
    """A cluster of one head and some nodes, until the end of its block.

    Args:
        folder: For what Ray's programs say.
        n_nodes: Nodes beside the head.

    Attributes:
        env: Environment of programs that use the cluster from the head.
        nodes: Their names.
    """

    def __init__(self, folder: Path, n_nodes: int = 3) -> None:
        self._folder = folder
        self.nodes = [f"n{number}" for number in range(1, n_nodes + 1)]
        self._port = free_port()
        self._network = Network(78, self.nodes)
        self.address = f"{self._network.host}:{self._port}"
        self.env = {
            **os.environ,
            "RAY_ADDRESS": self.address,
            "RAY_USAGE_STATS_ENABLED": "0",
            # Ray notices a node's death sooner than it does by default, for the next test.
            "RAY_health_check_period_ms": "2000",
            "RAY_health_check_timeout_ms": "5000",
            "RAY_health_check_failure_threshold": "3",
            # It ends the nodes of a head that is lost after a minute by default.
            "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
            # What is on the disk of this machine concerns nobody here.
            "RAY_local_fs_capacity_threshold": "1.0",
        }
        self._stack = contextlib.ExitStack()
        self._head: subprocess.Popen[bytes] | None = None
        self._started: list[subprocess.Popen[bytes] | subprocess.Popen[str]] = []
        self._observer: subprocess.Popen[str] | None = None
        # Ray's sockets lie in it, whose paths are short.
        self._session = Path(tempfile.mkdtemp(prefix="orr", dir="/tmp"))

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self._session, ignore_errors=True)
            stack.enter_context(self._network)
            stack.callback(self._end)
            self.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """Start the head, then the nodes, and wait until all are there."""
        self._head = self._start(
            "--head",
            f"--port={self._port}",
            f"--node-ip-address={self._network.host}",
            "--num-cpus=0",
            "--include-dashboard=false",
            f"--temp-dir={self._session}",
            name="head",
        )
        # A node asks the head once where its session is.
        self._until(lambda: self._alive() >= 1)
        for node in self.nodes:
            self.start_node(node)
        self.until_whole()

    def start_node(self, node: str) -> None:
        """Start the raylet of a node, for the first time or after it was killed."""
        self._start(
            f"--address={self.address}",
            f"--node-ip-address={self._network.address(node)}",
            f"--num-cpus={CPUS}",
            name=node,
            # A folder of its own for Ray's sockets and logs, as another machine has.
            before=[
                *self._network.inside(node),
                "unshare",
                "--mount",
                "sh",
                "-c",
                'mount -t tmpfs none "$0" && exec "$@"',
                str(self._session),
            ],
        )

    def kill_node(self, node: str) -> int:
        """Kill all that runs on a node, as a power cut does; how many processes that were."""
        found = self._network.processes([node])
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        return len(found)

    def kill_raylet(self, node: str) -> None:
        """Kill the raylet of a node alone; its workers and their children stay."""
        # First what would end its children when it sees the raylet's end.
        found = self._network.processes([node])
        for name in ("ray", "raylet"):
            for process in found:
                with contextlib.suppress(psutil.Error):
                    if process.name() == name:
                        process.kill()

    def kill_gcs(self) -> None:
        """Kill the head's control service, with what watches it."""
        if self._head is None:
            raise RuntimeError("there is no head")
        children = psutil.Process(self._head.pid).children(recursive=True)
        self._head.kill()
        for process in children:
            with contextlib.suppress(psutil.Error):
                if process.name() == "gcs_server":
                    process.kill()

    def restart(self) -> None:
        """End what is left of Ray, and start it anew at the same address."""
        self._end()
        self.start()

    def silence(self, node: str) -> None:
        """Let no packet from or to a node pass."""
        self._network.silence(node)

    def reconnect(self, node: str) -> None:
        """End the silence of a node."""
        self._network.reconnect(node)

    def servers(self, node: str | None = None) -> list[psutil.Process]:
        """Watchdogs and servers on a node, or on any."""
        found = []
        for process in self._network.processes([node] if node else ()):
            with contextlib.suppress(psutil.Error):
                words = " ".join(process.cmdline())
                if words and not any(own in words.partition(" -- ")[0] for own in _OF_RAY):
                    found.append(process)
        return found

    def tasks(self, node: str) -> list[psutil.Process]:
        """Processes of Ray that run a task on a node."""
        found = self._network.processes([node])
        return [one for one in found if _words(one)[:1] == ["ray::task"]]

    def replace(self, node: str) -> None:
        """End what is left of a node that was lost, and start it anew when Ray knows of its end."""
        self.kill_node(node)
        self.reconnect(node)
        self.until_lost(node)
        self.start_node(node)
        self.until_whole()

    def until_lost(self, node: str) -> None:
        """Wait until Ray knows that a node is lost."""
        self._until(lambda: node not in self.node_ids().values())

    def until_whole(self) -> None:
        """Wait until every node is there."""
        self._until(lambda: self._alive() == 1 + len(self.nodes))

    def node_ids(self) -> dict[str, str]:
        """Name of each node that is alive, by the beginning of Ray's id of it."""
        names = {self._network.address(node): node for node in self.nodes}
        pairs = [words.split(":") for words in self._observed().split()]
        return {found: names.get(address, "head") for found, address in pairs}

    def _observed(self) -> str:
        """Nodes that are alive, in the words of the observer; empty where the head is not."""
        if self._observer is None or self._observer.poll() is not None:
            self._observer = subprocess.Popen(
                [sys.executable, "-c", _OBSERVER], env=self.env, text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            self._started.append(self._observer)
        stdin, stdout = self._observer.stdin, self._observer.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(BrokenPipeError):
            stdin.write("\n")
            stdin.flush()
            return stdout.readline()
        return ""

    def _alive(self) -> int:
        return len(self.node_ids())

    def _until(self, is_so) -> None:
        end = time.monotonic() + _UP_S
        while not is_so():
            if time.monotonic() > end:
                logs = [file.read_text()[-2000:] for file in self._folder.glob("*.log")]
                raise RuntimeError("\n".join(["Ray did not come up", *logs]))
            time.sleep(0.5)

    def _start(self, *words: str, name: str, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        program = str(Path(sys.executable).parent / "ray")
        command = [
            *before, program, "start", *words, f"--object-store-memory={_STORE_BYTES}",
            "--disable-usage-stats", "--block",
        ]  # fmt: skip
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._started.append(process)
        return process

    def _end(self) -> None:
        """Kill all that is left, and reap it."""
        below = []
        for process in self._started:
            with contextlib.suppress(psutil.Error):
                below += psutil.Process(process.pid).children(recursive=True)
        for process in self._started:
            process.kill()
            # Its pipes are closed too.
            process.communicate()
        self._started.clear()
        self._observer = None
        left = [*below, *self._network.processes(), *self._of_session()]
        for one in left:
            with contextlib.suppress(psutil.Error):
                one.kill()
        psutil.wait_procs(left, 20)

    def _of_session(self) -> list[psutil.Process]:
        """Programs that Ray has started for the head, also where their parent is gone."""
        return [one for one in psutil.process_iter() if str(self._session) in " ".join(_words(one))]


def _words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return [*process.cmdline()]
    return []


def lacks_ray() -> bool:
    """Return True if a rig can't be made here."""
    return importlib.util.find_spec("ray") is None or lacks_network()


def main(arguments: Sequence[str]) -> None:
    """Keep a cluster up until standard input ends."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(arguments[0]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with RayRig(folder) as rig:
        sys.stdout.write(f"export RAY_ADDRESS={rig.address}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
