"""The figure of a judge's calibration, where references say which answer is right."""

from typing import Any

from orchestrator import numbers
from orchestrator.contracts.method import is_judging
from orchestrator.contracts.roles import answers_of
from orchestrator.contracts.winner import Winner
from orchestrator.errors import UsageError
from orchestrator.ranking.calibration import Calibrated, calibrated, tables
from orchestrator.report.html import figures
from orchestrator.report.html.figures import Figure, Picture, name
from orchestrator.report.html.material import Material
from orchestrator.statistics.bounded_mean import METHOD


def of_calibration(material: Material) -> list[Figure]:
    """Confidence against accuracy of each judge; none where no pair has a known better answer."""
    context = material.context
    found: list[Calibrated] = []
    answers = answers_of(material.frames, ("exact_match",))
    if not answers.width or answers["exact_match"].null_count() == len(answers):
        return []
    for source in context.sources:
        if is_judging(source.method):
            try:
                found += calibrated(context, [source], Winner(exact_match=True))
            except UsageError:
                # Of these answers it is not known which are right.
                continue
    found = [one for one in found if one.found.n]
    return [_figure(found, context.confidence_level)] if found else []


def _figure(found: list[Calibrated], confidence_level: float) -> Figure:
    overall, by_bin = tables(found)
    rows: list[dict[str, Any]] = []
    for judge, part in ((name(one.name), part) for one in found for part in one.found.bins):
        if not part.n:
            continue
        interval = part.accuracy.interval
        share = numbers.percent(part.accuracy.value)
        sure = numbers.probability(part.confidence)
        rows.append(
            {
                "group": judge,
                "x": part.confidence,
                "value": part.accuracy.value,
                "low": None if interval is None else interval.low,
                "high": None if interval is None else interval.high,
                "tip": f"{judge}: {numbers.counted(part.n, 'pair')} at {sure}, {share} correct",
            }
        )
    picture = Picture(
        "lines",
        rows[: figures.MAX_ROWS],
        "confidence in the preferred answer",
        "accuracy",
        list(dict.fromkeys(row["group"] for row in rows)),
        {"percent": True, "diagonal": [0.5, 1.0]},
    )
    n = sum(one.found.n for one in found)
    level = numbers.level(confidence_level)
    basis = (
        f"n = {numbers.counted(n, 'pair')} of which one answer alone equals the reference · "
        f"{level} intervals: {METHOD}"
    )
    says = (
        "On the dashed line confidence equals accuracy; below it the judge is overconfident. "
        "An answer is correct if it equals its reference."
    )
    return Figure(
        "calibration", "Calibration of the judge", basis, says, by_bin, picture, [overall]
    )
