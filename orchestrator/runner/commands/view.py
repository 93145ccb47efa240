"""`orchestrator view`: its options, and what it needs before it starts."""

import argparse
import importlib
from pathlib import Path
from typing import Final

from orchestrator.errors import EXIT_COMPLETE, UsageError
from orchestrator.extras import need
from orchestrator.runner import api
from orchestrator.runner.commands.messages import run_path

_NEEDED: Final = ("starlette", "uvicorn")


def view(options: argparse.Namespace) -> int:
    """Serve the pages until Ctrl-C.

    Raises:
        UsageError: If the extra `[view]` is not installed, there are no runs, or the port is taken.
    """
    need("the viewer", "view", _NEEDED)
    # Who labels must not see the models: no runs but those that are named.
    usual = [] if options.labels else [str(api.RUNS)]
    paths = [run_path(name) for name in options.runs or usual]
    for path in paths:
        if not path.is_dir() and path != api.RUNS:
            raise UsageError(f"{path}: no such folder")
    # No other command needs what it imports.
    importlib.import_module("orchestrator.view.serve").serve(
        paths,
        port=options.port,
        open_browser=options.open,
        allow_code=options.allow_code,
        labels=None if options.labels is None else Path(options.labels),
    )
    return EXIT_COMPLETE
