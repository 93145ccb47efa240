"""Runs on the rig's Slurm, and what is left of them there."""

import contextlib
import subprocess
import time
from pathlib import Path

import psutil

from tests.cluster.rig import CPUS, Rig
from tests.cluster.runs import LONG_S, Run
from tests.cluster.users import User


class Cluster(Run):
    """A run on the rig: in an allocation of all nodes unless told otherwise.

    Args:
        rig: The cluster.
        folder: Of the recipe and the run.
        is_inside: Run the command in an allocation.
        n_nodes: Nodes of the allocation; None for all.
        user: Of the command; None for this one.
        settings: Of the recipe's `cluster`.
    """

    def __init__(
        self,
        rig: Rig,
        folder: Path,
        *,
        is_inside: bool = True,
        n_nodes: int | None = None,
        user: User | None = None,
        **settings: object,
    ) -> None:
        self.rig = rig
        super().__init__(
            folder,
            "slurm",
            env=rig.env if user is None else user.environment(rig.env),
            user=user,
            left=lambda: [*ours(rig.processes()), *self.steps(), *self.jobs()],
            before=rig.salloc(n_nodes=n_nodes) if is_inside else (),
            changes={"cluster": {"models": {"judge": {"cpus": 2}}, **settings}, "probe": False},
        )

    def steps(self) -> list[psutil.Process]:
        """Processes of srun that a client in this rig runs."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.name() == "srun" and self.rig.owns(process):
                    found.append(process)
        return found

    def jobs(self) -> list[str]:
        """Jobs that wait or run."""
        return self.rig.run("squeue", "--noheader", "--states=PENDING,RUNNING").splitlines()


def ours(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those among processes of the nodes that are not Slurm's daemons of steps."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.name() != "slurmstepd" and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def client_of(process: subprocess.Popen[str]) -> psutil.Process:
    """The client that salloc has started."""
    children = psutil.Process(process.pid).children()
    (client,) = [one for one in children if "orchestrator" in one.cmdline()]
    return client


def end_server(rig: Rig, node: str, *, also: str = "") -> None:
    """Kill the processes of steps on a node, but for the daemons of the steps unless told."""
    for one in rig.processes(node):
        with contextlib.suppress(psutil.Error):
            if one.name() != "slurmstepd" or also:
                one.kill()


def hold(rig: Rig, n_nodes: int) -> str:
    """Take whole nodes for a job that nothing preempts; its number."""
    words = ("--parsable", f"--nodes={n_nodes}", f"--cpus-per-task={CPUS}", "--exclusive")
    job = rig.run("sbatch", *words, "--output=/dev/null", "--wrap=sleep 600").strip()
    end = time.monotonic() + LONG_S
    while rig.run("squeue", "--noheader", f"--jobs={job}", "--format=%T").strip() != "RUNNING":
        assert time.monotonic() < end
        time.sleep(0.1)
    return job


def said(cluster: Cluster) -> str:
    """Return what the jobs of a run have written, the oldest first."""
    logs = sorted(cluster.run_dir.glob("slurm-*.log"), key=lambda file: file.stat().st_mtime)
    return "".join(file.read_text() for file in logs)
