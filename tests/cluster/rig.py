"""A real Slurm on this machine: a controller, and nodes with addresses of their own.

    with Rig(Path("/tmp/rig")) as rig:
        subprocess.run(["srun", "-N3", "hostname"], env=rig.env)

Each node is a slurmd in a network namespace behind a bridge, so that a server on it has an address
that is not this machine's. There is no database, no cgroup and no systemd. Everything that is
started is a child of this process, or of one of them, and ended by its process id.

`python -m tests.cluster.rig FOLDER` keeps one up until its input ends.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import psutil

from tests.cluster.network import Network, lacks_network

PROGRAMS: Final = ("slurmctld", "slurmd", "srun", "salloc", "munged")
CPUS: Final = 2
GPUS: Final = 2
# Numbers of /dev/null.
NULL: Final = os.makedev(1, 3)
_UP_S: Final = 60.0
# slurmctld saves jobs 5 s after the last time, or at once.
_SAVED_S: Final = 30.0
# Until the processes of a node that were killed are gone.
_KILLED_S: Final = 5.0
_NODE_PORT: Final = 6818
# It looks for jobs to start every 2 s, not 30 and 60, so that tests wait less.
_PROMPT: Final = "sched_interval=2,bf_interval=2,sched_min_interval=0"
# Programs of a node keep its name in their environment, also those that Slurm has lost sight of.
_NODE_NAME: Final = "SLURMD_NODENAME"


class Rig:
    """A cluster of one controller and some nodes, until the end of its block.

    Args:
        folder: Of its settings, logs and state.
        n_nodes: Number of nodes.
        scheduler: SchedulerParameters of Slurm; empty for its own defaults.

    Attributes:
        env: Environment of programs that use the cluster from outside its nodes.
        nodes: Their names.
    """

    def __init__(self, folder: Path, n_nodes: int = 3, *, scheduler: str = _PROMPT) -> None:
        self._folder = folder
        self._scheduler = scheduler
        self.nodes = [f"n{number}" for number in range(1, n_nodes + 1)]
        self._network = Network(79, self.nodes)
        self._port = _free_port()
        self._controller: subprocess.Popen[bytes] | None = None
        self._slurmds: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = contextlib.ExitStack()
        self.env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._stack = stack
            self._write_settings()
            stack.enter_context(self._network)
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

    def start_node(self, node: str) -> None:
        """Start the slurmd of a node, for the first time or after it was killed."""
        words = [*self._network.inside(node), "slurmd", "-D", "-N", node]
        self._slurmds[node] = self._start(*words, name=f"slurmd.{node}")

    def start_controller(self, *options: str) -> None:
        """Start slurmctld, for the first time or after it was killed."""
        self._controller = self._start("slurmctld", "-D", *options, name="slurmctld")

    def kill_controller(self) -> None:
        """Kill slurmctld, once all that it knows of its jobs is on the disk.

        It saves at most every 5 s, and the next one knows no job that began after that.
        """
        self._until_saved()
        assert self._controller is not None
        self._controller.kill()
        self._controller.wait()

    def _until_saved(self) -> None:
        # The file with a job's new comment has all that went before it, too.
        marks = {}
        for job in self.run("squeue", "--noheader", "--states=RUNNING", "--format=%i").split():
            marks[job] = secrets.token_hex(8)
            self.run("scontrol", "update", f"JobId={job}", f"Comment={marks[job]}")
        end = time.monotonic() + _SAVED_S
        while any(mark.encode() not in self._saved_jobs() for mark in marks.values()):
            assert time.monotonic() < end, f"not all of the jobs {', '.join(marks)} were saved"
            time.sleep(0.05)

    def _saved_jobs(self) -> bytes:
        # The file is absent for a moment while another takes its place.
        with contextlib.suppress(FileNotFoundError):
            return (self._folder / "state" / "job_state").read_bytes()
        return b""

    def kill_slurmd(self, node: str) -> None:
        """Kill the slurmd of a node; what runs there goes on."""
        self._slurmds[node].kill()
        self._slurmds[node].wait()

    def silence(self, node: str) -> None:
        """Have no packet reach or leave a node, and nothing tell anybody so."""
        self._network.silence(node)

    def deafen(self, node: str) -> None:
        """Have no packet of this machine reach a node, which can still send."""
        self._network.deafen(node)

    @property
    def host(self) -> str:
        """Address of this machine by which nodes reach it."""
        return self._network.host

    def hear(self, node: str) -> None:
        """Connect a silent or deaf node again."""
        self._network.reconnect(node)

    def kill_node(self, node: str) -> int:
        """Kill all that runs on a node, as a power cut does; how many processes that were."""
        self.kill_slurmd(node)
        killed: set[int] = set()
        end = time.monotonic() + _KILLED_S
        # One that is killed may just have started another.
        while (found := self.processes(node)) and time.monotonic() < end:
            for process in found:
                killed.add(process.pid)
                with contextlib.suppress(psutil.Error):
                    process.kill()
        return len(killed)

    def processes(self, node: str | None = None) -> list[psutil.Process]:
        """Processes that run in the namespace of a node, or of any, without its slurmd."""
        slurmds = {process.pid for process in self._slurmds.values()}
        return self._network.processes([node] if node else (), but=slurmds)

    def owns(self, process: psutil.Process) -> bool:
        """Return True if a process uses this cluster."""
        return bool(process.environ().get("SLURM_CONF") == self.env["SLURM_CONF"])

    def replace(self, node: str) -> None:
        """Bring a node back that was killed, and wait until all are free."""
        self.bring_back(node)
        self.until_idle()

    def bring_back(self, node: str) -> None:
        """Start a node that was killed, whose jobs have ended with it."""
        self.start_node(node)
        # Else Slurm waits minutes for their end.
        for state in ("DOWN", "RESUME"):
            self.run("scontrol", "update", f"NodeName={node}", f"State={state}", "Reason=killed")

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

    def salloc(self, *, n_nodes: int | None = None) -> list[str]:
        """Beginning of a command line that runs here, in an allocation of all nodes, or of some."""
        n_nodes = n_nodes or len(self.nodes)
        size = (f"--nodes={n_nodes}", f"--cpus-per-task={CPUS}", f"--ntasks={n_nodes}")
        gpus = f"--gres=gpu:{GPUS}"
        return ["salloc", "--quiet", "--no-kill", "--time=10", *size, gpus]

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

    def _write_settings(self) -> None:
        folder, host = self._folder, socket.gethostname()
        folder.chmod(0o755)
        for name in ("state", *(f"spool/{node}" for node in self.nodes)):
            (folder / name).mkdir(parents=True)
        nodes = [
            f"NodeName={node} NodeHostname={host} NodeAddr={self._network.address(node)} "
            f"Port={_NODE_PORT + number} CPUs={CPUS} RealMemory=2000 Gres=gpu:{GPUS} State=UNKNOWN"
            for number, node in enumerate(self.nodes, 1)
        ]
        settings = f"""
            ClusterName=rig
            SlurmctldHost={host}({self._network.host})
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
            SelectType=select/cons_tres
            SelectTypeParameters=CR_Core_Memory
            DefMemPerCPU=500
            SlurmdParameters=config_overrides
            GresTypes=gpu
            TaskProlog={folder}/prolog
            """
        # Writes to the stdout of each step, as those of some sites do.
        (folder / "prolog").write_text("#!/bin/sh\necho print welcome 8000 times\n")
        (folder / "prolog").chmod(0o755)
        for number in range(GPUS):
            # Slurm only looks at the numbers of the device.
            os.mknod(folder / f"gpu{number}", stat.S_IFCHR, NULL)
        gpus = f"NodeName={','.join(self.nodes)} Name=gpu File={folder}/gpu[0-{GPUS - 1}]\n"
        (folder / "gres.conf").write_text(gpus, encoding="utf-8")
        everywhere = f"Nodes={','.join(self.nodes)} State=UP MaxTime=INFINITE"
        partitions = [
            f"PartitionName=main Default=YES PriorityTier=10 PreemptMode=OFF {everywhere}",
            # Its jobs give way to those of the other.
            f"PartitionName=spare PriorityTier=1 GraceTime=5 {everywhere}",
        ]
        lines = [line.strip() for line in settings.strip().splitlines()]
        if self._scheduler:
            lines.append(f"SchedulerParameters={self._scheduler}")
        text = "\n".join([*lines, *nodes, *partitions, ""])
        (folder / "slurm.conf").write_text(text, encoding="utf-8")


def lacks_slurm() -> bool:
    """Return True if a rig can't be made here."""
    return lacks_network() or any(shutil.which(name) is None for name in PROGRAMS)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


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
