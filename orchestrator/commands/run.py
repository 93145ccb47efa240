"""The command that runs a recipe.

It imports what shows results when there are some: no request waits for that.
"""

import argparse
import importlib
import os
import sys
import time
from typing import TYPE_CHECKING, Final, TypeGuard

from orchestrator import numbers
from orchestrator.commands.messages import Said, show, write_files
from orchestrator.errors import EXIT_COMPLETE, EXIT_INTERRUPTED, EXIT_PARTIAL, RunInUseError
from orchestrator.interface.checking import directory_of, prepared_from
from orchestrator.interface.run import Call, run_prepared
from orchestrator.runner.event_loop import deferred_interrupts
from orchestrator.runner.servers.slurm_chain import HANDS_ON, is_handed_on
from orchestrator.runner.session.session import HandedOn

if TYPE_CHECKING:
    from orchestrator.commands.plan import Shards
    from orchestrator.interface.result import Result

# Between two looks whether another process still writes the run.
_TURN_S: Final = 5.0


def run(options: argparse.Namespace) -> int:
    """Run a recipe, or resume its run."""
    said = Said(options.display == "json")
    shards: Shards | None = None
    if options.submit or options.shards:
        # Of jobs, which few runs are.
        jobs = importlib.import_module("orchestrator.commands.plan")
        if options.submit:
            return int(jobs.submit(options, said))
        shards = jobs.Shards(options)
        if jobs.begin(shards, options, said):
            return EXIT_COMPLETE
    with deferred_interrupts() as late:
        try:
            result = _run(options, said, shards)
            late.look()
            taken = 0
            if result.ended is not None and result.ended.progress is not None:
                taken = said.summary(result.ended.progress, result.n_left)
            if _is_read(result):
                show(result, options.format, whole=options.full, taken=taken)
            late.look()
            return _ended(result, options, said)
        except KeyboardInterrupt:
            # Here, where one Ctrl-C more is kept off: what is said must be said whole.
            late.begin()
            said.interrupted()
            return EXIT_INTERRUPTED


def _run(options: argparse.Namespace, said: Said, shards: "Shards | None") -> "Result | HandedOn":
    """Run the recipe; a job of Slurm does so once no other process writes the run.

    A job whose first node was lost is begun again by Slurm, while its client may live on there.
    """
    names = [name for name in Call.__struct_fields__ if name in options]
    settings = {name: getattr(options, name) for name in names}
    call = Call(**settings | {"display": options.display or ("none" if options.quiet else None)})
    waits = False
    while True:
        try:
            if shards is not None:
                prepared, run_dir = shards.merged()
            else:
                prepared = prepared_from(
                    options.recipe, options.overrides, options.limit, allow_code=options.allow_code
                )
                run_dir = directory_of(options.run_dir, prepared.recipe.run_name)
            return run_prepared(prepared, run_dir, call)
        except RunInUseError as error:
            if HANDS_ON not in os.environ:
                raise
            if not waits:
                said.complain(f"{error}; this job waits for it")
            waits = True
            time.sleep(_TURN_S)


def _ended(result: "Result | HandedOn", options: argparse.Namespace, said: Said) -> int:
    """Write the files that are asked for, say how the run ended, and return the exit code."""
    if _is_read(result):
        write_files(result, options, said)
    if result.gate is not None:
        said.verdict(result.gate)
    code = _code(result, options, said)
    if result.gate_fault is not None:
        said.faults(result.gate_fault)
        return code or result.gate_fault.exit_code
    return code if result.gate is None else code or result.gate.exit_code


def _code(result: "Result | HandedOn", options: argparse.Namespace, said: Said) -> int:
    """Print what a user must know of how the run ended; return the exit code of the run itself."""
    ended = result.ended
    warnings = result.warnings if _is_read(result) else []
    # The summary of the call has said it to a person.
    if ended is not None and ended.progress is not None and (said.as_json or options.quiet):
        progress = importlib.import_module("orchestrator.report.progress")
        for fault in progress.faults_of(ended.progress):
            said.complain(fault)
    # At a terminal the first screen has just said it.
    is_said = options.format == "table" and sys.stdout.isatty() and sys.stderr.isatty()
    for line in () if is_said and not said.as_json else warnings:
        said.complain(line)
    if ended is not None and ended.interrupted:
        said.complain(
            f"{ended.stopping}; all answers are saved in {result.path}; resume with the same "
            "command"
        )
        return EXIT_INTERRUPTED
    # 0 where every unit of the plan has a good row
    if result.ended is not None and result.ended.stopping:
        limit = "raise the limit and " * result.ended.stopping.startswith("budget.")
        said.complain(f"stopped: {result.ended.stopping}; {limit}run the same command again")
        return EXIT_PARTIAL
    failed = result.completeness.failed
    if failed:
        steps = [one.text() for one in result.brief.next_steps] if _is_read(result) else []
        todo = [*steps, f"see why: `orchestrator view {result.path}`"][0]
        said.complain(f"{numbers.counted(failed, 'unit')} failed: {todo}")
        return EXIT_PARTIAL
    return EXIT_PARTIAL if options.strict and warnings else EXIT_COMPLETE


def _is_read(result: "Result | HandedOn") -> TypeGuard["Result"]:
    return not isinstance(result, HandedOn) and not is_handed_on(
        result.ended is not None and result.ended.interrupted
    )
