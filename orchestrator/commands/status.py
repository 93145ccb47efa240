"""Commands on runs under way: status, runs, pause, resume, limit and stop."""

import argparse
import contextlib
import json
import sys
from pathlib import Path

import msgspec

from orchestrator.commands.messages import run_path
from orchestrator.disk import paths
from orchestrator.errors import EXIT_COMPLETE, UsageError
from orchestrator.report import calls
from orchestrator.report.page import print_to
from orchestrator.report.text import confirm, write_to
from orchestrator.runner.results.runs import describe, list_runs, shards_of
from orchestrator.runner.results.runs import status as last_status
from orchestrator.runner.servers import slurm_chain
from orchestrator.runner.servers.slurm import answer
from orchestrator.runner.session import control
from orchestrator.store import RunDirectory, newest


def status(options: argparse.Namespace) -> int:
    """Look at a running or ended run, and at the runs of its shards."""
    path = newest(run_path(options.run))
    parts = [describe(one) for one in shards_of(path)]
    # Of the whole there is nothing to say before its shards are put together.
    is_submitted = slurm_chain.file_of(path, is_array=True).exists()
    has_status = RunDirectory.open(path).status() is not None
    is_begun = has_status or not (parts or is_submitted)
    said = last_status(path) if is_begun else {}
    if options.json:
        write_to(sys.stdout, json.dumps(said | ({"shards": parts} if parts else {})) + "\n")
        return EXIT_COMPLETE
    if is_begun:
        try:
            # A run may have been moved since it wrote its status.
            print_to(sys.stdout, calls.status({**said, "run_dir": paths.shown(path)}))
        except msgspec.ValidationError as error:
            raise UsageError(
                f"status.json is damaged: {error}; `orchestrator run` with the same recipe "
                "rewrites it"
            ) from error
    if parts:
        print_to(sys.stdout, calls.runs(parts))
    # Slurm may be elsewhere.
    with contextlib.suppress(UsageError):
        for line in slurm_chain.waiting(path.resolve()) if is_submitted else ():
            write_to(sys.stdout, f"job {line}\n")
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
        print_to(sys.stdout, calls.runs(found))
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
    """Stop as Ctrl-C does, or when batches are cancelled.

    Of a run in shards, end its jobs that wait and stop those that run.
    """
    command = control.Command("cancel" if options.cancel else "stop")
    path = newest(run_path(options.run))
    parts = shards_of(path)
    running = [one for one in parts if RunDirectory(one).holder() is not None]
    is_submitted = slurm_chain.file_of(path, is_array=True).exists()
    if is_submitted:
        # Those that wait in the queue; those that run go on.
        name = slurm_chain.name_of(path.resolve())
        answer("scancel", "--me", f"--name={name}", "--state=PENDING")
    # A call that only waits for shards on Ray holds the run too, and does not answer.
    if not running and (RunDirectory(path).holder() is not None or not (parts or is_submitted)):
        return _tell(options.run, command)
    if not running:
        confirm(f"{path}: no shard is running")
    for one in running:
        _tell(str(one), command)
    return EXIT_COMPLETE


def _tell(run: str, command: control.Command) -> int:
    path: Path = newest(run_path(run))
    answer = control.tell(RunDirectory.open(path), command)
    confirm(f"{path}: {answer}")
    return EXIT_COMPLETE
