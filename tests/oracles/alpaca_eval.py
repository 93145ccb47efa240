"""AlpacaEval's preference as its `logprob_parser` computes it, from two log-probabilities."""

import math


def preference(logprob_m: float, logprob_big_m: float) -> float | None:
    """1 + P(M), with P over the two identifiers; a missing token counts as probability zero.

    Log-probabilities are nan where not among the alternatives, -inf for a true zero. Returns a
    number in [1, 2]; None where neither has any probability.
    """
    given = [-math.inf if math.isnan(value) else value for value in (logprob_m, logprob_big_m)]
    peak = max(given)
    if not -math.inf < peak < math.inf:
        return None
    m, big_m = (math.exp(value - peak) for value in given)
    return 1.0 + big_m / (m + big_m)
