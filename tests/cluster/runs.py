"""A run on a cluster: what its servers were asked, and what is left of it."""

import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import psutil
from polars.testing import assert_frame_equal

from orchestrator.errors import EXIT_COMPLETE
from tests.cluster.users import User
from tests.e2e.runs import ROOT, command, frames, recorded_requests
from tests.growing import lines_of

KIND = "tests.cluster.logged"
# Of the last process of a server whose client or node has gone.
GONE_S = 60.0
LONG_S = 120.0


class Run:
    """A recipe, its runs on a cluster, and what its servers were asked.

    Args:
        folder: Of the recipe, the run and the log of requests.
        on: Kind of cluster.
        env: Environment of the command.
        left: Finds processes that a run has left behind.
        before: Beginning of the command line.
        user: Of the command; None for this one.
        changes: Of the recipe.

    Attributes:
        server: Settings of the server that does not judge.
    """

    N_ITEMS = 30
    START_TIMEOUT_S = 29.0

    def __init__(
        self,
        folder: Path,
        on: str,
        *,
        env: Mapping[str, str],
        left: Callable[[], Sequence[object]],
        before: Sequence[str] = (),
        user: User | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        self._on = on
        self._env = env
        self._left = left
        self._before = before
        self._own: dict[str, Any] = {} if user is None else user.own()
        self.run_dir = folder / "run"
        self.requests = folder / "requests.log"
        self.server = {"kind": KIND, "rules": _rules(0.2), "requests": str(self.requests)}
        self._processes: list[subprocess.Popen[str]] = []
        self.recipe = folder / "r.json"
        self._changes = changes or {}
        self.write()
        self.recorded: dict[str, int] = {}

    def write(
        self,
        judge: Mapping[str, Any] | None = None,
        strong: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> None:
        """Write the recipe.

        Args:
            judge: More settings of the model that judges.
            strong: More settings of one of the others.
            changes: Other parts of the recipe.
        """
        # Settings that differ make a server of its own.
        of_judge = {**self.server, "start_timeout_s": self.START_TIMEOUT_S}
        made = {
            "name": "made",
            "models": {
                "weak": {"server": self.server, "weights": "fake:0.3"},
                "strong": {"server": self.server, "weights": "fake:0.9", **(strong or {})},
                "judge": {"server": of_judge, "weights": "judge:1.0", **(judge or {})},
            },
            "cluster": {"models": {"judge": {"cpus": 2}}},
            "dataset": {"kind": "demo", "n": self.N_ITEMS},
            "methods": [{"kind": "pairwise_ranking", "judges": ["judge"]}],
            "statistics": {"n_resamples": 1000},
            "limits": {"max_in_flight": 2},
            **self._changes,
            **changes,
        }
        self.recipe.write_text(json.dumps(made))

    def judge_in(self, latency_s: float, **judge: Any) -> None:
        """Write the recipe with a judge that takes this long for an answer, and other settings."""
        self.write(judge={"server": {**self.server, "rules": _rules(latency_s)}, **judge})

    def words(self, *more: str) -> list[str]:
        """The command."""
        return command(self.recipe, self.run_dir, *self._options(), *more)

    def plan(self, *more: str) -> list[str]:
        """The command that plans the run."""
        words = ["plan", str(self.recipe), "--run-dir", str(self.run_dir)]
        return [sys.executable, "-m", "orchestrator", *words, *self._options(), *more]

    def _options(self) -> list[str]:
        return ["--on", self._on, "--allow-code"]

    def start(self, *more: str) -> subprocess.Popen[str]:
        """The command, on the cluster."""
        return self.begin(self.words(*more))

    def begin(self, words: Sequence[str]) -> subprocess.Popen[str]:
        """Begin some command, on the cluster."""
        process = subprocess.Popen(
            [*self._before, *words], cwd=ROOT, env=self._env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **self._own,
        )  # fmt: skip
        self._processes.append(process)
        return process

    def begun(self) -> subprocess.Popen[str]:
        """The command, once it judges; what is recorded by then is remembered."""
        process = self.start()
        self.until_judging(process)
        self.look()
        return process

    def ended(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command on the cluster, after its end."""
        return subprocess.run(
            [*self._before, *words], cwd=ROOT, env=self._env, text=True, capture_output=True,
            check=False,
        )  # fmt: skip

    def said(self, *words: str) -> str:
        """Output of a command on the cluster, which must succeed."""
        ended = self.ended(*words)
        assert ended.returncode == EXIT_COMPLETE, ended.stdout + ended.stderr
        return ended.stdout

    def end(self) -> None:
        """End what a test that failed has left running."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def here(self) -> dict[str, pl.DataFrame]:
        """Run it on this machine; the frames."""
        ended = subprocess.run(
            command(self.recipe, self.run_dir, "--allow-code"), cwd=ROOT, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        assert ended.returncode == EXIT_COMPLETE, ended.stderr
        return frames(self.run_dir)

    def asked(self) -> Counter[str]:
        """Count each request, over all servers."""
        return Counter(line.partition("\t")[0] for line in lines_of(self.requests))

    def judged(self) -> int:
        """Judgments so far."""
        return self.answered("judge")

    def answered(self, model: str) -> int:
        """Answers of a model so far."""
        with contextlib.suppress(OSError, ValueError):
            values = json.loads((self.run_dir / "status.json").read_text())["values"]
            return sum(one["done"] for one in values["models"] if one["name"] == model)
        return 0

    def until_judging(self, process: subprocess.Popen[str] | None, n: int = 8) -> None:
        """Wait until some judgments are there, long before all are."""
        self.until(lambda: self.judged() >= n, process)

    def until(self, is_so: Callable[[], bool], process: subprocess.Popen[str] | None) -> None:
        """Wait for something, and see that the command runs, if this process started it."""
        end = time.monotonic() + LONG_S
        while not is_so():
            assert process is None or process.poll() is None, process.communicate()
            assert time.monotonic() < end, self.log()
            time.sleep(0.1)

    def until_said(self, process: subprocess.Popen[str], words: str, n: int = 1) -> None:
        """Wait until the run's log has said something so many times."""
        self.until(lambda: self.times(words) >= n, process)

    def times(self, words: str) -> int:
        """The number of times that the run's log has said something."""
        return sum(words in line for line in self.log())

    def ready(self, server: str) -> int:
        """The number of times that a server was ready."""
        return sum(line == f"server {server} is ready" for line in self.log())

    def log(self) -> list[str]:
        """Messages of the run's log."""
        return [json.loads(line)["message"] for line in lines_of(self.run_dir / "log.jsonl")]

    def node(self, model: str) -> str:
        """Node on which the server of a model was started last."""
        placed = [line for line in self.log() if f"{model} is placed on" in line]
        return placed[-1].partition(" is placed on ")[2].split()[0]

    def node_of(self, model: str) -> str:
        """The same node by the name that the rig has for it."""
        return self.node(model)

    def look(self) -> None:
        """Remember what is recorded, and how often it was asked, after a client has ended."""
        found = recorded_requests(self.recipe, self.run_dir, allow_code=True)
        asked = self.asked()
        self.recorded |= {request: asked[request] for request in found}

    def until_gone(self) -> None:
        """See that no process of the run is left on any node, nor here."""
        end = time.monotonic() + GONE_S
        while left := self._left():
            assert time.monotonic() < end, left
            time.sleep(0.1)

    def check(self, expected: Mapping[str, pl.DataFrame]) -> None:
        """The run is whole, and nothing was paid for twice."""
        found = frames(self.run_dir)
        assert found.keys() == expected.keys()
        for name, frame in expected.items():
            assert_frame_equal(found[name], frame, check_exact=True)
        asked = self.asked()
        assert self.recorded == {request: asked[request] for request in self.recorded}
        self.until_gone()


def _rules(latency_s: float) -> list[dict[str, object]]:
    return [{"model": "judge", "latency_s": latency_s}, {"latency_s": 0.02}]


def complete(process: subprocess.Popen[str]) -> None:
    """See that a command ends with a whole run."""
    output, errors = process.communicate(timeout=LONG_S)
    assert process.returncode == EXIT_COMPLETE, output + errors


def keys_of(servers: Iterable[psutil.Process]) -> set[str]:
    """Keys of servers, from the environments of their processes."""
    found = set()
    for process in servers:
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
