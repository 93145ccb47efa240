"""AlpacaEval 2: preferences from the probabilities of `m` and `M`, and win rates.

A preference is in [1, 2]; above 1.5 output 2 (the model) is better than output 1 (the baseline).
The length-controlled win rate is in `orchestrator.statistics.length`.

Source: Dubois et al. 2024, "Length-Controlled AlpacaEval" (arXiv 2404.04475), and `alpaca_eval`
(commit cd543a14): `logprob_parser`, `describe_head2head`, `RandomSwitchTwoColumnsProcessor`.
"""

import math
from collections.abc import Iterable, Mapping
from random import Random
from statistics import fmean, stdev
from typing import Final

import msgspec

DRAW: Final = 1.5
"""The preference where both outputs are equal; nothing is asked then."""
LEGACY_DRAW: Final = 0.0
"""What older annotations hold for a draw."""
SEED: Final = 123
"""The annotators' default seed, part of what decides the order."""


def preference(logprob_m: float, logprob_big_m: float) -> float | None:
    """1 + P(M), with P over the two identifiers; a missing token counts as probability zero.

    Args:
        logprob_m: ln p of `m`; nan where it is not among the alternatives, -inf for a true zero.
        logprob_big_m: The same of `M`.

    Returns:
        A number in [1, 2]; None where neither has any probability.
    """
    given = [-math.inf if math.isnan(value) else value for value in (logprob_m, logprob_big_m)]
    peak = max(given)
    if not -math.inf < peak < math.inf:
        return None
    m, big_m = (math.exp(value - peak) for value in given)
    return 1.0 + big_m / (m + big_m)


def preference_from_top(top: Mapping[str, float]) -> float | None:
    """The preference from the alternatives of the one token that was drawn, by their text."""
    return preference(top.get("m", math.nan), top.get("M", math.nan))


def flipped(preferred: float | None) -> float | None:
    """The preference with the outputs in their other order."""
    return None if preferred is None else 3.0 - preferred


def is_switched(instruction: str, seed: int = SEED) -> bool:
    """Whether AlpacaEval shows the outputs of an instruction in the order 2, 1.

    The same as published, bit for bit: Python's own generator, seeded by the text.
    """
    drawn = Random(f"is_switched_outputs{instruction}{seed}")  # noqa: S311 (as published)
    return drawn.choices([False, True], k=1)[0]


def binarised(preferred: float | None) -> int | None:
    """1 or 2, whichever output is preferred; a draw is 2; None where there is no preference."""
    if preferred is None:
        return None
    return 1 if preferred < DRAW else 2


class WinRate(msgspec.Struct, frozen=True):
    """How often the model is preferred, percent; nan where it is undefined.

    Attributes:
        win_rate: 100 · mean(preference - 1).
        standard_error: 100 · sd / sqrt(n), ddof 1; nan for fewer than two.
        discrete_win_rate: The same with every preference rounded to 1 or 2, draws one half.
        n_wins: Preferences above 1.5.
        n_wins_base: Preferences below 1.5.
        n_draws: Preferences of exactly 1.5, and the legacy code 0.
        n_total: Preferences that are there.
        n_missing: Preferences that are not; they are in no rate.
    """

    win_rate: float
    standard_error: float
    discrete_win_rate: float
    n_wins: int
    n_wins_base: int
    n_draws: int
    n_total: int
    n_missing: int


def win_rate(preferences: Iterable[float | None]) -> WinRate:
    """AlpacaEval's win rates over instructions; None and nan are missing, 0 is a draw."""
    asked = list(preferences)
    given = [
        DRAW if value == LEGACY_DRAW else value
        for value in asked
        if value is not None and not math.isnan(value)
    ]
    n = len(given)
    wins = sum(value > DRAW for value in given)
    losses = sum(value < DRAW for value in given)
    draws = n - wins - losses
    spread = stdev(given) / math.sqrt(n) if n > 1 else math.nan
    return WinRate(
        win_rate=100.0 * fmean(value - 1.0 for value in given) if n else math.nan,
        standard_error=100.0 * spread,
        discrete_win_rate=100.0 * (wins + 0.5 * draws) / n if n else math.nan,
        n_wins=wins,
        n_wins_base=losses,
        n_draws=draws,
        n_total=n,
        n_missing=len(asked) - n,
    )
