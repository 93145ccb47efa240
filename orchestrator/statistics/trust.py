"""The rule that decides whether a ranking by a judge can be trusted.

Three findings decide, each against a threshold whose default is derived in `docs/statistics.md`:

* the probability on the labels: a reading with less than half on them shows what was not said;
* order effects: a judge that does not look at the answers names different winners in at least half
  of the pairs that it decides in both orders, q² + (1 - q)² if it takes the first with chance q;
* missing judgments: without half of them, of all or of one model, there is no majority.

The first and the last are about the judgments of the ranking and are known without error. Flips are
a sample: the interval over clusters of prompts decides. Of few decided pairs that is the cause.
"""

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

import numpy as np

from orchestrator.records import Floats, Ints
from orchestrator.statistics.judgments import CoverageSummary, summarise_coverage
from orchestrator.statistics.means import clustered_share
from orchestrator.statistics.resampling import codes_of
from orchestrator.statistics.results import Estimate, Thresholds

Verdict = Literal["trusted", "not trusted", "cannot be said yet"]
Ground = Literal["form", "order", "ties", "missing"]
"""A finding against a judge: its probability on the labels, order effects, hardly a decision in
both orders, missing judgments."""

SHORT: Final[dict[Ground, str]] = {
    "form": "does not answer in the requested form",
    "order": "contradicts itself by order",
    "ties": "hardly ever decides",
    "missing": "has too few judgments",
}
"""Predicates for a judge, where there is no room for numbers."""

_TINY: Final = 5e-4
_PREFIX: Final = "a `prefix` that begins the judge's reply where a label follows"
_EXAMPLES: Final = "`examples` of judgments"
_REASONS: Final = "`chain_of_thought: true`"
_LABELS: Final = "fewer labels"
_ORDER: Final = (_REASONS, _EXAMPLES, "another prompt", _LABELS, "another judge")
_ADVICE: Final[dict[Ground, tuple[str, ...]]] = {
    "form": ("another prompt", _PREFIX, _EXAMPLES, _LABELS, _REASONS, "another judge"),
    "order": _ORDER,
    "ties": _ORDER,
    # Of replies that say nothing; what failed is not for the judge to mend.
    "missing": ("another prompt", _EXAMPLES, "another judge"),
}
# Below this share of pairs decided in both orders, ties are what a judge is about.
_FEW_DECIDED: Final = 0.1
_MOST_PROMPTS: Final = 100_000
SETTINGS: Final = {
    _PREFIX: "prefix",
    _EXAMPLES: "examples",
    _REASONS: "chain_of_thought",
    _LABELS: "labels",
}
"""Advice that needs a setting of the method, and the setting."""

DEFAULTS: Final = Thresholds()


class OfModel(NamedTuple):
    """Judgments about one model.

    Attributes:
        model: Its name.
        n_units: Judgments asked for that have ended.
        n_missing: Of these, those that failed or are undefined.
    """

    model: str
    n_units: int
    n_missing: int


@dataclass(frozen=True, slots=True)
class Judgments:
    """The judgments of one judge.

    Attributes:
        masses: Probability on the labels of each reading, any shape; nan is unknown.
        decision_ab: Shape (n,), of each pair of different answers judged in both orders: 1 for
            model A, -1 for B, 0 for a tie, with A shown first.
        decision_ba: The same with B shown first.
        clusters: Shape (n,), cluster of prompts of each pair, any whole numbers.
        n_units: Judgments asked for that have ended.
        n_missing: Of these, those that failed or are undefined.
        of_models: The same by model; empty where that is not known.
        causes: Why judgments are missing, the most frequent first, and how many.
    """

    masses: Floats
    decision_ab: Floats
    decision_ba: Floats
    clusters: Ints
    n_units: int
    n_missing: int
    of_models: tuple[OfModel, ...] = ()
    causes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of the judgments of one judge, by which the rule decides.

    Attributes:
        n_readings: Readings whose probability on the labels is known.
        n_low: Of these, those with less than `Thresholds.mass`.
        n_pairs: Pairs of different answers judged in both orders.
        decided: Shape (P,), of these the pairs decided in both orders, by cluster of prompts.
        flipped: Shape (P,), of those the pairs whose winner changes with the order.
        n_units: Judgments asked for that have ended.
        n_missing: Of these, those that failed or are undefined.
        of_models: The same by model; empty where that is not known.
    """

    n_readings: int
    n_low: int
    n_pairs: int
    decided: Floats
    flipped: Floats
    n_units: int
    n_missing: int
    of_models: tuple[OfModel, ...] = ()

    @property
    def most_missing(self) -> OfModel | None:
        """The model with the largest share of missing judgments, among those that have any left."""
        left = [one for one in self.of_models if one.n_missing < one.n_units]
        return max(left, key=lambda one: one.n_missing / one.n_units, default=None)


@dataclass(frozen=True, slots=True)
class Trust:
    """The verdict on a judge, with what it rests on.

    Attributes:
        judge: Name; empty where rows name none.
        verdict: Whether a ranking by this judge can be trusted.
        reasons: What speaks against it, or why it cannot be said, in words; empty for neither.
        advice: What to try.
        coverage: Probability on the labels.
        flips: Share of pairs whose winner changes with the order, of those that are decided in
            both, with a two-sided interval of which each side errs with 1 - confidence level.
        n_decided: Pairs decided in both orders.
        n_pairs: Pairs of different answers judged in both orders.
        n_units: Judgments that have ended.
        n_missing: Of these, those without a result.
        grounds: Findings against the judge; empty where there are none.
        of_models: Judgments and missing ones by model; empty where that is not known.
        causes: Why judgments are missing, the most frequent first, and how many.
    """

    judge: str
    verdict: Verdict
    reasons: tuple[str, ...]
    advice: tuple[str, ...]
    coverage: CoverageSummary
    flips: Estimate
    n_decided: int
    n_pairs: int
    n_units: int
    n_missing: int
    grounds: tuple[Ground, ...] = ()
    of_models: tuple[OfModel, ...] = ()
    causes: tuple[tuple[str, int], ...] = ()


Trusts = Mapping[str, Sequence[Trust]]
"""The verdicts on the judges of each method, by its name."""


def assess(
    judge: str,
    judgments: Judgments,
    thresholds: Thresholds = DEFAULTS,
    confidence_level: float = 0.95,
) -> Trust:
    """Decide whether a ranking by a judge can be trusted.

    By flips, a judge is trusted if they are fewer than those of a judge that does not look at the
    answers (`flips`), and not trusted if this can't be shown although they are more than those of
    a usable judge (`usable_flips`). To trust a judge that looks only at the order, and to refuse a
    usable one, has at most the chance 1 - confidence level. Of fewer pairs it cannot be said yet.

    Raises:
        StatisticsError: If the level is not in (0, 1).
    """
    counts = counted(judgments, thresholds)
    coverage = summarise_coverage(judgments.masses, thresholds.mass)
    flips = _flips(counts, confidence_level)
    n_decided, n_pairs = int(counts.decided.sum()), counts.n_pairs
    words = _order_words(flips, n_decided, n_pairs, thresholds)
    against = grounds(counts, thresholds, confidence_level)
    reasons = [_reason(ground, words, coverage, counts, thresholds) for ground in against]
    is_unread = any(cause == "undefined" for cause, _ in judgments.causes[:1])
    advice = [one for of in against if of != "missing" or is_unread for one in _ADVICE[of]]
    verdict = "not trusted" if against else _by_order(flips, n_pairs, thresholds)
    if verdict == "cannot be said yet":
        n_clusters = len(np.unique(judgments.clusters))
        reasons, advice = [words], _more_words(counts, n_clusters, thresholds, confidence_level)
    return Trust(
        judge=judge,
        verdict=verdict,
        reasons=tuple(reasons),
        advice=tuple(dict.fromkeys(advice)),
        coverage=coverage,
        flips=flips,
        n_decided=n_decided,
        n_pairs=n_pairs,
        n_units=counts.n_units,
        n_missing=counts.n_missing,
        grounds=against,
        of_models=judgments.of_models,
        causes=judgments.causes,
    )


def followable(trust: Trust, settings: Collection[str]) -> Trust:
    """Return a verdict without the advice that a method has no setting for.

    `settings` are those of the method that are not in use.
    """
    advice = tuple(line for line in trust.advice if SETTINGS.get(line, "") in ("", *settings))
    return replace(trust, advice=advice)


def counted(
    judgments: Judgments, thresholds: Thresholds = DEFAULTS, *, n_clusters: int = 0
) -> Counts:
    """Return the counts of some judgments; clusters without a decided pair are left out.

    Of `n_clusters`, numbered from 0 on, all are counted.
    """
    masses = judgments.masses[~np.isnan(judgments.masses)]
    products = judgments.decision_ab * judgments.decision_ba
    decided = products != 0
    codes = judgments.clusters[decided] if n_clusters else codes_of(judgments.clusters[decided])
    return Counts(
        n_readings=int(masses.size),
        n_low=int((masses < thresholds.mass).sum()),
        n_pairs=len(products),
        decided=np.bincount(codes, minlength=n_clusters).astype(np.float64),
        flipped=np.bincount(codes, products[decided] < 0, n_clusters).astype(np.float64),
        n_units=judgments.n_units,
        n_missing=judgments.n_missing,
        of_models=judgments.of_models,
    )


def grounds(
    counts: Counts, thresholds: Thresholds = DEFAULTS, confidence_level: float = 0.95
) -> tuple[Ground, ...]:
    """Return the findings against a judge, by the rule of `assess`; empty where there are none.

    Raises:
        StatisticsError: If the level is not in (0, 1).
    """
    n_readings, n_units = counts.n_readings, counts.n_units
    flips = _flips(counts, confidence_level)
    is_refused = _by_order(flips, counts.n_pairs, thresholds) == "not trusted"
    decides = bool(counts.decided.sum() >= _FEW_DECIDED * counts.n_pairs)
    most = counts.most_missing
    found: dict[Ground, bool] = {
        "form": n_readings > 0 and counts.n_low / n_readings >= thresholds.low_readings,
        "order": is_refused and decides,
        "ties": is_refused and not decides,
        "missing": (n_units > 0 and counts.n_missing >= thresholds.missing * n_units)
        or (most is not None and most.n_missing >= thresholds.missing * most.n_units),
    }
    return tuple(ground for ground, is_so in found.items() if is_so)


def _flips(counts: Counts, level: float) -> Estimate:
    """Return the share of flips; each side of its interval has the level by itself."""
    # A level of one half or less has no two-sided counterpart.
    return clustered_share(counts.flipped, counts.decided, max(2.0 * level - 1.0, 0.01))


def _by_order(flips: Estimate, n_pairs: int, thresholds: Thresholds) -> Verdict:
    if not n_pairs:
        return "trusted"
    if flips.interval is None:
        return "cannot be said yet"
    if flips.interval.high < thresholds.flips:
        return "trusted"
    return "not trusted" if flips.interval.low > thresholds.usable_flips else "cannot be said yet"


def _reason(
    ground: Ground, words: str, coverage: CoverageSummary, counts: Counts, thresholds: Thresholds
) -> str:
    """Say what speaks against a judge; `words` are those on its order effects."""
    if ground == "missing":
        n_missing, n_units, where = counts.n_missing, counts.n_units, ""
        most = counts.most_missing
        if n_missing < thresholds.missing * n_units and most is not None:
            n_missing, n_units, where = most.n_missing, most.n_units, f" with {most.model}"
        of = f"{n_missing:,} of {n_units:,} cases{where}"
        return f"has no judgment in {of}, too many for a majority"
    if ground == "form":
        mean = f"{coverage.mean:.2f}" if coverage.mean >= 10 * _TINY else "<0.01"
        half = "half" if thresholds.mass == 0.5 else f"{100 * thresholds.mass:g} %"
        words = (
            f"in {100 * coverage.share_low:.0f} % of its readings less than {half} of the "
            f"probability is on the labels, mean {mean}"
        )
    return f"{SHORT[ground]} ({words})"


def _order_words(flips: Estimate, n_decided: int, n_pairs: int, thresholds: Thresholds) -> str:
    if not n_decided:
        return f"of {n_pairs:,} pairs none has a winner in both orders"
    pairs = "1 pair" if n_decided == 1 else f"{n_decided:,} pairs"
    if n_decided < _FEW_DECIDED * n_pairs:
        n_flipped = round(flips.value * n_decided)
        return (
            f"only {n_decided:,} of {n_pairs:,} pairs have a winner in both orders, the others are "
            f"ties in one order or both; of the {n_decided:,}, the winner flips with the order in "
            f"{n_flipped:,}"
        )
    share = f"{100 * flips.value:.0f} %"
    if flips.interval is not None:
        low, high = 100 * flips.interval.low, 100 * flips.interval.high
        level = 100 * flips.interval.confidence_level
        share += f" (from {low:.0f} % to {high:.0f} %, a {level:.3g} % interval)"
    return (
        f"its winner flips with the order in {share} of the {pairs} with a winner in both orders; "
        f"a judge that sees only the order flips in {100 * thresholds.flips:g} % or more"
    )


def _more_words(counts: Counts, n_clusters: int, thresholds: Thresholds, level: float) -> list[str]:
    """Say how many more clusters would settle it if they are like these, or what else may."""
    n = len(counts.decided)
    if not n:
        return [*_ORDER]

    def settles(n_prompts: int) -> bool:
        decided, flipped = (np.resize(one, n_prompts) for one in (counts.decided, counts.flipped))
        flips = _flips(replace(counts, decided=decided, flipped=flipped), level)
        return _by_order(flips, counts.n_pairs, thresholds) != "cannot be said yet"

    sizes = range(n + 1, _MOST_PROMPTS + 1)
    at = bisect_left(sizes, 1, key=settles)
    if at == len(sizes):
        return [f"another judge: more than {_MOST_PROMPTS:,} prompts like these would be needed"]
    more = math.ceil((at + 1) * n_clusters / n)
    return [f"about {more:,} more independent prompts"]


def no_ranking(trusts: Sequence[Trust]) -> str:
    """Return the sentence that replaces the headline; empty where every judge can be used."""
    bad = [trust for trust in trusts if trust.verdict == "not trusted"]
    if not bad:
        return ""
    said = "; ".join(f"{_who(trust)} {' and '.join(trust.reasons)}" for trust in bad)
    meaningless = "The scores, win rates, ratings and orders are meaningless."
    return f"No ranking: {said}. {meaningless}{_advice(bad)}"


def no_ranking_by_judge(trusts: Sequence[Trust]) -> dict[str, str]:
    """Return the sentence of `no_ranking` for each judge, and under "" the one for all together."""
    return {"": no_ranking(trusts), **{trust.judge: no_ranking([trust]) for trust in trusts}}


def not_known_yet(trusts: Sequence[Trust]) -> str:
    """Return the sentence on judges of which too little is known; empty for none."""
    open_ = [trust for trust in trusts if trust.verdict == "cannot be said yet"]
    if not open_:
        return ""
    said = "; ".join(f"{_who(trust)}: {' and '.join(trust.reasons)}" for trust in open_)
    return (
        f"Whether {_who(open_[0]) if len(open_) == 1 else 'the judges'} can be trusted cannot be "
        f"said yet ({said}).{_advice(open_)}"
    )


def no_verdict(trusts: Sequence[Trust]) -> str:
    """Return why nothing can be concluded by these judges; empty where every one can be trusted."""
    return no_ranking(trusts) or not_known_yet(trusts)


def _who(trust: Trust) -> str:
    return trust.judge or "the judge"


def _advice(trusts: Sequence[Trust]) -> str:
    options = list(dict.fromkeys(line for trust in trusts for line in trust.advice))
    said = " or ".join([", ".join(options[:-1]), options[-1]] if options[1:] else options)
    return f" Try {said}." if said else ""
