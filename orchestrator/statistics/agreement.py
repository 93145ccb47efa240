"""Agreement of raters: raw, kappa, alpha; of orders of models, with each other or a true one."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Final, Literal

import numpy as np

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats, Ints
from orchestrator.statistics.association import association, midranks
from orchestrator.statistics.means import share_over
from orchestrator.statistics.resampling import (
    ARCSINE,
    JACKKNIFE,
    Resampling,
    codes_of,
    complete_rows,
    jackknife_sums,
    prompt_weights,
    sums_by_prompt,
)
from orchestrator.statistics.results import Estimate, checked_level

METHOD: Final = "jackknife over prompts on the arcsine scale, t quantile"

ENUMERATED_MODELS: Final = 8
"""Models up to which all orderings are gone through: 8! = 40,320."""


@dataclass(frozen=True, slots=True)
class RankingAgreement:
    """Agreement of two scores on the order of M models.

    Attributes:
        tau_b: Kendall's; None where undefined.
        spearman: Likewise.
        tau_p: Two-sided p-value of tau_b under random orderings.
        n_models: Models with both scores.
        undefined: Why there is nothing; None if there is.
    """

    tau_b: float | None
    spearman: float | None
    tau_p: float | None
    n_models: int
    undefined: str | None = None


def cohen_kappa(
    first: Floats, second: Floats, prompts: Ints, confidence_level: float = 0.95
) -> Estimate:
    """Cohen's kappa of two raters: (observed - expected) / (1 - expected) agreement.

    Source: Cohen 1960, doi:10.1177/001316446002000104. Interval over prompts. Category codes have
    shape (n,), nan where missing; `prompts` (n,).

    Raises:
        StatisticsError: If the shapes differ, or the level is not in (0, 1).
    """
    codes, (one, two), _ = complete_rows(prompts, (first, second))
    if not codes.size:
        return Estimate(math.nan, None, 0, METHOD, "no item was rated by both")
    categories = np.unique((one, two))
    columns = [(one == two).astype(float), np.ones(codes.size)]
    columns += [(one == category).astype(float) for category in categories]
    columns += [(two == category).astype(float) for category in categories]
    parts = sums_by_prompt(codes, columns)
    return _estimate(parts, parts[:, 1], _cohen, confidence_level)


def krippendorff_alpha(ratings: Floats, prompts: Ints, confidence_level: float = 0.95) -> Estimate:
    """Krippendorff's ordinal alpha of any number of raters: 1 - observed / expected disagreement.

    Source: Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability"; Hayes and Krippendorff
    2007, doi:10.1080/19312450709336664. Items with fewer than two ratings say nothing of agreement
    and are left out. Alpha is undefined where all ratings are equal, as then no disagreement is
    expected by chance. Interval over prompts. `ratings` have shape (n, R), items by raters: codes
    or values, nan where missing; `prompts` (n,). The disagreement of two ratings is the number of
    ratings from one to the other by rank, squared.

    Raises:
        StatisticsError: If the shapes do not fit, or a rating is infinite.
    """
    if ratings.ndim != 2 or prompts.shape != ratings.shape[:1]:
        raise StatisticsError(
            f"shapes of ratings {ratings.shape} and prompts {prompts.shape} do not match"
        )
    if np.isinf(ratings).any():
        raise StatisticsError("ratings must be finite")
    kept = (~np.isnan(ratings)).sum(axis=1) >= 2
    if not kept.any():
        return Estimate(math.nan, None, 0, METHOD, "no item with two ratings")
    codes = codes_of(prompts[kept])
    parts = sums_by_prompt(codes, _coincidences(ratings[kept]))
    return _estimate(parts, parts.sum(axis=1), _alpha, confidence_level)


def raw_agreement(
    first: Floats, second: Floats, prompts: Ints, confidence_level: float = 0.95
) -> Estimate:
    """Share of votes on which two agree, ties among them: the first of FastChat's two setups.

    Source: MT-Bench (Zheng et al. 2023, arXiv 2306.05685, Table 5), `compute_agreement.py`. Votes
    on the same pairs have shape (n,), nan where missing.
    """
    alike = np.where(np.isnan(first) | np.isnan(second), np.nan, first == second)
    return share_over(alike, prompts, confidence_level)


def ranking_agreement(first: Floats, second: Floats, resampling: Resampling) -> RankingAgreement:
    """Agreement of two scores of the same models, with p-values that are honest for few models.

    The p-value is the share of orderings that agree (or disagree) at least as much: of all M! up to
    `ENUMERATED_MODELS`, of drawn ones, with the seen one among them, beyond. With 4 models no
    ordering is significant at 5 %: the smallest p-value is 2 / 4! = 0.083. Scores have shape (M,),
    nan where missing; `resampling` says how many orderings are drawn for many models.

    Raises:
        StatisticsError: If the shapes differ.
    """
    _, (one, two), _ = complete_rows(np.arange(first.size), (first, second))
    n, few = one.size, one.size <= ENUMERATED_MODELS
    if n < 2 or np.all(one == one[0]) or np.all(two == two[0]):
        reason = "fewer than two models" if n < 2 else "all models are tied"
        return RankingAgreement(None, None, None, n, reason)
    x, y = midranks(one), midranks(two)
    if few:
        orders = np.array(list(permutations(range(n))))
    else:
        orders = np.argsort(resampling.rng.random((resampling.n_resamples, n)), axis=1)
    drawn, seen = _concordance(x, y[orders]), float(_concordance(x, y[None])[0])
    n_far = int((np.abs(drawn) >= abs(seen) - 1e-9).sum())
    p_value = n_far / drawn.size if few else (1 + n_far) / (1 + drawn.size)
    tau, rho = association(x, y, "kendall"), association(x, y, "spearman")
    return RankingAgreement(tau, rho, p_value, n)


def _estimate(
    parts: Floats, sizes: Floats, statistic: Callable[[Floats], Floats], confidence_level: float
) -> Estimate:
    found = jackknife_sums(parts, statistic)
    if math.isnan(found.value):
        return Estimate(math.nan, None, len(parts), METHOD, "all ratings are of one category")
    return found.estimate(METHOD, sizes, confidence_level, ARCSINE)


def _cohen(sums: Floats) -> Floats:
    """Kappa from (agreed, items, first rater's categories, second rater's), shape (B, 2 + 2K)."""
    n = np.maximum(sums[:, 1], 1.0)
    n_categories = (sums.shape[1] - 2) // 2
    one, two = sums[:, 2 : 2 + n_categories], sums[:, 2 + n_categories :]
    observed, expected = sums[:, 0] / n, (one * two).sum(axis=1) / n**2
    defined = expected < 1.0 - 1e-12
    return np.where(defined, (observed - expected) / np.where(defined, 1.0 - expected, 1.0), np.nan)


def _coincidences(ratings: Floats) -> list[Floats]:
    """Each item's part of the (V, V) matrix of coincidences, over the sorted values, by cell.

    An item with m ratings has m (m - 1) ordered pairs, which count 1 / (m - 1) each.
    """
    values = np.unique(ratings[~np.isnan(ratings)])
    counts = (ratings[:, :, None] == values).sum(axis=1).astype(np.float64)
    pairs = counts[:, :, None] * counts[:, None, :]
    at = np.arange(values.size)
    # A rating makes no pair with itself.
    pairs[:, at, at] -= counts
    n = counts.sum(axis=1)
    return list((pairs / (n - 1.0)[:, None, None]).reshape(n.size, -1).T)


def _alpha(sums: Floats) -> Floats:
    """Alpha by ranks, from coincidences (B, V * V); nan where chance gives no disagreement."""
    n_values = math.isqrt(sums.shape[1])
    matrices = sums.reshape(-1, n_values, n_values)
    marginals = matrices.sum(axis=2)
    # Number of ratings up to the middle of those with each value.
    middles = np.cumsum(marginals, axis=1) - 0.5 * marginals
    distances = (middles[:, :, None] - middles[:, None, :]) ** 2
    n = marginals.sum(axis=1)
    chance = marginals[:, :, None] * marginals[:, None, :]
    expected = (chance * distances).sum(axis=(1, 2)) / np.maximum(n - 1.0, 1.0)
    defined = expected > 1e-12 * n
    observed = (matrices * distances).sum(axis=(1, 2))
    return np.where(defined, 1.0 - observed / np.where(defined, expected, 1.0), np.nan)


def _concordance(x: Floats, y: Floats) -> Floats:
    over, under = np.triu_indices(x.size, 1)
    signs = np.sign(x[over] - x[under])
    return np.sign(y[:, over] - y[:, under]) @ signs


ORDER_METHOD: Final = f"{JACKKNIFE}, Bonferroni over pairs"

OfPair = Literal["right", "wrong", "open"]


@dataclass(frozen=True, slots=True)
class Ordering:
    """The order that a score gives to M models, against the true one.

    Attributes:
        means: Shape (M,); nan where a model has no value.
        share_right: Share of resamples of the prompts with exactly the true order; None where a
            model has no value.
        verdicts: For each pair (i, j), i truly better: whether the score says so with an interval
            that leaves out 0.
    """

    means: Floats
    share_right: float | None
    verdicts: dict[tuple[int, int], OfPair]

    def count(self, verdict: OfPair) -> int:
        """Pairs with that verdict."""
        return sum(found == verdict for found in self.verdicts.values())


def ordering(
    sums: Floats, counts: Floats, truth: Sequence[int], resampling: Resampling
) -> Ordering:
    """Compare the order of models by their mean score with the true order.

    `sums` and `counts`, shape (P, M), are of the score over a prompt's judgments; more is better.
    `truth` has indices of the models, best first; the level is that of all pairs together. Prompts
    are drawn with all their judgments.

    Raises:
        StatisticsError: If the shapes differ, or `truth` is no order of the models.
    """
    checked_level(resampling.confidence_level)
    n_models = sums.shape[1]
    if sums.shape != counts.shape or sorted(truth) != list(range(n_models)):
        raise StatisticsError("sums, counts and the true order must be of the same models")
    means = _means(sums.sum(axis=0), counts.sum(axis=0))
    pairs = list(combinations(truth, 2))
    level = 1.0 - (1.0 - resampling.confidence_level) / max(1, len(pairs))
    verdicts = {pair: _of_pair(sums[:, list(pair)], counts[:, list(pair)], level) for pair in pairs}
    share = None
    if np.isfinite(means).all() and len(sums):
        right = 0
        for weights in prompt_weights(len(sums), resampling.n_resamples, resampling.rng):
            drawn = _means(weights @ sums, weights @ counts)[:, list(truth)]
            # A tie is not the true order.
            right += int(np.all(drawn[:, :-1] > drawn[:, 1:], axis=1).sum())
        share = right / resampling.n_resamples
    return Ordering(means, share, verdicts)


def _means(sums: Floats, counts: Floats) -> Floats:
    return np.where(counts > 0, sums / np.where(counts > 0, counts, 1.0), np.nan)


def _of_pair(sums: Floats, counts: Floats, level: float) -> OfPair:
    """Decide one pair by its sums and counts, shape (P, 2), the truly better model first."""
    used = (counts > 0).any(axis=1)
    if not used.any():
        return "open"

    parts = np.hstack([sums, counts])[used]
    found = jackknife_sums(parts, lambda of: -np.diff(_means(of[:, :2], of[:, 2:]))[:, 0])
    if math.isnan(found.value):
        return "open"
    interval = found.estimate(ORDER_METHOD, counts[used].sum(axis=1), level).interval
    if interval is None or interval.contains(0.0):
        return "open"
    return "right" if found.value > 0 else "wrong"
