"""What one judgment costs the client: `orchestrator run` of the pairwise recipe, store included.

Runs the command against a fixed-reply server with two numbers of judgments and prints the slope
of its CPU time (user and system, all threads and children, from wait4), so that start-up does not
count. Prompts differ and hold at least 3 KB. The records are looked for in the store afterwards.

    python benchmarks/client_overhead.py [--sizes 20000 100000] [--repeat 3] [--write FILE]
"""

import argparse
import json
import os
import platform
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CANDIDATES = ("m1", "m2", "m3", "m4", "m5")
JUDGMENTS_PER_ITEM = len(CANDIDATES) * (len(CANDIDATES) - 1)


def _start_server() -> tuple[subprocess.Popen[str], str]:
    server = subprocess.Popen(
        [sys.executable, str(ROOT / "benchmarks" / "fixed_server.py")],
        stderr=subprocess.PIPE,
        text=True,
    )
    line = server.stderr.readline() if server.stderr else ""
    return server, line.split()[1]


def _write_items(path: Path, n_items: int) -> None:
    rng = random.Random(1)  # noqa: S311 (made-up text)
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
    with path.open("w", encoding="utf-8") as file:
        for index in range(n_items):
            text = f"{index} " + " ".join(rng.choices(words, k=560))
            file.write(json.dumps({"id": str(index), "prompt": text}) + "\n")


def _write_recipe(path: Path, url: str) -> None:
    models = {
        name: {"base_url": url, "backend": "embedded", "model": name}
        for name in (*CANDIDATES, "judge")
    }
    recipe = {
        "name": "overhead",
        "models": models,
        "dataset": {"path": "items.jsonl"},
        "methods": [{"kind": "pairwise_ranking", "judges": ["judge"], "answer": {"max_tokens": 8}}],
        "limits": {"max_in_flight": 64},
        "statistics": {"n_resamples": 100},
    }
    path.write_text(json.dumps(recipe), encoding="utf-8")


def _measure(folder: Path, n_judgments: int) -> dict[str, float]:
    n_items = n_judgments // JUDGMENTS_PER_ITEM
    _write_items(folder / "items.jsonl", n_items)
    run_dir = folder / "run"
    command = [sys.executable, "-m", "orchestrator", "run", str(folder / "recipe.json"),
               "--run-dir", str(run_dir), "--display", "none"]  # fmt: skip
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - started
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"orchestrator run ended with {os.waitstatus_to_exitcode(status)}")
    connection = sqlite3.connect(run_dir / "store.sqlite")
    ((records,),) = connection.execute("SELECT count(*) FROM outcome").fetchall()
    connection.close()
    expected = n_items * (len(CANDIDATES) + JUDGMENTS_PER_ITEM)
    if records != expected:
        raise SystemExit(f"{records} records in the store, expected {expected}")
    size = sum(file.stat().st_size for file in run_dir.glob("store.sqlite*"))
    return {
        "judgments": n_items * JUDGMENTS_PER_ITEM,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "wall_s": wall,
        "rss_mb": usage.ru_maxrss / 1024,
        "records": records,
        "bytes_per_record": size / records,
    }


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs=2, default=[20_000, 100_000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    server, url = _start_server()
    slopes, lines = [], []
    try:
        for _ in range(options.repeat):
            rows = []
            for size in options.sizes:
                with tempfile.TemporaryDirectory() as name:
                    folder = Path(name)
                    _write_recipe(folder / "recipe.json", url)
                    rows.append(_measure(folder, size))
            small, large = rows
            extra = large["judgments"] - small["judgments"]
            slopes.append(1000 * (large["cpu_s"] - small["cpu_s"]) / extra)
            lines += [
                f"| {row['judgments']:,.0f} | {row['cpu_s']:.1f} | {row['wall_s']:.1f} "
                f"| {row['rss_mb']:.0f} | {row['records']:,.0f} | {row['bytes_per_record']:.0f} |"
                for row in rows
            ]
        counts = json.load(urllib.request.urlopen(f"{url}/counts"))  # noqa: S310 (loopback)
    finally:
        server.terminate()
        server.wait()
    text = "\n".join(
        [
            f"Client CPU per judgment: **{statistics.median(slopes):.3f} ms** (median of "
            f"{len(slopes)} slopes, {min(slopes):.3f}-{max(slopes):.3f}; its share of the answers, "
            f"{1 / (len(CANDIDATES) - 1):.2f} requests, included)",
            "",
            "| judgments | CPU s | wall s | peak RSS MB | records in the store | bytes a record |",
            "| --: | --: | --: | --: | --: | --: |",
            *lines,
            "",
            f"Requests the server counted: {sum(counts.values()):,}. {platform.processor() or ''}"
            f"{os.cpu_count()} cores, Python {platform.python_version()}. "
            f"Command: `python benchmarks/client_overhead.py --sizes {options.sizes[0]} "
            f"{options.sizes[1]} --repeat {options.repeat}`",
        ]
    )
    print(text)
    if options.write:
        options.write.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
