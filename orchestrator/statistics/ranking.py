"""Results of a ranking's analysis; undefined numbers are None, an open bound has its flag."""

from dataclasses import dataclass
from itertools import pairwise

from orchestrator.statistics.judgments import CoverageSummary, PositionEffects
from orchestrator.statistics.trust import Trust


@dataclass(frozen=True, slots=True)
class ModelRating:
    """One model's place.

    Attributes:
        model: Name.
        rating: Elo scale, mean 1000; None where undefined, or open where it won or lost all.
        low: Lower bound; None where open or where there is no interval.
        high: Upper bound likewise.
        low_open: Whether the data do not bound the rating from below.
        high_open: Whether they do not bound it from above.
        rank: 1 is best, equal ratings share a rank; None where it cannot be ranked.
        rank_low: One more than the number of models that are better, as `pairs` say.
        rank_high: The number of ranked models less those that are worse, likewise.
        n_judgments: Judgments it rests on.
        n_items: Items that they come from.
        n_clusters: Clusters of these items, over which its interval is; as many where each item
            stands alone.
        n_missing: Units with this model that failed.
        mean_preference: Mean P(this model better), ties as half; None without judgments.
    """

    model: str
    rating: float | None
    low: float | None
    high: float | None
    low_open: bool
    high_open: bool
    rank: int | None
    rank_low: int | None
    rank_high: int | None
    n_judgments: int
    n_items: int
    n_clusters: int
    n_missing: int
    mean_preference: float | None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two models of the ranking, the better first.

    Attributes:
        better: Name.
        worse: Name.
        difference: Of ratings, in points; None where open or undefined.
        low: Lower bound, at `level`; None where open or where there is none.
        high: Upper bound likewise.
        p_value: Two-sided, of no difference; None where there is none.
        adjusted_p: The same after adjustment over all pairs of the ranking (Holm, Shaffer).
        resolvable: Whether the adjusted p-value is at most one minus the confidence level, and the
            judge can be trusted.
        level: Of the interval, above that of the ranking: the one at which it leaves out 0 exactly
            where the two can be told apart among all pairs; None without a test.
    """

    better: str
    worse: str
    difference: float | None
    low: float | None
    high: float | None
    p_value: float | None
    adjusted_p: float | None
    resolvable: bool
    level: float | None = None


@dataclass(frozen=True, slots=True)
class WinMatrix:
    """Mean preference for the row's model over the column's, in the order of `models`.

    Attributes:
        models: M names, best first.
        preference: M rows of M; None on the diagonal and where two were not compared.
        low: Lower bounds; None where there is no interval.
        high: Upper bounds likewise.
        n: Items that each cell comes from.
    """

    models: tuple[str, ...]
    preference: tuple[tuple[float | None, ...], ...]
    low: tuple[tuple[float | None, ...], ...]
    high: tuple[tuple[float | None, ...], ...]
    n: tuple[tuple[int, ...], ...]

    def place(self, model: str, other: str) -> tuple[int, int]:
        """Return the row and the column of two models."""
        return self.models.index(model), self.models.index(other)


@dataclass(frozen=True, slots=True)
class FailureCount:
    """Units that gave no judgment, by cause, with one of the messages."""

    cause: str
    n: int
    message: str


@dataclass(frozen=True, slots=True)
class CategoryRatings:
    """Ratings within one category of items, which are in so many clusters."""

    category: str
    n_items: int
    n_clusters: int
    ratings: tuple[ModelRating, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of reading the whole distribution with reading its mode.

    Attributes:
        decisions: Share of judgments in which mean and mode decide alike; None without any.
        tied_by_mode: Share in which the mode is a tie.
        kendall_tau: Tau-b between the rankings by mean and by mode; None where either has no
            order.
    """

    decisions: float | None
    tied_by_mode: float | None
    kendall_tau: float | None


@dataclass(frozen=True, slots=True)
class RankingAnalysis:
    """The ranking by one judge, or by all, with its uncertainty and its gaps.

    Attributes:
        judge: Name; None over all judges.
        judges: Whose judgments are in it.
        ratings: By the mean of the distribution, best first.
        mode_ratings: By its mode, as hard wins, best first.
        pairs: All pairs of models that have a rank, in the order of `ratings`.
        wins: Win matrix by the mean.
        position: Effects of the order of presentation; None without judgments.
        coverage: Label mass of both orders.
        agreement: Mean against mode.
        failures: Most frequent first.
        categories: Ratings by category, where there are several.
        n_units: Rows of the frame.
        n_judged: Rows that gave a judgment.
        n_exact: Judgments for which every label's probability was known.
        n_same_text: Judgments in which both answers were the same text.
        n_items: Items in the frame.
        n_items_used: Items with at least one judgment.
        n_clusters: Clusters of these, which intervals and tests are over; as many where each item
            stands alone.
        approximate: Whether a model has judgments on fewer than 20 clusters.
        confidence_level: Confidence level of every interval.
        method: Of the rating intervals.
        uncertainty: What the intervals cover.
        notes: Plain sentences: what is undefined, open or approximate, and why.
        source: Name of the method in the recipe; empty where it is not known.
        warning: Why it is no ranking, and what to try; empty where it is one. Then no pair is
            resolvable and the ranks are open.
        caution: Why it cannot be said yet whether its judges can be trusted; empty for nothing.
        trust: The verdict on each of its judges.
    """

    judge: str | None
    judges: tuple[str, ...]
    ratings: tuple[ModelRating, ...]
    mode_ratings: tuple[ModelRating, ...]
    pairs: tuple[Pair, ...]
    wins: WinMatrix
    position: PositionEffects | None
    coverage: CoverageSummary
    agreement: Agreement
    failures: tuple[FailureCount, ...]
    categories: tuple[CategoryRatings, ...]
    n_units: int
    n_judged: int
    n_exact: int
    n_same_text: int
    n_items: int
    n_items_used: int
    n_clusters: int
    approximate: bool
    confidence_level: float
    method: str
    uncertainty: str
    notes: tuple[str, ...]
    source: str = ""
    warning: str = ""
    caution: str = ""
    trust: tuple[Trust, ...] = ()

    @property
    def neighbours(self) -> tuple[Pair, ...]:
        """The pairs of consecutive models."""
        found = {(pair.better, pair.worse): pair for pair in self.pairs}
        ranked = [model.model for model in self.ratings if model.rank is not None]
        return tuple(found[pair] for pair in pairwise(ranked))

    @property
    def order_resolvable(self) -> bool:
        """True if any two models can be told apart."""
        return any(pair.resolvable for pair in self.pairs)
