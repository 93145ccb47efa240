"""A run held against requirements: each holds, fails, or is not known yet."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from orchestrator import numbers
from orchestrator.clusters import CLUSTER, OVER, codes, counted
from orchestrator.disk import paths
from orchestrator.errors import OrchestratorError, UsageError
from orchestrator.gates import MEASURES, Checked, Requirement, Term, UnreadableError, Verdict, read
from orchestrator.interface.loading import load
from orchestrator.interface.observed import ends_of_values, labelled_by, observations, ranked_method
from orchestrator.interface.ratings import competitors, pooled
from orchestrator.interface.result import Result
from orchestrator.interface.sides import Common, Side, common_items, opened, renamed_points
from orchestrator.ranking.judged import Table
from orchestrator.ranking.labelled import kept_verdicts
from orchestrator.ranking.trust import level_of
from orchestrator.recipe.load import read_checked
from orchestrator.report.gate import GateResult
from orchestrator.runner.event_loop import deferred_interrupts
from orchestrator.statistics.agreement import cohen_kappa
from orchestrator.statistics.bounded_mean import difference_ends
from orchestrator.statistics.means import paired_difference
from orchestrator.statistics.ratings import METHOD as RATING_METHOD
from orchestrator.statistics.ratings import Ratings, rate
from orchestrator.statistics.results import Estimate, Interval, checked_level, interval_or_none
from orchestrator.statistics.selective import METHOD as RISK_METHOD
from orchestrator.statistics.selective import most_kept
from orchestrator.statistics.trust import no_verdict

_EQUAL: Final = 1e-9
_PAIR: Final = 2
_EXACT: Final = ("missing", "failed")
# Verdicts of these rest on a judge that can be trusted.
_JUDGED: Final = ("rating", "win_rate", "score")


_COUNTED: Final = (None, None)


class _Found(NamedTuple):
    """The estimate by which one requirement is decided.

    Attributes:
        estimate: Of its term, or of the difference of its terms, with the interval that decides.
        sizes: Number of items, None for counts; number of their clusters, None where each item
            stands alone.
        aside: Note on what the estimate rests on; empty for none.
    """

    estimate: Estimate
    sizes: tuple[int | None, int | None]
    aside: str = ""


class Deciding:
    """Requirements of one run, perhaps against an older one, decided at one level."""

    def __init__(self, sides: Sequence[Side], level: float) -> None:
        self._sides = sides
        self._level = level
        self._rated: dict[tuple[str, str, tuple[str, ...]], tuple[Ratings, Table]] = {}

    @cached_property
    def _common(self) -> Common:
        return common_items(self._sides)

    def decide(self, one: Requirement) -> Checked:
        """Return the verdict on a requirement."""
        found = self._estimate(one)
        reason = self._doubt(one)
        verdict, why = _verdict(one, found)
        if reason:
            verdict, why = "not known yet", reason
        estimate, interval = found.estimate, found.estimate.interval
        doubt = "" if interval is None else interval.doubt
        why = "; ".join(part for part in (why, doubt, found.aside) if part)
        return Checked(
            requirement=one.text,
            verdict=verdict,
            value=None if math.isnan(estimate.value) else estimate.value,
            low=None if interval is None else interval.low,
            high=None if interval is None else interval.high,
            threshold=one.threshold,
            operator=one.operator,
            form=one.measure.form,
            n=found.sizes[0],
            n_clusters=found.sizes[1],
            why=why,
            method=estimate.method,
            is_difference=one.right is not None,
        )

    def _side(self, term: Term) -> Side:
        return self._sides[0 if term.run == "new" else 1]

    def _doubt(self, one: Requirement) -> str:
        """Return the reason why nothing can be decided, whatever the numbers; empty for none."""
        for term in one.terms:
            side = self._side(term)
            if warning := side.result.completeness.words():
                return warning
            if term.measure in _JUDGED:
                judge, method = term.option("judge"), term.option("method").partition(".")[0]
                trusts = [
                    trust
                    for name, of_method in side.result.trust.items()
                    for trust in of_method
                    if method in ("", name) and judge in ("", trust.judge)
                ]
                if not term.option("method") and term.measure != "score":
                    # The judges of the method that it is about, where it names none.
                    known = side.result.trust.get(ranked_method(side, term), ())
                    trusts = [trust for trust in known if trust in trusts]
                if warning := no_verdict(trusts):
                    return warning
        return ""

    def _estimate(self, one: Requirement) -> _Found:
        if one.left.measure in _EXACT:
            return self._counted(one.left)
        if one.left.measure == "rating":
            return self._rating(one)
        if one.left.measure == "kappa":
            rows = observations(self._side(one.left), one.left)
            if rows.is_empty():
                return _nothing()
            first, second = (rows[name].to_numpy().astype(float) for name in ("verdict", "other"))
            kappa = cohen_kappa(first, second, codes(rows[CLUSTER]), self._level)
            return _Found(kappa, counted(rows))
        if one.left.measure == "risk":
            return self._risk(one)
        if one.right is None:
            return self._mean(one)
        return self._difference(one, one.right)

    def _counted(self, term: Term) -> _Found:
        side = self._side(term)
        done = side.result.completeness
        n, total = done.failed, done.total - done.not_needed
        if term.measure == "missing":
            trusts = [
                trust
                for method, of_method in side.result.trust.items()
                for trust in of_method
                if trust.judge == term.names[0].text and term.option("method") in ("", method)
            ]
            n = sum(trust.n_missing for trust in trusts)
            total = sum(trust.n_units for trust in trusts)
        if not total:
            return _nothing("nothing was counted", _COUNTED)
        share = n / total
        exact = Interval(share, share, self._level)
        return _Found(Estimate(share, exact, total, "a count, exact"), _COUNTED)

    def _mean(self, one: Requirement) -> _Found:
        rows = observations(self._side(one.left), one.left)
        if rows.is_empty():
            return _nothing()
        values, clusters = rows["value"].to_numpy().astype(np.float64), codes(rows[CLUSTER])
        ends = ends_of_values(self._side(one.left), one.left, rows)
        found = paired_difference(np.zeros(values.size), values, clusters, ends)
        aside = ""
        if one.left.measure == "win_rate" and len(one.left.names) > 1:
            side = self._side(one.left)
            method = ranked_method(side, one.left)
            _, table = self._ratings([side], method, one.left.option("judge"))
            is_field = len(table.models) > _PAIR
            aside = "head to head, by their own comparisons alone" if is_field else ""
        return _Found(found.estimate(self._level), counted(rows), aside)

    def _difference(self, one: Requirement, other: Term) -> _Found:
        """Left minus right, item by item; between runs, against the same opponents and judges."""
        between = one.left.run != other.run
        clusters = self._common.clusters if between else None
        keys = ["item"]
        parts, ends = [], []
        for term in (one.left, other):
            side = self._side(term)
            own = self.own(term)
            rows = observations(side, own, clusters)
            ends.append(ends_of_values(side, own, rows))
            if between:
                kept = self._common.items.implode()
                rows = renamed_points(side, rows.filter(pl.col("item").is_in(kept)))
            parts.append(rows)
        if between:
            alike = ("judge",) if len(one.left.names) > 1 else ("judge", "opponent")
            keys += [name for name in alike if all(name in rows.columns for rows in parts)]
        means = [
            rows.group_by(*keys, *OVER, maintain_order=True).agg(pl.col("value").mean())
            for rows in parts
        ]
        both = means[1].join(
            means[0].select(*keys, left="value"), on=keys, nulls_equal=True, maintain_order="left"
        )
        both = both.group_by("item", *OVER, maintain_order=True).agg(
            pl.col("value").mean(), pl.col("left").mean()
        )
        if both.is_empty():
            return _nothing()
        right, left = (both[name].to_numpy().astype(np.float64) for name in ("value", "left"))
        found = paired_difference(right, left, codes(both[CLUSTER]), difference_ends(*ends))
        return _Found(found.estimate(self._level), counted(both))

    def own(self, term: Term) -> Term:
        """A term about the old run, with the names that models and judges have there."""
        side = self._side(term)
        if term.run == "new":
            return term
        roles = MEASURES[term.measure].roles
        names = tuple(
            replace(one, text=side.own(role, one.text))
            for role, one in zip(roles, term.names, strict=False)
        )
        options = dict(term.options)
        if judge := options.get("judge"):
            options["judge"] = replace(judge, text=side.own("judge", judge.text))
        if method := options.get("method"):
            name, dot, column = method.text.partition(".")
            own = f"{side.own('method', name)}{dot}{column}"
            options["method"] = replace(method, text=own)
        return replace(term, names=names, options=options)

    def _risk(self, one: Requirement) -> _Found:
        """The error rate of what is kept, by one-sided bounds as in the analysis."""
        side, error = self._side(one.left), 1.0 - self._level
        if not 0.0 < one.threshold < 1.0:
            return _nothing("a risk lies between 0 and 1")
        rows, found = kept_verdicts(side.context, labelled_by(side, self.own(one.left)))
        which, place, _ = most_kept(found, one.threshold, error)
        ends, best = [kept.bounds(error / len(found)) for kept in found], found[which]
        # It fails only if no share has a rate as low: a bound of the lowest is the lowest bound.
        low = min(float(low.min()) for low, _ in ends)
        interval = Interval(low, float(ends[which][1][place]), self._level)
        told = rows.frame.drop_nulls("label")
        share = f"of the surest {100 * best.shares[place]:.0f} % of the verdicts"
        aside = "; ".join((share, *rows.notes))
        rate = Estimate(float(best.rates[place]), interval, best.n_prompts, RISK_METHOD)
        return _Found(rate, counted(told), aside)

    def _rating(self, one: Requirement) -> _Found:
        sides = [self._side(term) for term in one.terms]
        if len(sides) == 1 or sides[0] is sides[1]:
            sides = sides[:1]
        method = ranked_method(sides[0], one.left)
        rated, table = self._ratings(sides, method, one.left.option("judge"))
        at = []
        for term in one.terms:
            own = self.own(term).names[0].text
            name = competitors(sides, method).get(self._side(term).label, {}).get(own, own)
            if name not in table.models:
                return _nothing(f"{own} was not judged")
            at.append(table.models.index(name))
        n_items = table.n_items_used
        sizes = n_items, table.n_clusters if table.n_clusters != n_items else None
        if one.right is None:
            value = float(rated.values[at[0]])
            low, high = float(rated.low[at[0]]), float(rated.high[at[0]])
            return _rated(value, interval_or_none(low, high, self._level), sizes)
        first, second = at
        if first == second:
            return _nothing(
                "it answers with the same weights and settings in both runs, and so has one rating"
            )
        errors = np.array([1.0 - self._level])
        (gap,) = rated.differences(np.array([first]), np.array([second]), errors)
        n_models = int((rated.rank > 0).sum())
        aside = ""
        if n_models > _PAIR:
            n_pairs = n_models * (n_models - 1) // 2
            aside = f"this pair alone; the ranking decides all {n_pairs:,} pairs together"
        return _rated(gap.value, gap.interval, sizes, aside)

    def _ratings(self, sides: Sequence[Side], method: str, judge: str) -> tuple[Ratings, Table]:
        key = (method, judge, tuple(side.label for side in sides))
        if key not in self._rated:
            several = len(sides) > 1
            common = self._common if several else common_items(sides)
            table = pooled(sides, common, method)
            if table is None:
                raise UsageError(f"rating: {method} has no judgments")
            table = table.of_judge(judge) if judge else table
            sums = table.sums(table.used["prefer_a"])
            rated = rate(sums, table.models, confidence_level=self._level)
            self._rated[key] = (rated, table)
        return self._rated[key]


def _nothing(
    why: str = "there is nothing to measure it by",
    sizes: tuple[int | None, int | None] = (0, None),
) -> _Found:
    return _Found(Estimate(math.nan, None, 0, "", why), sizes)


def _rated(
    value: float, interval: Interval | None, sizes: tuple[int, int | None], aside: str = ""
) -> _Found:
    why = None if interval else "the judgments give no interval"
    estimate = Estimate(value, interval, sizes[1] or sizes[0], RATING_METHOD, why)
    return _Found(estimate, sizes, aside)


def _verdict(one: Requirement, found: _Found) -> tuple[Verdict, str]:
    interval = found.estimate.interval
    if interval is None:
        why, value = found.estimate.undefined or "no interval", found.estimate.value
        # Also where there is no value, as of one model in both runs
        if one.right is not None and not abs(value - one.threshold) > _EQUAL:
            margin = "- 20" if one.measure.form == "rating" else "- 0.02"
            why += f"; of equal values only a margin can be shown, such as >= … {margin}"
        return "not known yet", why
    if one.is_met_by(interval.low) and one.is_met_by(interval.high):
        return "holds", ""
    if not one.is_met_by(interval.low) and not one.is_met_by(interval.high):
        return "fails", ""
    why = f"the interval contains {one.threshold:g}"
    value, n = found.estimate.value, found.sizes[0]
    gap = abs(value - one.threshold)
    reach = max(interval.high - value, value - interval.low)
    if n is not None and math.isfinite(reach) and gap > 0.05 * reach:
        what = "labelled items" if one.left.measure == "risk" else "items"
        n_needed = math.ceil(n * (reach / gap) ** 2)
        why += f"; about {n_needed:,} {what} would do if it stays as it is"
    return "not known yet", why


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
    runs = [
        one if isinstance(one, Result) else load(one, allow_code=allow_code)
        for one in (run, against)
        if one is not None
    ]
    sides = opened(runs, match, allow_code=allow_code)
    settings = runs[0].settings
    level = level_of(settings) if confidence_level is None else confidence_level
    checked_level(level)
    texts = settings.get("gates", []) if requirements is None else requirements
    if not texts:
        raise UsageError(
            'no requirement: give one, such as --require "large > medium", or write `gates:` in '
            "the recipe and run it"
        )
    wanted = [_read(text, sides) for text in texts]
    # Counts are exact: they take no share of the error.
    n_estimated = sum(one.left.measure not in _EXACT for one in wanted)
    each = 1.0 - (1.0 - level) / max(1, n_estimated)
    return GateResult(
        requirements=tuple(map(Deciding(sides, each).decide, wanted)),
        run=runs[0].metadata,
        against=runs[1].metadata if against is not None else None,
        confidence_level=level,
        level=each,
        notes=tuple(
            f"{one.path}: {n:,} units failed ({100 * n / max(1, one.completeness.total):.1f} %); "
            "what they would have shown is missing"
            for one in runs
            if (n := one.completeness.failed)
        ),
    )


def hold(result: Result, note: Callable[[str], None]) -> None:
    """Hold a run that has just ended against the gates of its recipe; keep the verdict in it.

    A run that was interrupted is not held against them. Requirements that name an older run are
    left to `gate`. `note` is called with what to know besides, a sentence each.

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
    """A requirement whose names the runs have."""
    try:
        found = read_checked(text, sides[0].names)
    except UnreadableError as error:
        raise UsageError(str(error)) from error
    if len(sides) < 2 and any(term.run == "old" for term in found.terms):
        raise UsageError(f"{text}: it names the old run; give one with --against RUN")
    return found
