"""Pearson, Spearman and Kendall's tau-b, also without each cluster.

Own code rather than `scipy.stats`: that module takes longer to import than a whole command does,
and has no leave-one-cluster-out.
"""

import math
from collections.abc import Iterator
from typing import Final, Literal, get_args

import numpy as np

from orchestrator.records import Floats, Ints
from orchestrator.statistics.means import scaled


def pair_sums(x: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Sums over the pairs that each point is in, in O(n (log n)^2) time and O(n) memory.

    Each of shape (n,): pairs ordered alike in x and y, minus those ordered oppositely; pairs that
    differ in x; pairs that differ in y.

    Both have shape (n,), no nan.
    """
    code_x, code_y = _codes(x), _codes(y)
    same_x, same_y = np.bincount(code_x)[code_x], np.bincount(code_y)[code_y]
    order = np.lexsort((code_y, code_x))
    agree = np.empty(x.size)
    agree[order] = _signed_order(code_y[order])
    # Points of one x stand in the order of y, which says nothing: taken out again.
    both = _codes(code_x * (int(code_y.max()) + 1) + code_y)
    agree -= same_x - np.bincount(both)[both]
    return agree, (x.size - same_x).astype(float), (x.size - same_y).astype(float)


def _codes(values: Floats | Ints) -> Ints:
    return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _signed_order(codes: Ints) -> Floats:
    """For each place i, the sum over j of sign(i - j) sign(codes[i] - codes[j]); shape (n,).

    Merges sorted blocks of doubling length, all blocks of a length at once: the numbers smaller
    and larger in the neighbouring block are what two searches in one sorted array tell.
    """
    n, span = codes.size, int(codes.max()) + 1
    result = np.zeros(n, dtype=np.int64)
    place = np.arange(n)
    order = place.copy()
    size = 1
    while size < n:
        block = place // size
        # `order` lists the places block by block, each block sorted by code.
        keys = block[order] * span + codes[order]
        other = (block ^ 1)[order] * span + codes[order]
        start = np.searchsorted(keys, (block ^ 1)[order] * span)
        stop = np.searchsorted(keys, ((block ^ 1)[order] + 1) * span)
        less = np.searchsorted(keys, other, side="left") - start
        more = stop - np.searchsorted(keys, other, side="right")
        result[order] += np.where(block[order] & 1, less - more, more - less)
        size *= 2
        order = np.argsort((place // size) * span + codes, kind="stable")
    return result.astype(np.float64)


Kind = Literal["pearson", "spearman", "kendall"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

EXACT_CELLS: Final = 4_000_000
"""Clusters times points up to which Spearman is ranked anew without each cluster."""

_NO_SPREAD: Final = 1e-12
_CHUNK_CELLS: Final = 2**20


def association(x: Floats, y: Floats, kind: Kind) -> float:
    """The correlation of two finite arrays of shape (n,); nan where either is constant.

    Source: tau-b is Kendall 1945, doi:10.1093/biomet/33.3.239; Spearman is Pearson of midranks.
    """
    if x.size < 2 or x.min() == x.max() or y.min() == y.max():
        return math.nan
    if kind == "kendall":
        return float(_tau(*(part.sum() / 2 for part in pair_sums(x, y))))
    if kind == "spearman":
        x, y = midranks(x), midranks(y)
    return float(_from_moments(np.array([one.sum() for one in _moments(x, y)])))


def midranks(values: Floats) -> Floats:
    """Ranks from 1, equal values sharing the mean of theirs; shape (n,)."""
    _, code, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - 0.5 * (counts - 1))[code.reshape(-1)]


def leave_one_out(x: Floats, y: Floats, clusters: Ints, kind: Kind) -> Floats:
    """The correlation without each of the P clusters, shape (P,); nan where it is undefined.

    Exact, except for Spearman where clusters times points exceed `EXACT_CELLS`: there by its
    influence function, which differs by terms of the order 1 / P of the change. `x` and `y` are
    finite, shape (n,); `clusters` (n,) in [0, P), each with at least one point.
    """
    n_clusters = int(clusters.max()) + 1
    if kind == "pearson":
        columns = [np.bincount(clusters, one, minlength=n_clusters) for one in _moments(x, y)]
        parts = np.stack(columns, axis=-1).astype(np.float64)
        return _from_moments(parts.sum(axis=0) - parts)
    if kind == "kendall":
        left = []
        inside = _pairs_inside(x, y, clusters, n_clusters)
        for total, own in zip(pair_sums(x, y), inside, strict=True):
            touched = np.bincount(clusters, total, minlength=n_clusters)
            # Pairs within the cluster were met from both ends.
            left.append(total.sum() / 2 - (touched - own))
        return _tau(*left)
    if n_clusters * x.size > EXACT_CELLS:
        return _spearman_by_influence(x, y, clusters, n_clusters)
    rows = max(1, _CHUNK_CELLS // x.size)
    chunks = [
        1.0 - np.eye(min(rows, n_clusters - begin), n_clusters, begin)
        for begin in range(0, n_clusters, rows)
    ]
    return np.concatenate([_weighted_spearman(x, y, chunk[:, clusters]) for chunk in chunks])


def _moments(x: Floats, y: Floats) -> Iterator[Floats]:
    """Yield what Pearson is made of, six of shape (n,): values have mean 0 and spread 1."""
    x, y = (scaled(values)[0] for values in (x, y))
    one = (x - x.mean()) / x.std()
    two = (y - y.mean()) / y.std()
    yield np.ones_like(one)
    yield from (one, two)
    yield from (a * b for a, b in ((one, one), (two, two), (one, two)))


def _from_moments(moments: Floats) -> Floats:
    """Pearson from sums of moments, shape (..., 6) to (...)."""
    n, x, y, xx, yy, xy = np.moveaxis(moments, -1, 0)
    safe = np.maximum(n, 1.0)
    var_x, var_y = xx / safe - (x / safe) ** 2, yy / safe - (y / safe) ** 2
    defined = (n > 1.0) & (var_x > _NO_SPREAD) & (var_y > _NO_SPREAD)
    scale = np.sqrt(np.where(defined, var_x * var_y, 1.0))
    value = (xy / safe - x * y / safe**2) / scale
    return np.where(defined, np.clip(value, -1.0, 1.0), np.nan)


def _weighted_spearman(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Spearman of points that count `weights` times, shape (B, n) to (B,)."""
    one, two = _weighted_midranks(x, weights), _weighted_midranks(y, weights)
    n = weights.sum(axis=1, keepdims=True)
    # Midranks have mean (n + 1) / 2 whatever the ties.
    one -= 0.5 * (n + 1.0)
    two -= 0.5 * (n + 1.0)
    cov, var_x, var_y = (
        np.einsum("bi,bi,bi->b", weights, a, b) for a, b in ((one, two), (one, one), (two, two))
    )
    defined = (var_x > _NO_SPREAD) & (var_y > _NO_SPREAD)
    value = cov / np.sqrt(np.where(defined, var_x * var_y, 1.0))
    return np.where(defined, np.clip(value, -1.0, 1.0), np.nan)


def _weighted_midranks(values: Floats, weights: Floats) -> Floats:
    code = _codes(values)
    order = np.argsort(code, kind="stable")
    starts = np.searchsorted(code[order], np.arange(int(code.max()) + 1))
    totals = np.add.reduceat(weights[:, order], starts, axis=1)
    ranks = np.cumsum(totals, axis=1) - 0.5 * (totals - 1.0)
    return ranks[:, code]


def _spearman_by_influence(x: Floats, y: Floats, clusters: Ints, n_clusters: int) -> Floats:
    n, codes = x.size, [_codes(values) for values in (x, y)]
    ranks = [(midranks(values) - 0.5) / n - 0.5 for values in (x, y)]
    variances = [np.square(one).mean() for one in ranks]
    scale = math.sqrt(math.prod(variances))
    # A point counts by its own ranks, and by moving the ranks of the points above it.
    influence = np.multiply(*ranks)
    value = influence.mean() / scale
    for code, other in zip(codes, reversed(ranks), strict=True):
        influence += _mean_above(code, other)
    influence /= scale
    for code, own, variance in zip(codes, ranks, variances, strict=True):
        influence -= 0.5 * value / variance * (np.square(own) + 2.0 * _mean_above(code, own))
    influence -= influence.mean()
    sizes = np.bincount(clusters, minlength=n_clusters)
    shift = np.bincount(clusters, influence, minlength=n_clusters) / np.maximum(n - sizes, 1)
    result: Floats = np.clip(value - shift, -1.0, 1.0)
    return result


def _mean_above(code: Ints, of: Floats) -> Floats:
    """For each point, the sum of `of` over points with a larger code (equal: half), over n."""
    totals = np.bincount(code, of)
    above = totals.sum() - np.cumsum(totals) + 0.5 * totals
    result: Floats = (above / code.size)[code]
    return result


def _tau(agree: Floats, differ_x: Floats, differ_y: Floats) -> Floats:
    defined = (np.asarray(differ_x) > 0.5) & (np.asarray(differ_y) > 0.5)
    # The root of the product: of equal numbers it is exact, so that the same order has exactly 1.
    scale = np.sqrt(np.where(defined, differ_x, 1.0) * np.where(defined, differ_y, 1.0))
    return np.where(defined, np.clip(agree / scale, -1.0, 1.0), np.nan)


def _pairs_inside(x: Floats, y: Floats, clusters: Ints, n_clusters: int) -> Floats:
    """Shape (3, P): sums over the pairs within each cluster.

    With every cluster above the one before it in x and in y, two points of different clusters are
    ordered alike and differ in both: what is left of the sums is that of pairs within.
    """
    sizes = np.bincount(clusters, minlength=n_clusters)
    if sizes.max() == 1:
        return np.zeros((3, n_clusters))
    above: Floats = clusters * np.float64(x.size)
    others = x.size - sizes[clusters]
    sums = [
        np.bincount(clusters, part - others, n_clusters) / 2
        for part in pair_sums(above + _codes(x), above + _codes(y))
    ]
    return np.stack(sums)
