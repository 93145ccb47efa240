"""A ranking in Markdown, for reports and issues; what comes from outside is escaped."""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from orchestrator import numbers
from orchestrator.report.brief import Brief
from orchestrator.report.questions import Check
from orchestrator.report.text import safe_line
from orchestrator.report.words import (
    UNTRUSTED,
    few_words,
    neighbour_amount,
    rank_words,
    rating_bounds,
    title,
    verdict,
)
from orchestrator.statistics.ranking import RankingAnalysis
from orchestrator.statistics.results import Estimate
from orchestrator.tables import counted_words

ExactMatch = Mapping[str, float | None]

_MAX_MESSAGE: Final = 200
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()#+!|~@:-])")
_HARMLESS: Final = re.compile(r"(?<=\w)\\([-_:])(?=\w)")


def ranking_markdown(analysis: RankingAnalysis, exact_match: ExactMatch | None = None) -> str:
    """The whole report of one ranking.

    Args:
        analysis: What `orchestrator.ranking.analysis` found.
        exact_match: Share of answers equal to the reference, by model, where there is one.
    """
    missing = analysis.n_units - analysis.n_judged
    basis = [
        counted_words(analysis.n_items_used, analysis.n_clusters),
        numbers.counted(analysis.n_judged, "judgment"),
        *([f"{numbers.count(missing)} missing"] if missing else []),
        analysis.uncertainty,
        *([few_words(analysis)] if analysis.approximate else []),
    ]
    # The title, then at once whether it can be trusted, and on what it rests
    lines = [f"## {escaped(title(analysis))}", ""]
    if analysis.warning:
        lines += [f"**{escaped(analysis.warning)}**", ""]
    if analysis.caution:
        lines += [f"*{escaped(analysis.caution)}*", ""]
    lines.append(" · ".join(basis))
    if said := verdict(analysis, escaped):
        lines += ["", said if analysis.order_resolvable else f"**{said}**"]
    if analysis.ratings:
        lines += ["", *_ratings(analysis, exact_match or {})]
    if analysis.neighbours:
        lines += ["", *_neighbours(analysis)]
    if analysis.n_judged:
        lines += ["", *_wins(analysis), "", *_judge(analysis)]
    if analysis.failures:
        lines += ["", *_failures(analysis)]
    if analysis.categories:
        lines += ["", *_categories(analysis)]
    if analysis.notes:
        lines += ["", *(f"- {escaped(note)}" for note in analysis.notes)]
    lines += ["", f"Intervals: {analysis.method}; {analysis.uncertainty}."]
    return "\n".join(lines)


def brief_markdown(brief: Brief) -> str:
    """A run in brief as Markdown: answers, how far to trust them, what not to conclude, cost."""
    lines = [f"> **{brief.incomplete}**", ""] if brief.incomplete else []
    if brief.silence:
        lines += [brief.silence, ""]
    for place, question in enumerate(brief.questions):
        level = "#" if not place else "##"
        lines += [f"{level} {question.answer.text(escaped)}", ""]
        if question.detail:
            lines += [f"**{escaped(question.detail)}**", ""]
        basis = f" · {escaped(question.basis)}" if question.basis else ""
        lines += [f"{question.subject.text(escaped)}{basis}", ""]
        if question.apart:
            lines += [question.apart.text(escaped), ""]
        if question.checks:
            lines += [*_checks(question.checks), ""]
    if brief.checks:
        lines += ["## The run", "", *_checks(brief.checks), ""]
    if brief.cautions:
        lines += ["## What not to conclude", ""]
        lines += [*(f"- {caution.text(escaped)}" for caution in brief.cautions), ""]
    if brief.cost is not None and (words := brief.cost.words()):
        lines += [f"Cost: {' · '.join(words)}", ""]
    return "\n".join(lines).rstrip("\n")


def _checks(checks: Iterable[Check]) -> Iterator[str]:
    for check in checks:
        said = f"{check.about}: {check.says.text(escaped)}"
        yield f"- **{said}**" if check.is_doubtful else f"- {said}"


def escaped(text: str, width: int | None = None) -> str:
    """Text from outside as one line that Markdown shows as it is."""
    # HTML first: its entities hold characters that Markdown would escape.
    marked = _SPECIAL.sub(r"\\\1", safe_line(text, width))
    return html.escape(_HARMLESS.sub(r"\1", marked), quote=False)


def _ratings(analysis: RankingAnalysis, exact_match: ExactMatch) -> Iterator[str]:
    level = numbers.level(analysis.confidence_level)
    headings = ["rank", "model", "rating", f"{level} interval", "P(win)", "judgments", "missing"]
    if exact_match:
        headings.append("exact match")
    rows = []
    for model in analysis.ratings:
        row = [
            rank_words(model),
            escaped(model.model),
            numbers.maybe(model.rating, numbers.rating),
            rating_bounds(model),
            numbers.maybe(model.mean_preference, numbers.probability),
            numbers.count(model.n_judgments),
            numbers.count(model.n_missing),
        ]
        if exact_match:
            row.append(numbers.maybe(exact_match.get(model.model), numbers.percent))
        rows.append(row)
    yield from _table(headings, rows, left={1})


def _neighbours(analysis: RankingAnalysis) -> Iterator[str]:
    level = numbers.level(1 - analysis.confidence_level)
    yield f"### Neighbours (all pairs together at {level}, Holm; intervals at the deciding level)"
    yield ""
    rows = [
        [
            f"{escaped(pair.better)} {'over' if pair.resolvable else 'and'} {escaped(pair.worse)}",
            "resolvable" if pair.resolvable else "not resolvable",
            neighbour_amount(pair),
        ]
        for pair in analysis.neighbours
    ]
    yield from _table(["pair", "order", "difference"], rows, left={0, 1})


def _wins(analysis: RankingAnalysis) -> Iterator[str]:
    wins = analysis.wins
    title = f"Win rates {UNTRUSTED}" if analysis.warning else "Win rates"
    yield f"### {title}: P(row wins against column), ties as half; intervals each for its pair"
    yield ""
    rows = []
    for r, name in enumerate(wins.models):
        row = [escaped(name)]
        for c in range(len(wins.models)):
            value, low, high = wins.preference[r][c], wins.low[r][c], wins.high[r][c]
            if value is None:
                row.append("" if r == c else numbers.UNDEFINED)
                continue
            ends = numbers.bounds(low, high, low_open=False, high_open=False)
            text = numbers.probability_with_interval(value, *ends)
            row.append(f"{text}, n={numbers.count(wins.n[r][c])}")
        rows.append(row)
    yield from _table(["", *(escaped(name) for name in wins.models)], rows, left={0})


def _judge(analysis: RankingAnalysis) -> Iterator[str]:
    yield f"### Judge, over {numbers.counted(analysis.n_judged, 'judgment')}"
    yield ""
    rows: list[list[str]] = []
    if analysis.position is not None:
        position = analysis.position
        bias = position.bias
        text = numbers.signed_percent_with_interval(bias.value, *bias.ends)
        rows.append(["bias for the answer shown first", text])
        rows.append(["winner flips with the order", _share(position.flip_rate)])
        rows.append(["one order decides, the other ties", _share(position.half_flip_rate)])
        rows.append(["same decision in both orders", _share(position.consistency)])
    coverage = analysis.coverage
    rows += [
        ["probability on the labels, mean", numbers.probability(coverage.mean)],
        ["probability on the labels, 5th percentile", numbers.probability(coverage.percentile_5)],
        ["readings with less than half on the labels", numbers.percent(coverage.share_low)],
        [
            "mean and mode agree",
            numbers.maybe(analysis.agreement.decisions, numbers.percent),
        ],
        ["mode is a tie", numbers.maybe(analysis.agreement.tied_by_mode, numbers.percent)],
        [
            "Kendall's tau of the rankings by mean and by mode",
            numbers.maybe(analysis.agreement.kendall_tau, "{:.2f}".format),
        ],
    ]
    yield from _table(["", ""], rows, left={0})


def _failures(analysis: RankingAnalysis) -> Iterator[str]:
    missing = numbers.counted(analysis.n_units - analysis.n_judged, "judgment")
    yield f"### {missing} missing, not filled in"
    yield ""
    rows = [
        [escaped(failure.cause), numbers.count(failure.n), escaped(failure.message, _MAX_MESSAGE)]
        for failure in analysis.failures
    ]
    yield from _table(["cause", "judgments", "for example"], rows, left={0, 2})


def _categories(analysis: RankingAnalysis) -> Iterator[str]:
    yield "### Ratings by category" + (f" {UNTRUSTED}" if analysis.warning else "")
    yield ""
    models = [model.model for model in analysis.ratings]
    rows = []
    for part in analysis.categories:
        found = {model.model: model for model in part.ratings}
        row = [escaped(part.category), numbers.in_clusters(part.n_items, part.n_clusters)]
        for model in map(found.get, models):
            if model is None:
                row.append(numbers.UNDEFINED)
            elif model.rating is None:
                row.append(rating_bounds(model))
            else:
                row.append(f"{numbers.rating(model.rating)} {rating_bounds(model)}")
        rows.append(row)
    yield from _table(["category", "prompts", *map(escaped, models)], rows, left={0})


def _share(estimate: Estimate) -> str:
    return numbers.percent_with_interval(estimate.value, *estimate.ends)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], left: set[int]) -> Iterator[str]:
    yield _row(headings)
    yield _row(":---" if column in left else "---:" for column in range(len(headings)))
    for row in rows:
        yield _row(row)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
