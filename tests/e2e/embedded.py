"""A run on the embedded server, and the same server asked by hand."""

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from orchestrator.errors import EXIT_COMPLETE
from tests.e2e.runs import ROOT, frames, run

Row = dict[str, Any]


@contextlib.contextmanager
def embedded_server(names: Sequence[str]) -> Iterator[str]:
    """The base URL of a server of bundled models, which outlives the runs on it."""
    models = [part for name in names for part in ("--model", f"{name}=bundled:{name}")]
    process = subprocess.Popen(
        [sys.executable, "-m", "launch.embedded.server", *models, "--port", "0"],
        cwd=ROOT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        line = ""
        while not line.startswith("ready "):
            line = process.stderr.readline()
            assert line or process.poll() is None, "the server ended"
        yield line.split()[1]
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()


def run_methods(
    url: str, names: Sequence[str], methods: Sequence[object], folder: Path
) -> dict[str, pl.DataFrame]:
    """The frames of a run of methods over four items."""
    recipe = {
        "name": "made",
        "models": {name: {"base_url": url, "backend": "embedded", "model": name} for name in names},
        "dataset": {"kind": "demo", "n": 4},
        "methods": list(methods),
    }
    (folder / "r.json").write_text(json.dumps(recipe), encoding="utf-8")
    result = run(folder / "r.json", folder / "run")
    assert result.returncode == EXIT_COMPLETE, result.stderr
    return frames(folder / "run")


def answers_of(found: dict[str, pl.DataFrame]) -> Callable[[Row, str], Row]:
    """Finds the answer of a model to the item of a row."""
    rows = found["answers"].iter_rows(named=True)
    texts = {(row["item"], row["model"]): row for row in rows}
    return lambda row, model: texts[row["item"], model]


def ask(url: str, path: str, **body: Any) -> Any:
    """Return the server's own reply."""
    request = urllib.request.Request(  # noqa: S310 (loopback)
        f"{url}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
        return json.load(reply)
