"""Runs on a real cluster: a recipe, its clients, and what is held against them."""

import contextlib
import json
import subprocess
import time
from collections import Counter
from pathlib import Path

import polars as pl
import psutil
from polars.testing import assert_frame_equal

from orchestrator.errors import EXIT_COMPLETE
from tests.cluster.rig import Rig
from tests.e2e.runs import ROOT, command, frames, recorded_requests

KIND = "tests.cluster.logged"
N_ITEMS = 30
# Of the last process of a server whose client or node has gone.
GONE_S = 20.0
LONG_S = 120.0


class Cluster:
    """A recipe, its runs on the rig, and what its servers were asked."""

    def __init__(self, rig: Rig, folder: Path, **settings: object) -> None:
        self.rig = rig
        self.run_dir = folder / "run"
        self.requests = folder / "requests.log"
        self.recipe = folder / "r.json"
        rules = [{"model": "judge", "latency_s": 0.2}, {"latency_s": 0.02}]
        server = {"kind": KIND, "rules": rules, "requests": str(self.requests)}
        # Settings that differ make a server of its own.
        judge = {**server, "start_timeout_s": 29.0}
        made = {
            "name": "made",
            "models": {
                "weak": {"server": server, "weights": "fake:0.3"},
                "strong": {"server": server, "weights": "fake:0.9"},
                "judge": {"server": judge, "weights": "judge:1.0"},
            },
            "cluster": {"models": {"judge": {"cpus": 2}}, **settings},
            "dataset": {"kind": "demo", "n": N_ITEMS},
            "methods": [{"kind": "pairwise_ranking", "judges": ["judge"]}],
            "statistics": {"n_resamples": 1000},
            "limits": {"max_in_flight": 2},
            "probe": False,
        }
        self.recipe.write_text(json.dumps(made))
        self.recorded: dict[str, int] = {}

    def words(self, *more: str) -> list[str]:
        """The command."""
        return command(self.recipe, self.run_dir, "--on", "slurm", "--allow-code", *more)

    def start(self, *more: str) -> subprocess.Popen[str]:
        """The command, in an allocation of all nodes."""
        return self._start(self.rig.salloc(*self.words(*more)))

    def start_outside(self, *more: str) -> subprocess.Popen[str]:
        """The command, in no allocation."""
        return self._start(self.words(*more))

    def _start(self, words: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            words, cwd=ROOT, env=self.rig.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def change(self, **changes: object) -> None:
        """Change the recipe's models."""
        made = json.loads(self.recipe.read_text())
        for name, change in changes.items():
            assert isinstance(change, dict)
            made["models"][name] |= change
        self.recipe.write_text(json.dumps(made))

    def asked(self) -> Counter[str]:
        """Count each request, over all servers."""
        lines = self.requests.read_text().splitlines() if self.requests.exists() else []
        return Counter(line.partition("\t")[0] for line in lines)

    def judged(self) -> int:
        """Judgments so far."""
        with contextlib.suppress(OSError, ValueError):
            values = json.loads((self.run_dir / "status.json").read_text())["values"]
            return sum(one["done"] for one in values["models"] if one["name"] == "judge")
        return 0

    def until_judging(self, process: subprocess.Popen[str] | None, n: int = 8) -> None:
        """Wait until some judgments are there, long before all are."""
        end = time.monotonic() + LONG_S
        while self.judged() < n:
            assert process is None or process.poll() is None, process.communicate()
            assert time.monotonic() < end, self.jobs()
            time.sleep(0.1)

    def log(self) -> list[str]:
        """Messages of the run's log."""
        lines = (self.run_dir / "log.jsonl").read_text().splitlines()
        return [json.loads(line)["message"] for line in lines]

    def node(self, model: str) -> str:
        """Node on which the server of a model was started last."""
        placed = [line for line in self.log() if f"{model} is placed on" in line]
        return placed[-1].partition(" is placed on ")[2].split()[0]

    def look(self) -> None:
        """Remember what is recorded, and how often it was asked, after a client has ended."""
        found = recorded_requests(self.recipe, self.run_dir, allow_code=True)
        asked = self.asked()
        self.recorded |= {request: asked[request] for request in found}

    def until_said(self, process: subprocess.Popen[str], words: str, n: int = 1) -> None:
        """Wait until the run's log has said something so many times."""
        end = time.monotonic() + LONG_S
        while sum(words in line for line in self.log()) < n:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end, self.log()
            time.sleep(0.1)

    def until_gone(self) -> None:
        """See that nothing is left on any node, no job in the queue, and no srun here."""
        end = time.monotonic() + GONE_S
        while left := [*ours(self.rig.processes()), *self.steps(), *self.jobs()]:
            assert time.monotonic() < end, left
            time.sleep(0.1)

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

    def check(self, expected) -> None:
        """The run is whole, and nothing was paid for twice."""
        found = frames(self.run_dir)
        assert found.keys() == expected.keys()
        for name, frame in expected.items():
            assert_frame_equal(found[name], frame, check_exact=True)
        asked = self.asked()
        assert self.recorded == {request: asked[request] for request in self.recorded}
        self.until_gone()


def ours(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those among processes of the nodes that are not Slurm's daemons of steps."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.name() != "slurmstepd" and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def complete(process: subprocess.Popen[str]) -> None:
    output, errors = process.communicate(timeout=LONG_S)
    assert process.returncode == EXIT_COMPLETE, output + errors


def complete_here(local: Cluster) -> dict[str, pl.DataFrame]:
    """Frames of a run on this machine."""
    words = command(local.recipe, local.run_dir, "--allow-code")
    ended = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True)
    assert ended.returncode == EXIT_COMPLETE, ended.stderr
    return frames(local.run_dir)


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


def secrets_on_nodes(rig: Rig) -> set[str]:
    """Keys of the servers, from the environments of their processes."""
    found = set()
    for process in rig.processes():
        with contextlib.suppress(psutil.Error):
            found.add(process.environ().get("ORCHESTRATOR_SERVER_KEY", ""))
    return found - {""}


def see_no_key(keys: set[str]) -> None:
    """See that no command line has a key, nor the environment of an srun."""
    assert keys
    for other in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            lines = " ".join(other.cmdline())
            if other.name() == "srun":
                lines += Path(f"/proc/{other.pid}/environ").read_bytes().decode(errors="replace")
            assert not [key for key in keys if key in lines], other
