"""A run in brief: what it found, how far to trust that, and what it cost.

Computed once from the findings of a run; the terminal, Markdown, JSON, the HTML report, the viewer
and notebooks show this value, each in its own form. Nothing here does I/O.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

import msgspec

from orchestrator import numbers
from orchestrator.report import brief_measures, brief_rankings
from orchestrator.report.progress import Completeness, Cost
from orchestrator.report.questions import Check, Question, of_settings, of_style
from orchestrator.report.text import escaped, in_command
from orchestrator.report.words import Name, Phrase, Quote, names, phrase, plain
from orchestrator.statistics.ranking import RankingAnalysis
from orchestrator.statistics.student import MOST, units_needed
from orchestrator.statistics.trust import Trusts
from orchestrator.store import FailureCount
from orchestrator.tables import Table

FORMAT: Final = 1
_TABLES_ALONE: Final = "No method of this run ranks models; its tables are below."
_NO_RESULTS: Final = "No results yet: no unit of a method that compares or scores answers is done."


class Brief(msgspec.Struct, frozen=True):
    """A run in brief.

    Attributes:
        name: Of the recipe.
        incomplete: Warning to show before anything else; empty for a complete run.
        questions: What the run answers, the most important first.
        silence: Why there is no question; empty where there is one.
        tables: The first table of each method and analysis that is no question.
        checks: Of the whole run: its units, and what readers were told of its data and servers.
        next_steps: What to do next, a sentence each, by what the run lacks.
        cautions: What not to conclude, a sentence each.
        cost: Resources used; None where that is not known.
    """

    name: str = ""
    incomplete: str = ""
    questions: tuple[Question, ...] = ()
    silence: str = ""
    tables: tuple[Table, ...] = ()
    checks: tuple[Check, ...] = ()
    next_steps: tuple[Phrase, ...] = ()
    cautions: tuple[Phrase, ...] = ()
    cost: Cost | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The models and scores in it, in the order in which they are first shown."""
        found = (one.model for question in self.questions for one in question.standings)
        return tuple(dict.fromkeys(found))

    def as_json(self) -> dict[str, Any]:
        """The value as JSON: sentences as texts, numbers that JSON lacks as null."""
        said = plain(self)
        # Those of all questions stand at the end; the others say how numbers are drawn.
        for question, name in product(said["questions"], ("cautions", "is_percent", "least_span")):
            del question[name]
        return {"format": FORMAT, "brief": {name: said[name] for name in said if name != "tables"}}

    def to_markdown(self) -> str:
        """The value as Markdown: answers, how far to trust them, what not to conclude, cost."""
        lines = [f"> **{self.incomplete}**", ""] if self.incomplete else []
        if self.silence:
            lines += [self.silence, ""]
        for place, question in enumerate(self.questions):
            level = "#" if not place else "##"
            lines += [f"{level} {question.answer.text(escaped)}", ""]
            if question.detail:
                lines += [f"**{escaped(question.detail)}**", ""]
            basis = f" · {escaped(question.basis)}" if question.basis else ""
            lines += [f"{question.subject.text(escaped)}{basis}", ""]
            if question.apart:
                lines += [question.apart.text(escaped), ""]
            if question.checks:
                lines += [*_listed(question.checks), ""]
        if self.checks:
            lines += ["## The run", "", *_listed(self.checks), ""]
        for heading, said in (
            ("What to do next", self.next_steps),
            ("What not to conclude", self.cautions),
        ):
            if said:
                lines += [f"## {heading}", "", *(f"- {one.text(escaped)}" for one in said), ""]
        if self.cost is not None and (words := self.cost.words()):
            lines += [f"Cost: {' · '.join(words)}", ""]
        return "\n".join(lines).rstrip("\n")


def _listed(checks: Sequence[Check]) -> Iterator[str]:
    for check in checks:
        said = f"{check.about}: {check.says.text(escaped)}"
        yield f"- **{said}**" if check.is_doubtful else f"- {said}"


def brief(  # noqa: PLR0913 (the parts of a run, by keyword)
    *,
    name: str = "",
    run: str = "RUN",
    rankings: Sequence[RankingAnalysis] = (),
    tables: Sequence[Table] = (),
    exact_match: Mapping[str, float | None] | None = None,
    completeness: Completeness | None = None,
    notes: Sequence[str] = (),
    cost: Cost | None = None,
    trust: Trusts | None = None,
    settings: Mapping[str, Any] | None = None,
    failures: Sequence[FailureCount] = (),
    stopping: str = "",
) -> Brief:
    """Put a run in brief.

    Args:
        name: Of the recipe.
        run: Its folder, quoted for a shell, in commands to copy.
        rankings: Of each method by each judge, and by all.
        tables: Of summaries and analyses; those that rank models by a measure are questions.
        exact_match: Share of answers equal to the reference, by model.
        completeness: How far the run is; None where that is not known.
        notes: What a reader must know of its data and servers.
        cost: Resources used.
        trust: Verdicts on the judges of each method, by its name.
        settings: The resolved recipe.
        failures: What fails now, by the model to blame and the cause.
        stopping: Why the last call stopped early; empty if it did not.
    """
    settings = settings or {}
    run = in_command(run)
    level = (settings.get("statistics") or {}).get("confidence_level")
    # A table of a method that ranks models has another measure of what its ranking says.
    ranked = {one.source for one in rankings}
    measured = [table for table in tables if table.source not in ranked]
    found = brief_rankings.questions(rankings, exact_match or {})
    found += brief_measures.questions(measured, trust or {}, level)
    unmade = [note for table in tables if not table.columns for note in table.notes]
    given = [name for name, of in (settings.get("models") or {}).items() if "answers" in of]
    judges = {one for of in settings.get("methods") or () for one in of.get("judges") or ()}
    questions, advice = [], []
    told: set[frozenset[str]] = set()
    for one in found:
        # What to try stands under what to do next, and the same reasons stand once.
        detail, _, tried = one.detail.partition(" Try ")
        reasons = frozenset(re.split("[.;] ", detail))
        if detail and reasons in told:
            detail = "For the reasons above."
        told.add(reasons)
        checks = one.checks
        # Reasons for doubt that its own numbers do not show.
        if one.state != "empty":
            checks += tuple(of_settings(settings, one.source, one.judge))
        if one.state not in ("empty", "withheld"):
            checks += tuple(of_style(tables, one.source))
        questions.append(msgspec.structs.replace(one, detail=detail, checks=checks))
        advice.append(tried)
    is_checked = any(share is not None for share in (exact_match or {}).values())
    is_checked |= any("labels" in one for one in settings.get("analyses") or ())
    steps = [
        *_advice(run, completeness or Completeness(), failures, notes, given, judges, stopping),
        *_of_answers(run, questions, advice, rankings, measured, is_checked=is_checked),
    ]
    has_results = bool(rankings or tables)
    incomplete = "" if completeness is None else completeness.words(has_results=has_results)
    answered = {question.source for question in questions}
    first = {one.source: one for one in reversed(tables) if one.columns}
    return Brief(
        name=name,
        incomplete=incomplete,
        questions=tuple(questions),
        silence="" if questions else _TABLES_ALONE if has_results else _NO_RESULTS,
        tables=tuple(one for of, one in reversed(first.items()) if of not in answered),
        checks=tuple(_checks(completeness, [*notes, *unmade])),
        next_steps=tuple(dict.fromkeys(steps)),
        cautions=tuple(dict.fromkeys(line for one in questions for line in one.cautions)),
        cost=cost,
    )


def _checks(completeness: Completeness | None, notes: Sequence[str]) -> list[Check]:
    found = []
    if completeness is not None and completeness.total:
        needed = completeness.total - completeness.not_needed
        text = f"{numbers.count(completeness.ended)} of {numbers.counted(needed, 'unit')} done"
        failed = completeness.failed
        text += f", {numbers.count(failed)} failed" if failed else ", none failed"
        found.append(Check("run", phrase(f"{text}."), bool(completeness.left or failed)))
    return found + [Check("note", phrase(Quote(note)), is_doubtful=True) for note in notes]


# What to do next: a sentence for each cause that keeps a run from saying more, in the order in
# which they are to be mended, and none without its cause. Every format shows these.

CUT: Final = "answers cut by max_tokens"
THINKING: Final = "answers that hold the model's thinking"
"""How the notes on such answers begin."""
_WITHHELD: Final = "Change the prompts whose answers are withheld, or use another server, for "
_REMEDIES: Final = (
    ("refused unreachable dead_server", "", "Start the server of "),
    ("unauthorised", "", "Set a key that the endpoint accepts (`api_key_env`) for "),
    ("no_credit", "", "Add credit to the account of "),
    ("not_found", "", "Correct the name or the address of "),
    ("redirected", "", "Correct the address (`base_url`) of "),
    ("rate_limited", "", "Wait, or lower `limits.requests_per_minute`, for "),
    ("timeout", "", "Raise `limits.timeout_s`, or lower `limits.max_in_flight`, of "),
    ("no_logprobs", "candidate", "Set `backend: {kind: openai, logprobs: false}` (texts only) of "),
    ("no_logprobs", "", "Use a server that returns log-probabilities for "),
    ("no_answer", "wrote no answer", "Allow more `max_tokens`, or less reasoning, for "),
    ("no_answer", "within max_tokens", "Allow more `max_tokens` for "),
    ("no_answer", "a refusal came", _WITHHELD),
    ("no_answer", "given: ", "Complete the answers that are given for "),
    ("no_answer moderation", "withheld", _WITHHELD),
    ("moderation", "", _WITHHELD),
    ("too_long", "", "Serve a longer context, or shorten the prompts, for "),
    ("unparseable", "", "Mend or replace the server, or its gateway, of "),
)
"""What to do about a cause, before the models to blame, if role and message hold a text."""
_AGAIN: Final = "; then run the same command again."


def _advice(  # noqa: PLR0913 (the parts of a run)
    run: str,
    completeness: Completeness,
    failures: Sequence[FailureCount],
    notes: Sequence[str],
    given: Collection[str],
    judges: Collection[str],
    stopping: str,
) -> Iterator[Phrase]:
    """Yield what to do before anything else is concluded: servers, keys, units without a row.

    The answers of the models in `given` are read from a file.
    """
    see = f"`orchestrator view {run} --open --items 'where=failed>0'`"
    met: dict[tuple[str, str, str], dict[str, None]] = {}
    for one in failures if completeness.left or completeness.failed else ():
        is_given, again = one.model in given, _AGAIN
        role = "given" if is_given else "judge" if one.model in judges else "candidate"
        said = role + ": " + one.last_message * (not is_given)
        ways = (way for of, part, way in _REMEDIES if one.cause in of.split() and part in said)
        if one.permanent and not is_given:
            again = f"; then run again with `--retry {one.cause}`. What failed: {see}."
        if one.model and (remedy := next(ways, "")):
            why = f": {one.last_message}" * (one.cause == "unparseable")
            met.setdefault((remedy, why, again), {})[one.model] = None
    n = numbers.counted(completeness.left, "unit")
    if limit := completeness.left and re.match(r"budget\.\w+", stopping):
        yield phrase(f"Raise `{limit[0]}`, which stopped the run{_AGAIN[:-1]} to finish {n}.")
    for (remedy, why, again), models in met.items():
        yield phrase(remedy, names([*models]), Quote(why), again)
    if completeness.left and not limit and not any(again == _AGAIN for *_, again in met):
        yield phrase(f"Run the same command again to finish {n}.")
    elif completeness.failed and not met:
        yield phrase(f"See why {numbers.counted(completeness.failed, 'unit')} failed: {see}.")
    if which := _said(CUT, notes, given):
        yield phrase("Raise `max_tokens` of the answers that were cut: ", Quote(which), ".")
    if which := _said(THINKING, notes, given):
        start = "Set `thinking`, or a reasoning parser (see the note), for thinking in answers: "
        yield phrase(start, Quote(which), _AGAIN)


def _said(start: str, notes: Sequence[str], without: Collection[str] = ()) -> str:
    """Return the models that the note with this start is about, with their numbers of answers."""
    note = next((note for note in notes if note.startswith(start)), "").partition("; ")[0]
    parts = note.rpartition(": ")[2].split(", ")
    return ", ".join(one for one in parts if one and one.split()[0] not in without)


def _of_answers(
    run: str,
    questions: Sequence[Question],
    advice: Sequence[str],
    rankings: Sequence[RankingAnalysis],
    tables: Sequence[Table],
    *,
    is_checked: bool,
) -> Iterator[Phrase]:
    """Yield what to do about each answer that there is not, and about a judge nobody checked."""
    told: set[frozenset[str]] = set()
    # One sentence for all methods that it is said of
    for tried in dict.fromkeys(filter(None, advice)):
        about = [one.source for one, said in zip(questions, advice, strict=True) if said == tried]
        of = [*names(list(dict.fromkeys(about))), ": try "] if len(questions) > 1 else ["Try "]
        yield phrase(of, Quote(tried))
    for found, tried in zip(questions, advice, strict=True):
        if not tried and found.state in ("open", "tied"):
            for line in _more_words(found, rankings, tables):
                # Of two methods that leave the same models open, one says how many.
                pair = frozenset(part.text for part in line.parts if isinstance(part, Name))
                if pair not in told:
                    told.add(pair)
                    yield line
    first = next(iter(questions), None)
    if first is not None and first.state in ("answered", "tied", "open") and not is_checked:
        is_judged = any(check.about in ("form", "order") for check in first.checks)
        if is_judged and not advice[0]:
            yield phrase(
                f"Check the judge against people: `orchestrator labels {run} --to labels.csv` "
                "draws what they label."
            )


def _more_words(
    found: Question, rankings: Sequence[RankingAnalysis], tables: Sequence[Table]
) -> Iterator[Phrase]:
    """Yield how many prompts would tell the first model from the next that may be as good."""
    first = found.standings[0].model
    pairs = [
        (pair.better, pair.worse, pair.difference, pair.low, one.n_clusters, pair)
        for one in rankings
        if (one.source, one.judge) == (found.source, found.judge)
        for pair in one.pairs
    ] + [
        (one.higher, one.lower, cell.value, cell.low, cell.n_clusters or cell.n or 0, one)
        for table in tables
        for of in table.comparisons
        if table.source == found.source and of.judge in ("", found.judge)
        for one in of.pairs
        for cell in (one.difference,)
    ]
    for above, below, difference, low, n, pair in pairs:
        # Of two that are equal here, more prompts are no plan.
        if pair.resolvable or first not in (above, below) or difference == 0.0:
            continue
        level = pair.level
        other = below if first == above else above
        start = phrase("More prompts to tell ", Name(first), " from ", Name(other))
        if difference is None or low is None or level is None:
            yield phrase(start, f": {numbers.count(n)} are too few to say how many.")
            return
        needed = units_needed(difference, low, n, level)
        if needed > MOST:
            yield phrase(start, f": more than {numbers.count(MOST)}, if they are like these.")
            return
        # No more digits than an estimate has
        about = numbers.count(int(float(f"{needed:.2g}")))
        yield phrase(
            start,
            f": about {about} instead of {numbers.count(n)}. An estimate: so many "
            "do in 8 of 10 runs if the difference is the one seen here.",
        )
        return
