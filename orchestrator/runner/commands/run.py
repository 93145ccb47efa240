"""The command that runs a recipe.

It imports what shows results when there are some: no request waits for that.
"""

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orchestrator import numbers
from orchestrator.errors import (
    EXIT_COMPLETE,
    EXIT_INTERRUPTED,
    EXIT_PARTIAL,
    RunInUseError,
)
from orchestrator.runner.commands.files import write_files
from orchestrator.runner.commands.messages import Said
from orchestrator.runner.interface.starting import start
from orchestrator.runner.interrupts import DeferredInterrupts, deferred_interrupts
from orchestrator.runner.servers.slurm_chain import HANDS_ON
from orchestrator.runner.session.event_loop import Stop

if TYPE_CHECKING:
    from orchestrator.runner.interface.result import Result

# Between two looks whether another process still writes the run.
_TURN_S: Final = 5.0


def run(options: argparse.Namespace) -> int:
    """Run a recipe, or resume its run."""
    said = Said(options.display == "json")
    if options.submit:
        code: int = importlib.import_module("orchestrator.runner.commands.submit").submit(
            options, said
        )
        return code
    with deferred_interrupts() as late:
        try:
            return _run(options, late, said)
        except KeyboardInterrupt:
            # Here, where one Ctrl-C more is kept off: what is said must be said whole.
            late.begin()
            said.interrupted()
            return EXIT_INTERRUPTED


def _run(options: argparse.Namespace, late: DeferredInterrupts, said: Said) -> int:
    result = _run_in_turn(options, said) if HANDS_ON in os.environ else _run_once(options)
    late.look()
    _show(result, options, said)
    late.look()
    if not _is_handed_on(result):
        write_files(result, options, said)
    if result.gate is not None:
        said.verdict(result.gate)
    code = _code(result, options, said)
    if result.gate_fault is not None:
        said.faults(result.gate_fault)
        return code or result.gate_fault.exit_code
    return code if result.gate is None else code or result.gate.exit_code


def _run_in_turn(options: argparse.Namespace, said: Said) -> "Result":
    """Run once no other process writes the run.

    A job whose first node was lost is begun again by Slurm, while its client may live on there.
    """
    waits = False
    while True:
        try:
            return _run_once(options)
        except RunInUseError as error:
            if not waits:
                said.complain(f"{error}; this job waits for it")
            waits = True
            time.sleep(_TURN_S)


def _run_once(options: argparse.Namespace) -> "Result":
    return start(
        options.recipe,
        Stop(),
        decide=_decide,
        run_dir=options.run_dir,
        overrides=options.set,
        limit=options.limit,
        fresh=options.fresh,
        display=options.display or ("none" if options.quiet else None),
        accept_server_change=options.accept_server_change,
        keep_servers=options.keep_servers,
        on_end=options.on_end,
        on=options.on,
        allow_code=options.allow_code,
    )


def _decide(result: "Result", note: Callable[[str], None]) -> None:
    """Hold the run against the gates of its recipe."""
    importlib.import_module("orchestrator.runner.comparing.gating").hold(result, note)


def _show(result: "Result", options: argparse.Namespace, said: Said) -> None:
    taken = 0
    if result.ended is not None and result.ended.progress is not None:
        taken = said.summary(result.ended.progress, result.n_left)
    if not _is_handed_on(result):
        importlib.import_module("orchestrator.runner.commands.results").show(
            result, options.format, whole=options.full, taken=taken
        )


def _code(result: "Result", options: argparse.Namespace, said: Said) -> int:
    """Print what a user must know of how the run ended; return the exit code of the run itself."""
    ended = result.ended
    warnings = [] if _is_handed_on(result) else result.warnings
    if ended is not None and ended.progress is not None:
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
        said.complain(
            f"stopped: {result.ended.stopping}; raise the limit and run the same command again"
        )
        return EXIT_PARTIAL
    failed = result.completeness.failed
    if failed:
        where = f"see the table of failures, or {result.path}/results"
        said.complain(f"{numbers.counted(failed, 'unit')} failed; {where}")
        return EXIT_PARTIAL
    return EXIT_PARTIAL if options.strict and warnings else EXIT_COMPLETE


def _is_handed_on(result: "Result") -> bool:
    """Return True if another job waits for the end of this call, and will show the results."""
    return result.ended is not None and result.ended.interrupted and HANDS_ON in os.environ
