"""A real Slurm on this machine: a controller, and nodes with addresses of their own.

    with Rig(Path("/tmp/rig")) as rig:
        subprocess.run(["srun", "-N3", "hostname"], env=rig.env)

Each node is a slurmd in a network namespace behind a bridge, so that a server on it has an address
that is not this machine's. There is no database, no cgroup and no systemd. Everything that is
started is a child of this process, or of one of them, and ended by its process id.

`python -m tests.cluster.rig FOLDER` keeps one up until its input ends.
"""

import contextlib
import functools
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import psutil

PROGRAMS: Final = ("slurmctld", "slurmd", "srun", "salloc", "munged", "ip", "nsenter")
CPUS: Final = 2
_UP_S: Final = 60.0
_NUMBERS: Final = itertools.count()
_NODE_PORT: Final = 6818
# Programs of a node keep its name in their environment, also those that Slurm has lost sight of.
_NODE_NAME: Final = "SLURMD_NODENAME"


class Rig:
    """A cluster of one controller and some nodes, until the end of its block.

    Attributes:
        env: Environment of programs that use the cluster from outside its nodes.
        nodes: Their names.
    """

    def __init__(self, folder: Path, n_nodes: int = 3) -> None:
        self._folder = folder
        # Of its own: the kernel takes a while to delete the devices of a rig before.
        number = next(_NUMBERS)
        self._name = f"{os.getpid()}{chr(ord('a') + number % 26)}"
        self._net = f"10.79.{(5 * os.getpid() + number) % 250}"
        self._bridge = f"orchbr{self._name}"
        self.nodes = [f"n{number}" for number in range(1, n_nodes + 1)]
        self._port = _free_port()
        self._controller: subprocess.Popen[bytes] | None = None
        self._slurmds: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = contextlib.ExitStack()
        self.env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._stack = stack
            self._write_settings()
            self._make_network()
            self._start_munge()
            self.start_controller("-c")
            for node in self.nodes:
                self.start_node(node)
            self.until_idle()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            subprocess.run(["scancel", "--user=root"], env=self.env, check=False, timeout=30)
            for node in self.nodes:
                self.kill_node(node)

    def address(self, node: str) -> str:
        """Address of a node."""
        return f"{self._net}.{10 + self.nodes.index(node) + 1}"

    def start_node(self, node: str) -> None:
        """Start the slurmd of a node, for the first time or after it was killed."""
        # `ip netns exec` would hide the control groups, which slurmd looks for.
        network = f"--net=/run/netns/{self._namespace(node)}"
        words = ["nsenter", network, "slurmd", "-D", "-N", node]
        self._slurmds[node] = self._start(*words, name=f"slurmd.{node}")

    def start_controller(self, *options: str) -> None:
        """Start slurmctld, for the first time or after it was killed."""
        self._controller = self._start("slurmctld", "-D", *options, name="slurmctld")

    def kill_controller(self) -> None:
        """Kill slurmctld."""
        assert self._controller is not None
        self._controller.kill()
        self._controller.wait()

    def kill_slurmd(self, node: str) -> None:
        """Kill the slurmd of a node; what runs there goes on."""
        self._slurmds[node].kill()
        self._slurmds[node].wait()

    def silence(self, node: str) -> None:
        """Have no packet reach or leave a node, and nothing tell anybody so."""
        link = _ip("-n", self._namespace(node), "-o", "link", "show", "eth0")
        hardware = link.partition("link/ether ")[2].split()[0]
        # Else this machine soon answers itself that nobody knows the address.
        where = (self.address(node), "lladdr", hardware, "nud", "permanent", "dev", self._bridge)
        _ip("neigh", "replace", *where)
        _ip("link", "set", self._cable(node), "nomaster")

    def hear(self, node: str) -> None:
        """Connect a silent node again."""
        _ip("link", "set", self._cable(node), "master", self._bridge)
        _ip("neigh", "del", self.address(node), "dev", self._bridge)

    def kill_node(self, node: str) -> int:
        """Kill all that runs on a node, as a power cut does; how many processes that were."""
        self.kill_slurmd(node)
        found = self.processes(node)
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        return len(found)

    def processes(self, node: str | None = None) -> list[psutil.Process]:
        """Processes that run in the namespace of a node, or of any, without its slurmd."""
        wanted = [node] if node else self.nodes
        namespaces = {self._namespace_id(name) for name in wanted}
        slurmds = {process.pid for process in self._slurmds.values()}
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError):
                if process.pid not in slurmds and _net_of(process.pid) in namespaces:
                    found.append(process)
        return found

    def owns(self, process: psutil.Process) -> bool:
        """Return True if a process uses this cluster."""
        return bool(process.environ().get("SLURM_CONF") == self.env["SLURM_CONF"])

    def revive(self, node: str) -> None:
        """Bring a node back that was killed, and wait until all are free."""
        self.start_node(node)
        # Else Slurm waits minutes for the end of jobs that ended with the node.
        for state in ("DOWN", "RESUME"):
            self.run("scontrol", "update", f"NodeName={node}", f"State={state}", "Reason=killed")
        self.until_idle()

    def until_idle(self) -> None:
        """Wait until every node is there and free."""
        end = time.monotonic() + _UP_S
        while self.states() != dict.fromkeys(self.nodes, "idle"):
            if time.monotonic() > end:
                logs = [file.read_text()[-2000:] for file in self._folder.glob("*.log")]
                raise RuntimeError("\n".join([f"not all nodes came up: {self.states()}", *logs]))
            time.sleep(0.1)

    def states(self) -> dict[str, str]:
        """State of each node, as sinfo says."""
        said = self.run("sinfo", "--noheader", "--Node", "--format=%N %t")
        return dict(line.split() for line in said.splitlines())

    def run(self, *words: str) -> str:
        """Output of a command of Slurm; empty where it fails."""
        ended = subprocess.run(
            words, env=self.env, capture_output=True, text=True, timeout=60, check=False
        )
        return ended.stdout if ended.returncode == 0 else ""

    def salloc(self, *words: str) -> list[str]:
        """Command line that runs `words` here, in an allocation of all nodes."""
        n_nodes = len(self.nodes)
        size = (f"--nodes={n_nodes}", f"--cpus-per-task={CPUS}", f"--ntasks={n_nodes}")
        return ["salloc", "--quiet", "--no-kill", "--time=10", *size, *words]

    def _namespace(self, node: str) -> str:
        return f"orch{self._name}{node}"

    def _cable(self, node: str) -> str:
        return f"o{self._name}{node}"

    def _namespace_id(self, node: str) -> int:
        return Path("/run/netns", self._namespace(node)).stat().st_ino

    def _start(self, *words: str, name: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.out.log").open("ab") as log:
            process = subprocess.Popen(
                words, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._stack.callback(_end, process)
        return process

    def _start_munge(self) -> None:
        # Of its own key and socket, so that no other cluster of this machine is touched.
        folder = self._folder / "munge"
        folder.mkdir(mode=0o755)
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        files = {"key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        paths = [f"--{option}={folder}/munge.{suffix}" for option, suffix in files.items()]
        socket_path = folder / "munge.socket"
        self._start(
            "munged", "--foreground", "--force", f"--socket={socket_path}", *paths, name="munged"
        )
        end = time.monotonic() + _UP_S
        while not socket_path.exists():
            if time.monotonic() > end:
                raise RuntimeError((self._folder / "munged.out.log").read_text())
            time.sleep(0.05)

    def _make_network(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        self._stack.callback(_ip, "link", "del", self._bridge)
        _ip("addr", "add", f"{self._net}.1/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for node in self.nodes:
            namespace, cable = self._namespace(node), self._cable(node)
            _ip("netns", "add", namespace)
            self._stack.callback(_ip, "netns", "del", namespace)
            _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("link", "set", cable, "master", self._bridge)
            _ip("link", "set", cable, "up")
            inside = ("-n", namespace)
            _ip(*inside, "link", "set", "lo", "up")
            _ip(*inside, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
            _ip(*inside, "link", "set", "eth0", "up")

    def _write_settings(self) -> None:
        folder, host = self._folder, socket.gethostname()
        folder.chmod(0o755)
        for name in ("state", *(f"spool/{node}" for node in self.nodes)):
            (folder / name).mkdir(parents=True)
        nodes = [
            f"NodeName={node} NodeHostname={host} NodeAddr={self.address(node)} "
            f"Port={_NODE_PORT + number} CPUs={CPUS} RealMemory=2000 State=UNKNOWN"
            for number, node in enumerate(self.nodes, 1)
        ]
        settings = f"""
            ClusterName=rig
            SlurmctldHost={host}({self._net}.1)
            SlurmctldPort={self._port}
            SlurmUser=root
            SlurmdUser=root
            AuthType=auth/munge
            CredType=cred/munge
            AuthInfo=socket={folder}/munge/munge.socket
            StateSaveLocation={folder}/state
            SlurmdSpoolDir={folder}/spool/%n
            SlurmctldPidFile={folder}/slurmctld.pid
            SlurmdPidFile={folder}/slurmd.%n.pid
            SlurmctldLogFile={folder}/slurmctld.log
            SlurmdLogFile={folder}/slurmd.%n.log
            ProctrackType=proctrack/linuxproc
            TaskPlugin=task/none
            JobAcctGatherType=jobacct_gather/none
            AccountingStorageType=accounting_storage/none
            MpiDefault=none
            SwitchType=switch/none
            ReturnToService=2
            SlurmdTimeout=10
            InactiveLimit=0
            KillWait=5
            PreemptType=preempt/partition_prio
            PreemptMode=REQUEUE
            SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=0
            SelectType=select/cons_tres
            SelectTypeParameters=CR_Core_Memory
            DefMemPerCPU=500
            SlurmdParameters=config_overrides
            """
        everywhere = f"Nodes={','.join(self.nodes)} State=UP MaxTime=INFINITE"
        partitions = [
            f"PartitionName=main Default=YES PriorityTier=10 PreemptMode=OFF {everywhere}",
            # Its jobs give way to those of the other.
            f"PartitionName=spare PriorityTier=1 GraceTime=5 {everywhere}",
        ]
        lines = [line.strip() for line in settings.strip().splitlines()]
        text = "\n".join([*lines, *nodes, *partitions, ""])
        (folder / "slurm.conf").write_text(text, encoding="utf-8")


@functools.cache
def lacks_slurm() -> bool:
    """Return True if a rig can't be made here."""
    if os.geteuid() != 0 or any(shutil.which(name) is None for name in PROGRAMS):
        return True
    name = f"orch{os.getpid()}"
    try:
        for kind in (("link", name, "type", "bridge"), ("netns", name)):
            _ip(kind[0], "add", *kind[1:])
            _ip(kind[0], "del", name)
    except subprocess.CalledProcessError:
        return True
    return False


def _net_of(pid: int) -> int:
    return Path(f"/proc/{pid}/ns/net").stat().st_ino


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ip(*words: str) -> str:
    ended = subprocess.run(("ip", *words), check=True, capture_output=True, text=True, timeout=10)
    return ended.stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def main(arguments: Sequence[str]) -> None:
    """Keep a cluster up until standard input ends."""
    folder = Path(arguments[0]).resolve()
    folder.mkdir(parents=True)
    with Rig(folder) as rig:
        sys.stdout.write(f"export SLURM_CONF={rig.env['SLURM_CONF']}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
