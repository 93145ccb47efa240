"""Measure the seconds that a run loses when its client hands itself on to another Slurm job.

    python -m benchmarks.scale.hand_over [--items N] [--repeat N] [--write]

`orchestrator run --on slurm --submit` on a Slurm of three nodes on this machine: the client is a
job, its servers are steps of it, and Slurm's warning before the time limit is sent by hand in the
middle. The time lost is that between the last request of one client and the first of its successor,
as the servers write them down. It includes the end of what was in flight, the start of the client
and that of its servers, which load no model here. Slurm schedules with its own defaults, and nodes
have no Epilog. Compiled modules are kept, as they are for users. Takes root and Slurm
(`make cluster-test` installs it).
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import _page
from tests.cluster.rig import Rig, lacks_slurm
from tests.cluster.slurm_runs import Cluster
from tests.e2e.runs import ROOT
from tests.growing import lines_of

MOST_S = 2.0
_SECTION = "scale-hand-over"
_LONG_S = 300.0
_LINE = re.compile(r"^(\S+) job \d+: (begins|ends with exit code \d+)", re.MULTILINE)
_EXPECTED = ["begins", "ends with exit code 130", "begins", "ends with exit code 0"]


class Measured(NamedTuple):
    """One hand-over.

    Attributes:
        lost_s: From the last request of the first client to the first of the second.
        end_s: From the warning to the end of the first job.
        gap_s: From there to the start of the second.
        client_s: From there until the client could send.
        servers_s: From there to the first request, for which a server had to start.
        n_again: Requests that were asked more than once.
    """

    lost_s: float
    end_s: float
    gap_s: float
    client_s: float
    servers_s: float
    n_again: int


def measure(rig: Rig, folder: Path, n_items: int) -> Measured:
    """Run a recipe whose client is handed on once.

    Raises:
        SystemExit: If it does not end as it should.
    """
    settings: dict[str, Any] = {"time": "20m", "drain": "5m", "options": {"exclusive": ""}}
    cluster = Cluster(rig, folder, is_inside=False, nodes=3, **settings)
    cluster.write(dataset={"kind": "demo", "n": n_items})
    subprocess.run(cluster.words("--submit"), cwd=ROOT, env=rig.env, check=True)
    cluster.until_judging(None)
    (job,) = cluster.jobs()
    warned_at = time.time()  # noqa: TID251 (the jobs write wall time)
    rig.run("scancel", "--batch", "--signal=USR1", job.split()[0])
    times = _request_times(cluster, warned_at + _LONG_S)
    logs = sorted(cluster.run_dir.glob("slurm-*.log"), key=lambda file: file.stat().st_mtime)
    said = "".join(file.read_text(encoding="utf-8") for file in logs)
    found = _LINE.findall(said)
    if [what for _, what in found] != _EXPECTED:
        raise SystemExit(f"the jobs did not hand on: {said}")
    ended_at, began_at = float(found[1][0]), float(found[2][0])
    last = max(at for at in times if at < ended_at)
    first = min(at for at in times if at > began_at)
    *_, sends_at = _sending_begins(cluster)
    return Measured(
        first - last,
        ended_at - warned_at,
        began_at - ended_at,
        sends_at - began_at,
        first - sends_at,
        sum(n > 1 for n in cluster.asked().values()),
    )


def _sending_begins(cluster: Cluster) -> list[float]:
    """Times at which clients had read the recipe and the store, by their log."""
    found = (json.loads(line) for line in lines_of(cluster.run_dir / "log.jsonl"))
    return [
        datetime.fromisoformat(one["at"]).timestamp()
        for one in found
        if one["message"] == "sending begins"
    ]


def _request_times(cluster: Cluster, until: float) -> list[float]:
    """Times at which the servers wrote requests down, until no job is left, to 0.01 s."""
    known, look_at = cluster.requests.stat(), 0.0
    times, size = [known.st_mtime], known.st_size
    while True:
        now = time.time()  # noqa: TID251 (as above)
        if (found := cluster.requests.stat().st_size) > size:
            times.append(now)
            size = found
        elif now > look_at:
            look_at = now + 1.0
            if not cluster.jobs():
                return times
        if now > until:
            raise SystemExit(f"the run did not end: {cluster.jobs()}")
        time.sleep(0.01)


def section(found: Sequence[Measured], n_items: int, command: str, machine: str) -> str:
    """The section of the page."""
    lost = statistics.median(one.lost_s for one in found)
    servers = statistics.median(one.servers_s for one in found)
    rows = [
        f"| {one.lost_s:.1f} | {one.end_s:.1f} | {one.gap_s:.1f} | "
        f"{one.client_s:.1f} | {one.servers_s:.1f} | {one.n_again} |"
        for one in found
    ]
    return "\n".join(
        [
            "## A hand-over on Slurm",
            "",
            f"`--submit`, {n_items} items, three fake servers that are steps of the client's job. "
            "Slurm has its default settings of scheduling, and the nodes have no Epilog. From the "
            "last request of a client to the first of its successor: "
            f"**{lost:.1f} s**, the median of {len(found)} (target {MOST_S:.0f}: "
            f"{'met' if lost <= MOST_S else '**missed**'}); **{lost - servers:.1f} s** without "
            "the start of the servers.",
            "",
            "| s lost | warning to end of job | to the start of the next | "
            "to the client's readiness | to the first request | asked twice |",
            "| --: | --: | --: | --: | --: | --: |",
            *rows,
            "",
            f"{machine}. Command: `{command}`",
        ]
    )


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    options = parser.parse_args()
    if lacks_slurm():
        raise SystemExit("a Slurm on this machine takes root and its programs: make cluster-test")
    machine, found = _page.machine(), []
    # The jobs have the environment of what submits them.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as name, Rig(Path(name), scheduler="") as rig:
        for number in range(options.repeat):
            folder = Path(name) / f"run{number}"
            folder.mkdir()
            found.append(measure(rig, folder, options.items))
            rig.until_idle()
    command = f"python -m benchmarks.scale.hand_over --items {options.items}"
    command += f" --repeat {options.repeat}"
    lost = statistics.median(one.lost_s for one in found)
    text = section(found, options.items, command, machine)
    figures = {"hand_over_s": lost, "hand_over_again": float(sum(one.n_again for one in found))}
    _page.publish(_SECTION, text, figures, write=options.write)


if __name__ == "__main__":
    main()
