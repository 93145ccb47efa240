"""A run held against requirements: each holds, fails, or is not known yet."""

import time
from collections.abc import Callable, Sequence
from os import PathLike

from orchestrator import numbers
from orchestrator.disk import paths
from orchestrator.errors import OrchestratorError, UsageError
from orchestrator.gates.grammar import Requirement, UnreadableError, read
from orchestrator.recipe.load import Names, read_checked
from orchestrator.runner.comparing.deciding import decided
from orchestrator.runner.comparing.sides import Side, opened
from orchestrator.runner.interface.loading import load
from orchestrator.runner.interface.result import GateResult, Result
from orchestrator.runner.interrupts import deferred_interrupts
from orchestrator.statistics.results import checked_level


def gate(
    run: Result | str | PathLike[str],
    requirements: Sequence[str] | None = None,
    *,
    against: Result | str | PathLike[str] | None = None,
    match: Sequence[str] = (),
    confidence_level: float | None = None,
    allow_code: bool = False,
) -> GateResult:
    """Hold a run against requirements: each holds, fails, or is not known yet.

    The interval of each decides, at a level that makes all verdicts hold together (Bonferroni).
    Nothing is decided of a run that is not complete, or by a judge that can't be trusted.

    Args:
        run: A run, or its directory.
        requirements: Such as "large > medium"; those of the recipe's `gates` if omitted.
        against: An older run that requirements name `old`.
        match: Names of models, judges and methods in both runs, as in `compare`.
        confidence_level: Of all verdicts together, in (0, 1); the recipe's if omitted.
        allow_code: Import kinds from outside this project, to read their scores.

    Returns:
        The verdicts, with their intervals.

    Raises:
        RunDirectoryError: If there is no run.
        UsageError: If there is no requirement, or one can't be read or names what there is not.
        StatisticsError: If the confidence level is not in (0, 1).

    Example:
        >>> found = orchestrator.gate("runs/new", ["large > medium"])  # doctest: +SKIP
        >>> found.verdict  # doctest: +SKIP
        'holds'
    """
    begun = time.monotonic()
    runs = [
        one if isinstance(one, Result) else load(one, allow_code=allow_code)
        for one in (run, against)
        if one is not None
    ]
    sides = opened(runs, match, allow_code=allow_code)
    settings = runs[0].settings
    level = confidence_level
    if level is None:
        level = settings.get("statistics", {}).get("confidence_level", 0.95)
    checked_level(level)
    texts = settings.get("gates", []) if requirements is None else requirements
    if not texts:
        raise UsageError(
            'no requirement: give one, such as --require "large > medium", or write `gates:` in '
            "the recipe and run it"
        )
    wanted = [_read(text, sides) for text in texts]
    checked, each = decided(sides, wanted, level)
    return GateResult(
        requirements=checked,
        run=runs[0].metadata,
        against=runs[1].metadata if against is not None else None,
        confidence_level=level,
        level=each,
        notes=tuple(_notes(runs)),
        seconds=time.monotonic() - begun,
    )


def hold(result: Result, note: Callable[[str], None]) -> None:
    """Hold a run that has just ended against the gates of its recipe; keep the verdict in it.

    A run that was interrupted is not held against them. Requirements that name an older run are
    left to `gate`.

    Args:
        result: The run; its `gate`, or `gate_fault`, is set.
        note: Called with what to know besides, a sentence each.

    Raises:
        KeyboardInterrupt: If a signal came at the end of the run.
    """
    with deferred_interrupts() as late:
        late.look()
    if result.ended is not None and result.ended.interrupted:
        return
    texts: list[str] = result.settings.get("gates", [])
    wanted = [text for text in texts if all(term.run == "new" for term in read(text).terms)]
    if n_older := len(texts) - len(wanted):
        names = f"{numbers.counted(n_older, 'requirement')} name{'s' if n_older == 1 else ''}"
        run = paths.shown(result.path)
        note(f"gates: {names} an older run: orchestrator gate {run} --against OLD")
    if not wanted:
        return
    try:
        result.gate = gate(result, wanted, allow_code=result.allow_code)
    except OrchestratorError as error:
        # The results are shown all the same.
        result.gate_fault = error


def _read(text: str, sides: Sequence[Side]) -> Requirement:
    """A requirement whose names the runs have.

    Raises:
        UsageError: If it can't be read, with a mark under the place.
    """
    first = sides[0]
    names = Names(first.names["model"], first.names["judge"], first.names["method"])
    try:
        found = read_checked(text, names)
    except UnreadableError as error:
        raise UsageError(error.pointed()) from error
    if len(sides) < 2 and any(term.run == "old" for term in found.terms):
        raise UsageError(f"{text}: it names the old run; give one with --against RUN")
    return found


def _notes(runs: Sequence[Result]) -> list[str]:
    notes = []
    for one in runs:
        if one.completeness.failed:
            share = one.completeness.failed / max(1, one.completeness.total)
            notes.append(
                f"{one.path}: {one.completeness.failed:,} units failed ({100 * share:.1f} %); what "
                "they would have shown is missing"
            )
    return notes
