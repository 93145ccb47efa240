"""Commands on runs under way: status, runs, pause, resume, limit and stop."""

import argparse
import json
import sys
from pathlib import Path

import msgspec

from orchestrator.disk import paths
from orchestrator.errors import EXIT_COMPLETE, UsageError
from orchestrator.report import tables
from orchestrator.report.page import print_to
from orchestrator.report.text import confirm, write_to
from orchestrator.runner.commands.messages import run_path
from orchestrator.runner.results.runs import list_runs
from orchestrator.runner.results.runs import status as last_status
from orchestrator.runner.session import control
from orchestrator.store import RunDirectory, newest


def status(options: argparse.Namespace) -> int:
    """Look at a running or ended run."""
    path = run_path(options.run)
    said = last_status(path)
    if options.json:
        write_to(sys.stdout, json.dumps(said) + "\n")
    else:
        try:
            # A run may have been moved since it wrote its status.
            print_to(sys.stdout, tables.status({**said, "run_dir": paths.shown(path)}))
        except msgspec.ValidationError as error:
            raise UsageError(
                f"status.json is damaged: {error}; `orchestrator run` with the same recipe "
                "rewrites it"
            ) from error
    return EXIT_COMPLETE


def runs(options: argparse.Namespace) -> int:
    """List the runs kept in a folder."""
    folder = Path(options.folder)
    if not folder.is_dir() and folder != Path(paths.RUNS):
        raise UsageError(f"{folder}: there is no such folder")
    found = list_runs(folder)
    if options.json:
        write_to(sys.stdout, json.dumps(found) + "\n")
    else:
        print_to(sys.stdout, tables.runs(found))
    return EXIT_COMPLETE


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
    """Stop as Ctrl-C does, or when batches are cancelled."""
    return _tell(options.run, control.Command("cancel" if options.cancel else "stop"))


def _tell(run: str, command: control.Command) -> int:
    path: Path = newest(run_path(run))
    answer = control.tell(RunDirectory.open(path), command)
    confirm(f"{path}: {answer}")
    return EXIT_COMPLETE
