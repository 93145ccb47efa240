"""Measure what shards cost: processor time of a run in 1, 2 and 4 parts, merge included.

    python -m benchmarks.shards [--requests N …] [--shards N …] [--repeat R] [--write]

`orchestrator run` of a recipe of judgments against a fixed-reply server that answers at once: by
one client; or by a client for each shard, one after the other, and the call that puts their runs
together and writes the frames. Each figure is of the resource usage of the processes, start-up
included.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import _page, _runs
from orchestrator.runner.servers.slurm_chain import HANDS_ON, OF_A_SHARD


def cpu_of(folder: Path, *options: str, **more: str) -> float:
    """Return the processor time of a call of `orchestrator run` on a folder's recipe, in seconds.

    `more` are variables of its environment.

    Raises:
        SystemExit: If it fails.
    """
    words = ["run", str(folder / "recipe.json"), "--run-dir", str(folder / "runs" / "made")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(
        [sys.executable, "-m", "orchestrator", *words, "--display=none", *options],
        # As users run it: compiled modules are kept.
        cwd=_runs.ROOT, env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""} | more,
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode:
        raise SystemExit(ended.stderr)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(n_requests: int, n: int) -> tuple[float, float]:
    """Run a recipe in N shards; return the CPU seconds of the shards, and of what follows them.

    Raises:
        SystemExit: If a request is sent twice, or not at all.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _runs.served(_runs.bodies(folder)["judge"]) as server:
            _runs.write_recipe(folder, "judge", n_requests, server.url)
            if n == 1:
                parts, last = cpu_of(folder), 0.0
            else:
                parts = sum(
                    cpu_of(
                        folder,
                        f"--shard={part}/{n}",
                        f"--run-dir={folder}/runs/made.shard-{part}-of-{n}",
                        # As in the jobs of an array.
                        **{HANDS_ON: OF_A_SHARD},
                    )
                    for part in range(1, n + 1)
                )
                last = cpu_of(folder, f"--shards={n}")
            if server.n_answered() != n_requests:
                raise SystemExit(f"{server.n_answered()} requests instead of {n_requests}")
    return parts, last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, nargs="+", default=[5_000, 20_000])
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    options = parser.parse_args()
    rows, said, figures = [], [], {}
    for n_requests in options.requests:
        alone = float("nan")
        for n in options.shards:
            found = [measure(n_requests, n) for _ in range(options.repeat)]
            parts, last = (statistics.median(one) for one in zip(*found, strict=True))
            alone = parts if n == 1 else alone
            rows.append(
                f"| {n_requests:,} | {n} | {parts:.1f} | {last:.1f} | {parts + last:.1f} | "
                f"{(parts + last) / alone:.2f} |"
            )
            sys.stderr.write(rows[-1] + "\n")
            figures[f"shards_{n}_of_{n_requests}"] = (parts + last) / alone
            said.append(f"{n_requests:,} in {n} {(parts + last) / alone:.2f}")
    sizes, numbers = (" ".join(map(str, one)) for one in (options.requests, options.shards))
    lines = [
        "## Shards",
        "",
        "Processor seconds of a run by one client, and of the same run in shards, one after the "
        "other, with the call that puts them together (`run --shards N`: merge, frames and "
        f"report); start-ups included, medians of {options.repeat}. Times one client, by requests "
        f"and shards: {', '.join(said)}.",
        "",
        "| requests | shards | of the shards, s | of the last call, s | together, s | times one |",
        "| --: | --: | --: | --: | --: | --: |",
        *rows,
        "",
        f"{_page.machine()}. Command: `python -m benchmarks.shards --requests {sizes} --shards "
        f"{numbers} --repeat {options.repeat}`",
    ]
    _page.publish("shards", "\n".join(lines), figures, write=options.write)


if __name__ == "__main__":
    main()
