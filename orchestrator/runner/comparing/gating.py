"""A run held against requirements: each holds, fails, or is not known yet."""

import time
from collections.abc import Sequence
from os import PathLike

from orchestrator.errors import UsageError
from orchestrator.gates.grammar import Requirement, UnreadableError
from orchestrator.gates.results import Decision
from orchestrator.recipe.gates import Names, read_checked
from orchestrator.report.gate import gate_json, gate_junit, gate_markdown
from orchestrator.runner.comparing.deciding import decided
from orchestrator.runner.comparing.sides import Side, opened
from orchestrator.runner.interface.result import Result, load
from orchestrator.statistics.results import checked_level


class GateResult(Decision, frozen=True):
    """The verdict on a run: it fails if one requirement does, and holds if all do.

    Attributes:
        requirements: Each with its verdict, in order.
        run: Metadata of the run.
        against: Metadata of the run that it is compared with; None without one.
        confidence_level: Of all verdicts together.
        level: Of each interval: Bonferroni's, over the requirements that are estimated.
        notes: What to know besides, a sentence each.
        seconds: Time that the decision took.
    """

    def to_json(self) -> str:
        """Return the verdict as one JSON object, with the metadata of the runs.

        Returns:
            The text of `orchestrator gate --format json`.

        Example:
            >>> json.loads(found.to_json())["verdict"]  # doctest: +SKIP
            'holds'
        """
        return gate_json(self)

    def to_markdown(self) -> str:
        """Return the verdict as Markdown, for the summary of a job.

        Returns:
            The text of `orchestrator gate --format markdown`.

        Example:
            >>> print(found.to_markdown())  # doctest: +SKIP
        """
        return gate_markdown(self)

    def to_junit(self, *, pass_unknown: bool = False) -> str:
        """Return the verdict as JUnit XML, with a test case for each requirement.

        Args:
            pass_unknown: Report what is not known yet as skipped instead of as an error.

        Returns:
            The text of `orchestrator gate --junit FILE`.

        Example:
            >>> Path("gate.xml").write_text(found.to_junit())  # doctest: +SKIP
        """
        return gate_junit(self, pass_unknown=pass_unknown)


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
