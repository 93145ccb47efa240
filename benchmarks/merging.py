"""Measure `orchestrator runs merge`: time, memory and bytes for runs of many outcomes.

    python -m benchmarks.merging [--outcomes N …] [--runs R] [--folder DIR] [--write]

R runs share N outcomes of a judge and as many units by blocks of items, as clients of one plan
leave them. They are merged by the Python interface in a process of its own, checksums included.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import _page
from orchestrator.ask import digest
from orchestrator.backend import Provenance
from orchestrator.records import Choice
from orchestrator.runner.planning.revisions import REVISION, revision_text
from orchestrator.store import FRAMES, RunDirectory, Store

_BLOCK = 256
_TARGET_US = 20.0
# What the merge itself takes beside the imports, as it sees them.
_MERGE = """
import json, resource, sys, time
import orchestrator
from orchestrator.interface.api import merge
def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, wall, cpu = most(), time.perf_counter(), time.process_time()
found = merge(*sys.argv[2:], into=sys.argv[1])
print(json.dumps({
    "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu,
    "before": before, "rss": most(), "n": found.n_outcomes, "units": found.n_units,
}))
"""


def make_runs(folder: Path, n: int, n_runs: int, n_planned: int | None = None) -> list[Path]:
    """Runs that hold the first N judgments of a plan together, in turn by blocks."""
    n_planned = n_planned or n
    server = Provenance(backend="fake", base_url="http://127.0.0.1:1", model="m", version="1")
    text = revision_text({"identities": {"judge": {}}, "recipe": {"name": "made"}})
    columns = {"judgments": {"item": "str", "model": "str", "value": "f64"}}
    runs = [folder / f"run-{number}" for number in range(n_runs)]
    for number, run in enumerate(runs):
        with RunDirectory.lock(run) as directory, Store.open(directory.store_path) as store:
            directory.write_revision(text)
            for key, value in (
                (REVISION, text),
                (FRAMES, json.dumps(columns)),
                ("units", str(n_planned)),
            ):
                store.set_meta(key, value)
            plan = store.open_plan(b"p" * 16, n_planned)
            store.server_id("judge 0", server)
            for first in range(number * _BLOCK, n, n_runs * _BLOCK):
                record(store, plan, range(first, min(n, first + _BLOCK)), n_planned)
    return runs


def record(store: Store, plan: int, positions: range, n: int) -> None:
    """Record the judgments at these positions of a plan of N."""
    for position in positions:
        logprobs = (-1.0 - position / n, -2.0, -3.0)
        key = digest(position)
        store.put_outcome(
            key, "choose", "judge",
            Choice(logprobs, logprobs, "top_logprobs", 1063, 1024, 1),
            server=1, prompt_hash=key, attempts=1, latency_s=0.1,
        )  # fmt: skip
        row = [(f"item {position}", "m", logprobs[0])]
        store.put_unit(digest("unit", position), plan, position, 0, "judgments", row)
    store.flush()


def measure(folder: Path, n: int, n_runs: int) -> dict[str, Any]:
    """Merge such runs, and measure time and memory."""
    runs = make_runs(folder, n, n_runs)
    time.sleep(1)
    command = [sys.executable, "-c", _MERGE, str(folder / "all"), *map(str, runs)]
    said = subprocess.run(command, check=False, capture_output=True, text=True)
    if said.returncode:
        raise SystemExit(said.stderr)
    found: dict[str, Any] = json.loads(said.stdout)
    if (found["n"], found["units"]) != (n, n):
        raise SystemExit(f"the merged run has {found['n']:,} outcomes, {found['units']:,} units")
    found["bytes"] = (folder / "all" / "store.sqlite").stat().st_size
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outcomes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--folder", type=Path, help="whose disk is measured")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    options = parser.parse_args()
    rows, measured = [], []
    for n in options.outcomes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            found = measure(Path(folder), n, options.runs)
        measured.append(found)
        rows.append(
            f"| {n:,} | {found['wall']:.1f} | {found['wall'] / n * 1e6:.1f} | "
            f"{found['cpu'] / n * 1e6:.1f} | {found['before']:.0f} | {found['rss']:.0f} | "
            f"{found['bytes'] / 1e6:.0f} |"
        )
    sizes, last = " ".join(map(str, options.outcomes)), measured[-1]
    lines = [
        "## Merging runs",
        "",
        f"`orchestrator runs merge` of {options.runs} runs of one plan, each with every "
        f"{options.runs}th block of {_BLOCK} items: one judgment and one unit an item. Time "
        f"includes every checksum, the units, their order, and the frames. Of {last['n']:,} "
        f"outcomes one takes {last['cpu'] / last['n'] * 1e6:.1f} us of processor time (target "
        f"{_TARGET_US:.0f}) and {last['wall'] / last['n'] * 1e6:.0f} us in all; the peak is "
        f"{last['rss']:.0f} MB.",
        "",
        "| outcomes | s | us an outcome | CPU us | RSS before, MB | peak RSS, MB | store, MB |",
        "| --: | --: | --: | --: | --: | --: | --: |",
        *rows,
        "",
        f"{_page.machine()}. Command: `python -m benchmarks.merging --outcomes {sizes}`",
    ]
    figures = {"merge_cpu_us": last["cpu"] / last["n"] * 1e6}
    if len(measured) > 1:
        figures["merge_growth_mb"] = last["rss"] - measured[-2]["rss"]
    _page.publish("merging", "\n".join(lines), figures, write=options.write)


if __name__ == "__main__":
    main()
