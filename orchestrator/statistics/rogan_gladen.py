"""Share of "yes" that people would give, from a judge's verdicts that are wrong at known rates."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from orchestrator.statistics.prediction_powered import Labelled
from orchestrator.statistics.results import Estimate, Interval, checked_level

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROGAN_GLADEN: Final = "Rogan-Gladen, interval of Lang and Reiczigel"

MIN_LABELS: Final = 10
"""Independent labels that say yes, and as many that say no, under which there is no interval.

With this at 1, intervals for a level of 95 % from 20 of 300 and 50 of 2,000 labels cover 78 to 97 %
in the worlds of `benchmarks/human_labels.py` with one row a prompt, least where 88 % of the labels
say yes; the source shows it from about 30 on.
"""


@dataclass(frozen=True, slots=True)
class Share:
    """A share in [0, 1] and the number of verdicts that it rests on.

    Attributes:
        value: nan where there are none.
        n: Verdicts, or the independent verdicts that would be as precise.
    """

    value: float
    n: float


@dataclass(frozen=True, slots=True)
class Rates:
    """A judge's verdicts and how often they are right.

    Attributes:
        apparent: Share of yes.
        sensitivity: Share of yes where people say yes.
        specificity: Share of no where people say no.
    """

    apparent: Share
    sensitivity: Share
    specificity: Share


def rogan_gladen(rates: Rates, confidence_level: float = 0.95) -> Estimate:
    """Corrected share with its interval; undefined for a judge no better than chance.

    The value is cut to [0, 1], and so is the interval.

    Source: Rogan and Gladen 1978 (doi:10.1093/oxfordjournals.aje.a112510):

        share = (apparent + specificity - 1) / (sensitivity + specificity - 1)

    where "apparent" is the judge's share of yes, sensitivity its share of yes where people say yes,
    and specificity its share of no where they say no. Interval: Lang and Reiczigel 2014
    (doi:10.1016/j.prevetmed.2013.09.015), which adds one right and one wrong verdict to sensitivity
    and specificity and z^2 verdicts, half of them yes, to the judge's share, then moves and widens
    the interval for the estimated rates.

    It takes the three shares for independent: those of a judge on labelled rows, and on the others.
    The labels serve for the judge's rates only, so PPI++ is mostly more precise. As there, labelled
    rows are a random choice.

    Departure: rows of one prompt are correlated, so that each number of verdicts is divided by its
    design effect, at least 1. With a row a prompt the interval is the published one.

    Raises:
        StatisticsError: If the level is not in (0, 1).
    """
    z = float(scipy.special.ndtri(0.5 + 0.5 * checked_level(confidence_level)))
    seen, right_yes, right_no = rates.apparent, rates.sensitivity, rates.specificity
    n = round(right_yes.n + right_no.n)
    if undefined := _missing(rates):
        return Estimate(math.nan, None, n, _ROGAN_GLADEN, undefined)
    youden = right_yes.value + right_no.value - 1.0
    if youden <= 0.0:
        return Estimate(
            math.nan, None, n, _ROGAN_GLADEN, "the judge agrees with people by chance or less"
        )
    value = min(max((seen.value + right_no.value - 1.0) / youden, 0.0), 1.0)
    if (least := min(right_yes.n, right_no.n)) < MIN_LABELS:
        side = "yes" if right_yes.n == least else "no"
        why = f"{math.floor(least)} independent labels say {side}, too few for an interval"
        return Estimate(value, None, n, _ROGAN_GLADEN, why)
    apparent = Share((seen.n * seen.value + 0.5 * z * z) / (seen.n + z * z), seen.n + z * z)
    yes, no = (
        Share((one.n * one.value + 1.0) / (one.n + 2.0), one.n + 2.0)
        for one in (right_yes, right_no)
    )
    slope = yes.value + no.value - 1.0
    if slope <= z * math.sqrt(_binomial(yes) + _binomial(no)):
        why = "the labels do not show that the judge is better than chance: no interval"
        return Estimate(value, None, n, _ROGAN_GLADEN, why)
    centre = (apparent.value + no.value - 1.0) / slope
    shift = 2.0 * z * z * (centre * _binomial(yes) - (1.0 - centre) * _binomial(no))
    variance = (
        _binomial(apparent) + centre**2 * _binomial(yes) + (1.0 - centre) ** 2 * _binomial(no)
    )
    half = z * math.sqrt(variance) / slope
    low, high = (min(max(end, 0.0), 1.0) for end in (centre + shift - half, centre + shift + half))
    return Estimate(value, Interval(low, high, confidence_level), n, _ROGAN_GLADEN)


def judge_rates(data: Labelled) -> Rates:
    """Rates of verdicts and labels that are 0 or 1 each; without regard to probabilities.

    The apparent share is over rows without a label, or over all where there are none.
    """
    labelled, verdicts, prompts = data.is_labelled, data.scores, data.prompts
    others = ~np.isnan(verdicts) & ~labelled
    if not others.any():
        others = labelled
    yes, no = labelled & (data.labels == 1.0), labelled & (data.labels == 0.0)
    return Rates(
        _share(verdicts[others], prompts[others]),
        _share(verdicts[yes], prompts[yes]),
        _share(1.0 - verdicts[no], prompts[no]),
    )


def _share(values: Floats, prompts: Ints) -> Share:
    """The mean of 0/1 values, and their number divided by the design effect of the prompts."""
    if not values.size:
        return Share(math.nan, 0.0)
    mean = float(values.mean())
    codes = np.unique(prompts, return_inverse=True)[1].reshape(-1)
    apart = values - mean
    alone = float(apart @ apart)
    together = float((np.bincount(codes, apart) ** 2).sum())
    largest = values.size / (codes.max() + 1)
    # Where all agree the data don't show the effect: prompts are taken for one verdict each.
    effect = together / alone if alone > 0.0 else largest
    return Share(mean, values.size / max(effect, 1.0))


def _binomial(share: Share) -> float:
    return share.value * (1.0 - share.value) / share.n


def _missing(rates: Rates) -> str:
    if math.isnan(rates.apparent.value):
        return "no verdicts"
    for share, side in ((rates.sensitivity, "yes"), (rates.specificity, "no")):
        if math.isnan(share.value):
            return f"no label says {side}"
    return ""
