"""Measure the commands that read a large run: time, processor time and memory of each.

    python benchmarks/commands.py [--sizes N …] [--methods KIND …] [--keep DIR] [--write]

A run of N judgments is made against a fixed-reply server and each command is run on it, in a
process of its own. `runs repair`, `runs gc` and `export` read the whole store and show their
progress; every other command should take at most 5 s and 400 MB with a million outcomes. Then the
commands that read results are run on N rows of each of the other methods (`_large.py`): `report`
with nothing kept of earlier calls, then each command as it is from the second call on.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import _large, _page, _runs

MOST_S, MOST_MB = 5.0, 400.0
_VIEW = "view"
_KEPT = (".numbers", ".rankings")


class Cost(NamedTuple):
    """Time and memory of one command.

    Attributes:
        name: Of the command.
        wall_s: From start to end; of the viewer, to its first page.
        cpu_s: User and system time.
        rss_mb: Most memory, MiB.
        bounded: Whether it is held to a target.
    """

    name: str
    wall_s: float
    cpu_s: float
    rss_mb: float
    bounded: bool


def costs(folder: Path) -> Iterator[Cost]:
    """Yield what each command takes on the run in a folder."""
    recipe, run = str(folder / "recipe.json"), str(folder / "run")
    commands: dict[str, tuple[Sequence[str], bool]] = {
        "status": (("status", run), True),
        "runs": (("runs", "list", str(folder)), True),
        "check": (("check", recipe), True),
        "plan": (("plan", recipe, "--run-dir", run), True),
        "run (complete)": (("run", recipe, "--run-dir", run, "--display", "none"), True),
        "report": (("report", run), True),
        "report --format json": (("report", run, "--format", "json"), True),
        "report --html": (("report", run, "--html", str(folder / "report.html")), True),
        _VIEW: ((_VIEW, run, "--port", "0"), True),
        "runs gc": (("runs", "gc", run), False),
        "export": (("export", run, "--to", str(folder / "exported")), False),
        "runs repair": (("runs", "repair", run), False),
    }
    for name, (arguments, bounded) in commands.items():
        cost = _cost(name, arguments, bounded=bounded)
        print(cost, file=sys.stderr)
        yield cost


def costs_of_method(folder: Path, method: str, size: int) -> Iterator[Cost]:
    """Yield what each command that reads results takes on so many rows of a method."""
    run = _large.make(folder, method, size)
    for name in _KEPT:
        (run / "results" / name).unlink(missing_ok=True)
    commands: dict[str, tuple[Sequence[str], bool]] = {
        "report, first call": (("report", str(run)), False),
        "report": (("report", str(run)), True),
        "report --html": (("report", str(run), "--html", str(folder / "report.html")), True),
        "compare": (("compare", str(run)), True),
        _VIEW: ((_VIEW, str(run), "--port", "0"), True),
    }
    for name, (arguments, bounded) in commands.items():
        cost = _cost(name, arguments, bounded=bounded)
        print(method, cost, file=sys.stderr)
        yield cost._replace(name=f"{method}: {name}")


def _cost(name: str, arguments: Sequence[str], *, bounded: bool) -> Cost:
    started = time.monotonic()
    command = [sys.executable, "-m", "orchestrator", *arguments]
    # As users run it: compiled modules are kept, and polars has not set its memory's variable here.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    environment.pop("_RJEM_MALLOC_CONF", None)
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=_runs.ROOT,
        env=environment,
        text=True,
    )
    wall = _first_page(process, started) if name == _VIEW else None
    said = "" if process.stdout is None else process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    ended = os.waitstatus_to_exitcode(status)
    if ended not in {0, 3, -15} and name != _VIEW:
        raise SystemExit(f"orchestrator {name} ended with {ended}: {said[-2000:]}")
    return Cost(
        name,
        time.monotonic() - started if wall is None else wall,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
        bounded,
    )


def _first_page(process: subprocess.Popen[str], started: float) -> float:
    """Seconds until the viewer has sent the run's page; it is ended then."""
    for line in process.stdout or ():
        if (at := line.find("http://")) >= 0:
            _fetch(line[at:].split()[0])
            break
    wall = time.monotonic() - started
    process.terminate()
    return wall


def _fetch(address: str) -> None:
    """Read a page; the viewer says its address just before it listens."""
    while True:
        try:
            with contextlib.closing(urllib.request.urlopen(address)) as reply:  # noqa: S310
                reply.read()
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:
            time.sleep(0.02)
        else:
            return


def main() -> None:
    """Make the runs, measure the commands, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000])
    methods = ("pairwise_ranking", *_large.METHODS)
    parser.add_argument("--methods", nargs="+", default=methods, choices=methods)
    parser.add_argument("--keep", type=Path, help="folder of runs, made where they are not there")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    options = parser.parse_args()
    lines: list[str] = []
    before = _page.machine()
    for size in options.sizes:
        with contextlib.ExitStack() as stack:
            root = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            if "pairwise_ranking" in options.methods:
                folder = _made(root / str(size), size)
                found = list(costs(folder))
                page = (folder / "report.html").stat().st_size / 2**20
                said = f"{size:,} outcomes; `report --html` writes {page:.1f} MB."
                lines += [said, "", *_table(found), ""]
            others = [
                cost
                for method in _large.METHODS
                if method in options.methods
                for cost in costs_of_method(root / f"{method}-{size}", method, size)
            ]
            if others:
                lines += [f"{size:,} rows of other methods:", "", *_table(others), ""]
    sizes = " ".join(str(size) for size in options.sizes)
    command = f"Command: `python benchmarks/commands.py --sizes {sizes}`"
    if options.methods != methods:
        command = f"{command[:-1]} --methods {' '.join(options.methods)}`"
    text = "\n".join(["## Commands on a large run", "", *lines, f"{before}. {command}"])
    print(text)
    if options.write:
        _page.write_section("commands", text)


def _made(folder: Path, size: int) -> Path:
    """The folder of a run with so many outcomes."""
    if not (folder / "run").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with _runs.served(_runs.bodies(folder)["judge"]) as server:
            _runs.write_recipe(folder, "judge", size, server.url)
            _runs.measure(folder, server)
    return folder


def _table(found: Sequence[Cost]) -> list[str]:
    head = ["| command | wall s | CPU s | peak MB | target |", "| :-- | --: | --: | --: | :-- |"]
    return head + [
        f"| `{cost.name}` | {cost.wall_s:.1f} | {cost.cpu_s:.1f} | {cost.rss_mb:.0f} | "
        f"{_verdict(cost)} |"
        for cost in found
    ]


def _verdict(cost: Cost) -> str:
    if not cost.bounded:
        return "first call" if "first call" in cost.name else "shows its progress"
    met = cost.wall_s <= MOST_S and cost.rss_mb <= MOST_MB
    return "met" if met else f"**missed** ({MOST_S:g} s, {MOST_MB:g} MB)"


if __name__ == "__main__":
    main()
