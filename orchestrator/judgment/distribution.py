"""From the log-probabilities of labels to a distribution over them, with what is not known.

Nothing is filled in: a label that the server did not report has probability 0 as an estimate and
an interval that says how much it could be; where nothing is known there is no distribution.
"""

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from orchestrator.errors import StatisticsError

UNRELIABLE_BELOW: Final = 0.5
"""Mass on the labels under which a judgment rests mostly on what the model did not want to say."""

EXCESS: Final = 1e-2
"""Mass above one that rounding on a server explains; more than that is no probability."""


class LabelDistribution(msgspec.Struct, frozen=True, gc=False):
    """Probabilities of K labels, renormalised over them.

    Attributes:
        probabilities: K floats that sum to 1; None where they are undefined (see `undefined`).
        low: Lower bounds of the same; equal to `probabilities` where `exact`.
        high: Upper bounds of the same.
        coverage: Mass on the labels before renormalising, in [0, 1]; a lower bound where not
            `exact`; nan where nothing is known.
        exact: Whether the probability of every label is known, not only bounded.
        undefined: Why there are no probabilities; None where there are.
    """

    probabilities: tuple[float, ...] | None
    low: tuple[float, ...] | None
    high: tuple[float, ...] | None
    coverage: float
    exact: bool
    undefined: str | None = None

    def mean_bounds(self, values: Sequence[float]) -> tuple[float, float]:
        """Least and greatest mean of `values` (K floats) that the known bounds allow.

        Both are the mean itself, up to rounding, where the distribution is exact; nan where it is
        undefined.
        """
        if self.probabilities is None or self.low is None or self.high is None:
            return math.nan, math.nan
        negated = [-value for value in values]
        return (
            -_greatest_mean(negated, self.low, self.high),
            _greatest_mean(values, self.low, self.high),
        )


def from_logprobs(
    logprobs: Sequence[float], upper: Sequence[float] | None = None
) -> LabelDistribution:
    """The distribution over K labels, given ln p of each over the whole vocabulary.

    `logprobs` are K natural logarithms: nan is unknown, -inf a true zero. `upper` are bounds of the
    same; nan or None where there is none, which leaves the mass that no known label holds.

    Raises:
        StatisticsError: If there are no labels or `upper` has another length.
    """
    if not logprobs or (upper is not None and len(upper) != len(logprobs)):
        raise StatisticsError(
            f"a label distribution needs one log-probability and one bound a label, got "
            f"{len(logprobs)} and {None if upper is None else len(upper)}"
        )
    known = [value for value in logprobs if not math.isnan(value)]
    exact = len(known) == len(logprobs)
    peak = max(known, default=math.nan)
    if not -math.inf < peak <= EXCESS:
        # Nothing known, no mass on any known label, or no logarithm of a share.
        coverage = math.nan if math.isnan(peak) or peak > 0 else 0.0
        reason = "no label with mass has a known log-probability"
        if math.isnan(peak):
            reason = "no label's log-probability is known"
        elif peak > 0:
            reason = f"ln p of a label is {peak:.4g}"
        elif exact:
            reason = "every label has probability zero"
        return LabelDistribution(None, None, None, coverage, exact, reason)
    # Shifted by the largest, so that labels far below the top of the vocabulary do not underflow.
    weights = [0.0 if math.isnan(value) else math.exp(value - peak) for value in logprobs]
    total = sum(weights)
    unit = math.exp(peak)
    mass = total * unit
    if mass > 1.0 + EXCESS:
        reason = f"the labels' probabilities add up to {mass:.4g}"
        return LabelDistribution(None, None, None, math.nan, exact, reason)
    probabilities = tuple([weight / total for weight in weights])
    coverage = min(mass, 1.0)
    if exact:
        return LabelDistribution(probabilities, probabilities, probabilities, coverage, exact=True)
    return _bounded(logprobs, upper, [weight * unit for weight in weights], probabilities)


def mixture(distributions: Sequence[LabelDistribution]) -> LabelDistribution:
    """The average of n distributions over the same K labels, each of the same weight.

    With one distribution for each of n traces this is the marginal over traces, as far as n draws
    show it. Bounds are those of the average; it is undefined where one of them is.

    Raises:
        StatisticsError: If there are none, or they have different labels.
    """
    widths = {len(one.probabilities) for one in distributions if one.probabilities is not None}
    if not distributions or len(widths) > 1:
        raise StatisticsError(f"a mixture needs distributions over the same labels, got {widths}")
    if len(distributions) == 1:
        return distributions[0]
    n = len(distributions)

    def averaged(rows: Sequence[tuple[float, ...] | None]) -> tuple[float, ...] | None:
        given = [row for row in rows if row is not None]
        if len(given) < n:
            return None
        return tuple([sum(column) / n for column in zip(*given, strict=True)])

    reasons = [one.undefined for one in distributions if one.undefined is not None]
    return LabelDistribution(
        averaged([one.probabilities for one in distributions]),
        averaged([one.low for one in distributions]),
        averaged([one.high for one in distributions]),
        sum(one.coverage for one in distributions) / n,
        all(one.exact for one in distributions),
        reasons[0] if reasons else None,
    )


def _bounded(
    logprobs: Sequence[float],
    upper: Sequence[float] | None,
    masses: list[float],
    probabilities: tuple[float, ...],
) -> LabelDistribution:
    """Bounds of each share, given that unknown masses lie between 0 and their upper bound."""
    known = sum(masses)
    spare = max(0.0, 1.0 - known)
    ceilings = list(masses)
    for i, value in enumerate(logprobs):
        if math.isnan(value):
            bound = math.nan if upper is None else upper[i]
            ceilings[i] = spare if math.isnan(bound) else min(math.exp(min(bound, 0.0)), spare)
    free = sum(ceilings) - known
    low, high = [], []
    for i, mass in enumerate(masses):
        others = min(free - (ceilings[i] - mass), spare)
        least = known - mass + others + mass
        most = known - mass + ceilings[i]
        low.append(mass / least if least > 0 else probabilities[i])
        high.append(ceilings[i] / most if most > 0 else probabilities[i])
    return LabelDistribution(probabilities, tuple(low), tuple(high), min(known, 1.0), exact=False)


def _greatest_mean(values: Sequence[float], low: Sequence[float], high: Sequence[float]) -> float:
    """The largest mean over shares between `low` and `high` that sum to one.

    Shares start at their lower bounds; what is left goes to the largest values first.
    """
    mean = sum(share * value for share, value in zip(low, values, strict=True))
    left = max(0.0, 1.0 - sum(low))
    for value, least, most in sorted(zip(values, low, high, strict=True), reverse=True):
        taken = min(left, most - least)
        mean += taken * value
        left -= taken
    return mean
