"""Measure commands that send nothing: `python benchmarks/start_up.py [--repeat 9] [--write]`.

`orchestrator --help` and `orchestrator check recipes/pairwise_ranking.yaml`, as the shell starts
them; compiled modules are kept, as they are for users.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks._page import ROOT, machine, publish

COMMANDS = {
    "help": (("--help",), 0.15),
    "check": (("check", "recipes/pairwise_ranking.yaml"), 0.4),
}
_PROGRAM = str(Path(sys.executable).with_name("orchestrator"))
_ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}


def once(arguments: tuple[str, ...]) -> tuple[float, float]:
    """Seconds of wall and of processor time of one call."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([_PROGRAM, *arguments], cwd=ROOT, env=_ENVIRONMENT, check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def report(repeat: int) -> tuple[str, dict[str, float]]:
    """The section of the page, and its figures."""
    where, said, rows, figures = machine(), [], [], {}
    for name, (arguments, target) in COMMANDS.items():
        # The first call compiles what was changed.
        once(arguments)
        walls, cpus = zip(*(once(arguments) for _ in range(repeat)), strict=True)
        middle = statistics.median(walls)
        figures[f"{name}_s"] = middle
        said.append(f"`orchestrator {arguments[0]}` {middle:.2f} (target {target:g})")
        rows.append(
            f"| `orchestrator {' '.join(arguments)}` | {middle:.2f} | "
            f"{min(walls):.2f} to {max(walls):.2f} | {statistics.median(cpus):.2f} | {target:g} |"
        )
    lines = [
        "## Start-up",
        "",
        f"Wall seconds, medians of {repeat} calls: {'; '.join(said)}.",
        "",
        "| command | wall s | spread | CPU s | target |",
        "| --- | --: | --: | --: | --: |",
        *rows,
        "",
        f"{where}. Command: `python benchmarks/start_up.py --repeat {repeat}`",
    ]
    return "\n".join(lines), figures


def main() -> None:
    """Measure, print, and write the page where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    options = parser.parse_args()
    text, figures = report(options.repeat)
    publish("start-up", text, figures, write=options.write)


if __name__ == "__main__":
    main()
