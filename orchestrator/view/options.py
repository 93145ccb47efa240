"""`orchestrator view`: its options, and what it needs before it starts."""

import argparse
import importlib
import importlib.util
from pathlib import Path
from typing import Final

from orchestrator.errors import EXIT_COMPLETE, UsageError
from orchestrator.runner import api
from orchestrator.runner.report_commands import run_path

_NEEDED: Final = ("starlette", "uvicorn")


def view_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator view`."""
    command.add_argument(
        "runs",
        nargs="?",
        default=str(api.RUNS),
        metavar="RUNS",
        help="folder of runs, or one run; runs/ where left out",
    )
    command.add_argument(
        "--port", type=int, metavar="N", help="8765 where it is free, else any; 0 takes any"
    )
    command.add_argument("--open", action="store_true", help="open it in the browser")
    command.add_argument(
        "--allow-code", action="store_true", help="import kinds that are dotted module paths"
    )


def view(options: argparse.Namespace) -> int:
    """Serve the pages until Ctrl-C.

    Raises:
        UsageError: If the extra `[view]` is not installed, there are no runs, or the port is taken.
    """
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        raise UsageError("the viewer needs Starlette: pip install 'selfeval-orchestrator[view]'")
    path = run_path(options.runs)
    if not path.is_dir() and path != api.RUNS:
        raise UsageError(f"{path}: there is no such folder")
    # No other command needs what it imports.
    importlib.import_module("orchestrator.view.serve").serve(
        Path(path),
        port=options.port,
        open_browser=options.open,
        allow_code=options.allow_code,
    )
    return EXIT_COMPLETE
