"""Runs of a million rows, mostly of methods that are no pairwise ranking, for what reads them.

A run of some thousand rows is made, with replies invented in the process (`_invented.py`), and its
frames are repeated: a run of a million would take minutes of processor time, and four million
requests where each row rests on four. Items of the copies have other keys, and numbers differ by
less than one in ten thousand. The store stays that of the small run.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from benchmarks import _runs
from orchestrator.disk import files
from orchestrator.runner.results.frames import read_mark, write_mark

# Their settings beside the kind, of those that the invented back-end can answer.
_SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "probdiff": {},
    "glass_box": {"features": ["vocabulary", "attention"]},
    "confidence": {"samples": {"n": 3, "meaning": "text"}},
    "samples": {},
    "consistency": {"similarity": {"kind": "rouge_l"}},
    "peer_elo": {"similarity": {"kind": "rouge_l"}},
}
_JUDGING: Final[dict[str, dict[str, Any]]] = {
    "pointwise": {},
    "pairwise_scoring": {},
    "rubric": {"criteria": [{"name": "help", "weight": 2}, {"name": "harm"}]},
}
METHODS: Final = (*_SETTINGS, *_JUDGING)
# Of this one `commands.py` makes a whole run; the viewer needs many items of it.
_JUDGING["pairwise_ranking"] = {}
_N_ITEMS: Final = 1_000
_ROWS_OF_A_GROUP: Final = 10_000
_ITEM: Final = "item"


def make(folder: Path, method: str, n_rows: int) -> Path:
    """Make a run of a method in a folder with at least so many rows; return its directory."""
    run = folder / "run"
    if not run.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        recipe = _recipe(folder, method)
        command = [sys.executable, "-m", "orchestrator", "run", str(recipe), "--run-dir", str(run),
                   "--display", "none", "--allow-code"]  # fmt: skip
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        subprocess.run(command, check=True, cwd=_runs.ROOT, env=environment, capture_output=True)
        # In a process of its own: the memory of this one would count as that of each command.
        grow = [sys.executable, __file__, str(run / "results"), str(n_rows)]
        subprocess.run(grow, check=True, cwd=_runs.ROOT)
    return run


def _recipe(folder: Path, method: str) -> Path:
    with (folder / "items.jsonl").open("w", encoding="utf-8") as file:
        for index in range(_N_ITEMS):
            answers = {name: f"{name} gives answer {index}" for name in _runs.CANDIDATES}
            item = {"id": str(index), "prompt": f"Question {index}?", "category": str(index % 8)}
            file.write(json.dumps(item | answers) + "\n")
    backend = Path(__file__).with_name("_invented.py")
    asked: dict[str, Any] = {"base_url": "http://127.0.0.1:9", "backend": str(backend)}
    recipe: dict[str, Any] = {
        "name": "large",
        "dataset": {"path": "items.jsonl"},
        "probe": False,
        "models": dict.fromkeys(_runs.CANDIDATES, asked),
        "methods": [{"kind": method, **(_SETTINGS | _JUDGING)[method]}],
    }
    if method in _JUDGING:
        recipe["models"] = {name: {"answers": {"field": name}} for name in _runs.CANDIDATES}
        recipe["models"]["judge"] = asked
        recipe["methods"][0]["judges"] = ["judge"]
    path = folder / "recipe.json"
    path.write_text(json.dumps(recipe), encoding="utf-8")
    return path


def _grow(results: Path, n_rows: int) -> None:
    """Repeat the frames in the folder of results of a complete run until the longest has n_rows."""
    marked = {
        path: _files_of(path, results) for path in (results / ".exported", results / ".items")
    }
    frames = {path: pl.read_parquet(path) for path in sorted(results.glob("*.parquet"))}
    n_copies = -(-n_rows // max(map(len, frames.values())))
    for path, frame in frames.items():
        copies = pl.concat(_copy(frame, number) for number in range(n_copies))
        copies.write_parquet(path, row_group_size=_ROWS_OF_A_GROUP)
    for path, (mark, of) in marked.items():
        write_mark(path, mark, of)


def _files_of(path: Path, results: Path) -> tuple[str, list[Path]]:
    """The text of a mark, and the files that it is about, in its order."""
    mark, *sums = (read_mark(path) or "").split(" ")
    by_sum = {files.checksum(one): one for one in results.glob("*.parquet")}
    return mark, [by_sum[one] for one in sums]


def _copy(frame: pl.DataFrame, number: int) -> pl.DataFrame:
    shrunk = 1.0 - 1e-4 * np.random.default_rng(number).random(len(frame))
    return frame.with_columns(
        pl.col(_ITEM) + f"-{number}",
        pl.selectors.float() * pl.Series(shrunk),
    )


if __name__ == "__main__":
    _grow(Path(sys.argv[1]), int(sys.argv[2]))
