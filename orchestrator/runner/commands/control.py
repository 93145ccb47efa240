"""The commands that steer a running run: their options, and what they print."""

import argparse
from pathlib import Path

from orchestrator.errors import EXIT_COMPLETE
from orchestrator.report.text import confirm
from orchestrator.runner.commands.files import run_path
from orchestrator.runner.session import control
from orchestrator.store import RunDirectory, newest


def pause(options: argparse.Namespace) -> int:
    """Send nothing more until `orchestrator resume`."""
    return _tell(options.run, control.Command("pause"))


def resume(options: argparse.Namespace) -> int:
    """Go on after `orchestrator pause`."""
    return _tell(options.run, control.Command("resume"))


def limit(options: argparse.Namespace) -> int:
    """Change how many requests a model may have at a time."""
    return _tell(options.run, control.Command("limit", options.model, options.n))


def stop(options: argparse.Namespace) -> int:
    """Stop as Ctrl-C does."""
    return _tell(options.run, control.Command("stop"))


def _tell(run: str, command: control.Command) -> int:
    path: Path = newest(run_path(run))
    answer = control.tell(RunDirectory.open(path), command)
    confirm(f"{path}: {answer}")
    return EXIT_COMPLETE
