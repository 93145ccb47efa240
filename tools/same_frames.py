"""Compare the frames of every bundled recipe between two versions of this project.

`python tools/same_frames.py REVISION [--limit N] [--only NAME …] [--keep FOLDER]`

Each recipe that runs on the bundled models alone is run with the code of REVISION. Its rows are
then deleted, so that this version makes them anew from the stored outcomes, and must send no
request. Frames are compared byte by byte, the report as JSON cell by cell. Exit code 1 on any
difference.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]


def main() -> int:
    """Compare, and print a line a recipe."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("revision", help="the version before")
    parser.add_argument("--limit", type=int, default=12, help="items of each recipe")
    parser.add_argument("--only", nargs="+", default=[], help="names of recipes")
    parser.add_argument("--keep", type=Path, help="where runs of REVISION are kept and looked for")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        kept = options.keep or Path(scratch)
        before = Path(scratch) / "before"
        _check_out(options.revision, before)
        faults = 0
        for recipe in sorted((before / "recipes").glob("*.yaml")):
            if not _is_bundled(recipe) or (options.only and recipe.stem not in options.only):
                continue
            found = _compare(recipe, before, kept, Path(scratch) / recipe.stem, options.limit)
            faults += bool(found)
            print(f"{recipe.stem}: {'; '.join(found) or 'equal'}", flush=True)
    return int(faults > 0)


def _check_out(revision: str, folder: Path) -> None:
    git = shutil.which("git") or "git"
    done = subprocess.run([git, "-C", ROOT, "archive", revision], check=False, capture_output=True)
    if done.returncode:
        raise SystemExit(done.stderr.decode())
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")


def _is_bundled(recipe: Path) -> bool:
    models = yaml.safe_load(recipe.read_text(encoding="utf-8"))["models"].values()
    return all(
        str(model.get("weights", "")).startswith("bundled:") and model.get("server") == "embedded"
        for model in models
    )


def _compare(recipe: Path, before: Path, kept: Path, run_dir: Path, limit: int) -> list[str]:
    """Return what differs."""
    first = kept / f"{recipe.stem}-{limit}"
    if not first.exists():
        _run(before, recipe, first, limit)
        (first / "report.json").write_text(_report(before, first), encoding="utf-8")
    shutil.copytree(first, run_dir)
    _delete_rows(run_dir)
    _run(ROOT, ROOT / "recipes" / recipe.name, run_dir, limit)
    status = json.loads((run_dir / "status.json").read_text(encoding="utf-8"))
    n_sent = status["values"]["requests_sent"]
    found = [f"{n_sent} requests sent"] if n_sent else []
    names = {path.name for folder in (first, run_dir) for path in folder.glob("results/*.parquet")}
    for name in sorted(names):
        one, two = first / "results" / name, run_dir / "results" / name
        if not (one.exists() and two.exists()):
            found.append(f"{name} is only in one of them")
        elif one.read_bytes() != two.read_bytes():
            found.append(f"{name} differs")
    reports = (first / "report.json").read_text(encoding="utf-8"), _report(ROOT, run_dir)
    old, new = map(results, reports)
    return found + differing("report", old, new)[:5]


def results(report: str) -> list[Any]:
    """Return the rankings and tables of a report as JSON, of any version.

    The run in brief is left out: it repeats their numbers, and says what each call cost.
    """
    document = json.loads(report)
    if isinstance(document, dict):
        return [*document["rankings"], *document["tables"]]
    # Before format 3 they were a list, and each told whether the run was complete.
    return [
        {name: value for name, value in one.items() if name != "complete"}
        for one in document
        if "brief" not in one
    ]


def _run(code: Path, recipe: Path, run_dir: Path, limit: int) -> None:
    _call(code, "run", recipe, "--run-dir", run_dir, "--limit", limit, "--display", "none")


def _report(code: Path, run_dir: Path) -> str:
    return _call(code, "report", run_dir, "--format", "json")


def _call(code: Path, *arguments: object) -> str:
    # `-P` keeps the working directory off the path, where the other version's packages may lie.
    done = subprocess.run(
        [sys.executable, "-P", "-m", "orchestrator", *map(str, arguments)],
        cwd=code, env=os.environ | {"PYTHONPATH": str(code)}, text=True, capture_output=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{code}: {' '.join(map(str, arguments))}\n{done.stderr[-3000:]}")
    return done.stdout


def _delete_rows(run_dir: Path) -> None:
    """Take away what the methods made, and keep what the servers said."""
    connection = sqlite3.connect(run_dir / "store.sqlite")
    with connection:
        connection.execute("DELETE FROM place")
        connection.execute("DELETE FROM unit")
    connection.close()
    shutil.rmtree(run_dir / "results")


def differing(where: str, old: Any, new: Any) -> list[str]:  # noqa: ANN401 (JSON)
    """Return where two JSON values differ; words may differ, numbers and keys may not."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [key for key in old | new if not (key in old and key in new)]
        found = [f"{where}.{key} is only in one of them" for key in keys]
        both = [(f"{where}.{key}", old[key], new[key]) for key in old if key in new]
        return found + [one for pair in both for one in differing(*pair)]
    if isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            return [f"{where} has {len(old)} entries, then {len(new)}"]
        pairs = [(f"{where}[{i}]", *pair) for i, pair in enumerate(zip(old, new, strict=True))]
        return [one for pair in pairs for one in differing(*pair)]
    if isinstance(old, str) and isinstance(new, str):
        return []
    same = old == new or (old != old and new != new)
    return [] if same else [f"{where}: {old!r}, then {new!r}"]


if __name__ == "__main__":
    sys.exit(main())
