"""The command, and fake servers to run it against, in the process of a test.

They say what those of `tests/e2e/runs.py` say, which are processes, each a second to start.
"""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.runs import MODELS
from tests.matrix.served import kept_server
from tests.oracles.verdicts.runs import command


@contextlib.contextmanager
def fake_server(rules: object = None, models: tuple[str, ...] = MODELS) -> Iterator[str]:
    with kept_server(rules, models) as kept:
        yield kept.url


def run(recipe: Path, run_dir: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = ("run", str(recipe), "--run-dir", str(run_dir), "--display", "none", *more)
    code, out, err = command(*words)
    return subprocess.CompletedProcess(words, code, out, err)
