"""AlpacaEval 2: preferences from the probabilities of `m` and `M`, and the order of the outputs.

A preference is in [1, 2]; above 1.5 output 2 (the model) is better than output 1 (the baseline).
The win rates are in `orchestrator.statistics.length`.

Source: Dubois et al. 2024, "Length-Controlled AlpacaEval" (arXiv 2404.04475), and `alpaca_eval`
(commit cd543a14): `logprob_parser`, `RandomSwitchTwoColumnsProcessor`.
"""

import math
from random import Random
from typing import Final

DRAW: Final = 1.5
"""The preference where both outputs are equal; nothing is asked then."""
SEED: Final = 0
"""The seed that `BaseAnnotator` passes to every annotator and processor, part of what decides the
order. (The 123 in the processors' own signature is a default that is always overridden.)"""


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


def flipped(preferred: float | None) -> float | None:
    """The preference with the outputs in their other order."""
    return None if preferred is None else 3.0 - preferred


def is_switched(instruction: str, seed: int = SEED) -> bool:
    """Return True if AlpacaEval shows the outputs of an instruction in the order 2, 1.

    The same as published, bit for bit: Python's own generator, seeded by the text. With the default
    seed it gives the orders that the published judgments record.
    """
    drawn = Random(f"is_switched_outputs{instruction}{seed}")  # noqa: S311 (as published)
    return drawn.choices([False, True], k=1)[0]
