"""A run in brief: what it found, how far to trust that, and what it cost.

Computed once from the findings of a run; the terminal, Markdown, JSON, the HTML report, the viewer
and notebooks show this value, each in its own form. Nothing here does I/O.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from orchestrator import numbers
from orchestrator.report.brief_measures import of_tables
from orchestrator.report.brief_rankings import of_rankings
from orchestrator.report.progress import Completeness
from orchestrator.report.questions import Check, Question, of_settings, of_style
from orchestrator.report.words import Phrase, Quote, phrase, plain
from orchestrator.statistics.ranking import RankingAnalysis
from orchestrator.statistics.trust import Trusts
from orchestrator.tables import Table

FORMAT: Final = 1
_TABLES_ALONE: Final = "No method of this run ranks models; its tables are below."
_NO_RESULTS: Final = "No results yet: no unit of a method that compares or scores answers is done."
_SECONDS_PER_HOUR: Final = 3600


class Cost(msgspec.Struct, frozen=True):
    """Resources that all calls of a run have used.

    Attributes:
        requests: Sent, retries included.
        prompt_tokens: In the requests.
        completion_tokens: Generated.
        hours: Time that calls ran.
        money: In the recipe's currency; None where no model has a price.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    hours: float = 0.0
    money: float | None = None

    def words(self) -> tuple[str, ...]:
        """Return the amounts in words; empty where nothing was spent."""
        if not self.requests:
            return ()
        return (
            numbers.counted(self.requests, "request"),
            f"{_tokens(self.prompt_tokens)} in",
            f"{_tokens(self.completion_tokens)} out",
            numbers.duration(self.hours * _SECONDS_PER_HOUR),
            *(() if self.money is None else (f"{numbers.money(self.money)} spent",)),
        )


def _tokens(n: int) -> str:
    return f"{numbers.compact(n)} {'token' if n == 1 else 'tokens'}"


class Brief(msgspec.Struct, frozen=True):
    """A run in brief.

    Attributes:
        name: Of the recipe.
        incomplete: Warning to show before anything else; empty for a complete run.
        questions: What the run answers, the most important first.
        silence: Why there is no question; empty where there is one.
        checks: Of the whole run: its units, and what readers were told of its data and servers.
        cautions: What not to conclude, a sentence each.
        cost: Resources used; None where that is not known.
    """

    name: str = ""
    incomplete: str = ""
    questions: tuple[Question, ...] = ()
    silence: str = ""
    checks: tuple[Check, ...] = ()
    cautions: tuple[Phrase, ...] = ()
    cost: Cost | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The models in it, in the order in which they are first shown."""
        found = (one.model for question in self.questions for one in question.standings)
        return tuple(dict.fromkeys(found))

    def as_json(self) -> dict[str, Any]:
        """The value as JSON: sentences as texts, numbers that JSON lacks as null."""
        return {
            "format": FORMAT,
            "brief": {
                "name": self.name,
                "incomplete": self.incomplete,
                "questions": [question.as_json() for question in self.questions],
                "silence": self.silence,
                "checks": [check.as_json() for check in self.checks],
                "cautions": [caution.text() for caution in self.cautions],
                "cost": None if self.cost is None else plain(msgspec.to_builtins(self.cost)),
            },
        }


def brief(  # noqa: PLR0913 (the parts of a run, by keyword)
    *,
    name: str = "",
    rankings: Sequence[RankingAnalysis] = (),
    tables: Sequence[Table] = (),
    exact_match: Mapping[str, float | None] | None = None,
    completeness: Completeness | None = None,
    notes: Sequence[str] = (),
    cost: Cost | None = None,
    trust: Trusts | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Brief:
    """Put a run in brief.

    Args:
        name: Of the recipe.
        rankings: Of each method by each judge, and by all.
        tables: Of summaries and analyses; those that rank models by a measure are questions.
        exact_match: Share of answers equal to the reference, by model.
        completeness: How far the run is; None where that is not known.
        notes: What a reader must know of its data and servers.
        cost: Resources used.
        trust: Verdicts on the judges of each method, by its name.
        settings: The resolved recipe.
    """
    settings = settings or {}
    level = (settings.get("statistics") or {}).get("confidence_level")
    # A table of a method that ranks models has another measure of what its ranking says.
    ranked = {one.source for one in rankings}
    measured = [table for table in tables if table.source not in ranked]
    found = (*of_rankings(rankings, exact_match or {}), *of_tables(measured, trust or {}, level))
    questions = tuple(_doubted(one, settings, tables) for one in found)
    has_results = bool(rankings or tables)
    incomplete = "" if completeness is None else completeness.words(has_results=has_results)
    silence = _TABLES_ALONE if has_results else _NO_RESULTS
    return Brief(
        name=name,
        incomplete=incomplete,
        questions=questions,
        silence="" if questions else silence,
        checks=tuple(_checks(completeness, [*notes, *_failed(tables)])),
        cautions=tuple(dict.fromkeys(line for one in questions for line in one.cautions)),
        cost=cost,
    )


def _doubted(found: Question, settings: Mapping[str, Any], tables: Sequence[Table]) -> Question:
    """A question with the reasons for doubt that its own numbers do not show."""
    if found.state == "empty":
        return found
    styled = () if found.state == "withheld" else of_style(tables, found.source)
    checks = (*found.checks, *of_settings(settings, found.source, found.judge), *styled)
    return msgspec.structs.replace(found, checks=checks)


def _failed(tables: Sequence[Table]) -> list[str]:
    """Return why summaries and analyses could not be made."""
    return [note for table in tables if not table.columns for note in table.notes]


def _checks(completeness: Completeness | None, notes: Sequence[str]) -> list[Check]:
    found = []
    if completeness is not None and completeness.total:
        needed = completeness.total - completeness.not_needed
        text = f"{numbers.count(completeness.ended)} of {numbers.counted(needed, 'unit')} done"
        failed = completeness.failed
        text += f", {numbers.count(failed)} failed" if failed else ", none failed"
        found.append(Check("run", phrase(f"{text}."), bool(completeness.left or failed)))
    return found + [Check("note", phrase(Quote(note)), is_doubtful=True) for note in notes]
