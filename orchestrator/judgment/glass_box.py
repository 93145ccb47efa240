"""Glass-box features of an answer: SelfEval's formulas, those of its code, and entropies.

Source: "Self-Evaluation of Large Language Model based on Glass-box Features" (SelfEval), section 2,
and its released code. Where the two differ, both are here under names of their own: what begins
with `code_` is what the code computes, all else is on aligned positions: the t-th number belongs to
the distribution that predicts the t-th token of the answer, the first token included. Whether the
token that ends the turn is among them is up to who scores.

Natural logarithms. Functions take arrays of T tokens and give nan for T = 0: an empty answer has no
confidence. A probability of 0 makes a mean of logarithms -inf and a variance of them nan.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from orchestrator.errors import StatisticsError
from orchestrator.judgment.distribution import EXCESS
from orchestrator.records import Floats

# Entropy of next-token distributions: exact from the whole vocabulary, bounded from its top k.
#
# Natural logarithms throughout. A server that lists the k most likely tokens leaves open how the
# rest of the mass lies, so it gives an interval, never a value: neither the sum over the listed
# tokens nor the entropy of the renormalised list bounds the true entropy.


def entropy_bounds(top_logprobs: ArrayLike, vocabulary: int | None) -> tuple[Floats, Floats | None]:
    """Bounds of the entropy where only the k most likely of V tokens are listed.

    With r the mass that is not listed, H >= H_k - r ln r (all of it on one token) and H <= H_k - r
    ln(r / (V - k)) (spread evenly), H_k being the sum of -p ln p over the listed ones.
    `top_logprobs` have shape (T, k), raw; where V is not known nothing bounds the entropy from
    above. Returns the lower and the upper bound at each position in nats, shape (T,); nan where
    the listed numbers are no distribution; the upper one is None where V is not known.

    Raises:
        StatisticsError: If there are not two axes, or more tokens listed than there are.
    """
    listed = np.asarray(top_logprobs, dtype=np.float64)
    if listed.ndim != 2:
        raise StatisticsError(f"log-probabilities of shape (T, k) expected, got {listed.shape}")
    k = listed.shape[1]
    if vocabulary is not None and k > vocabulary:
        raise StatisticsError(f"{k} tokens are listed of a vocabulary of {vocabulary}")
    rest = 1 - np.exp(listed).sum(axis=-1)
    rest = np.where(rest < -EXCESS, np.nan, np.clip(rest, 0, 1))
    if k == vocabulary:
        # Nothing is left out, so what is missing to one is rounding.
        rest = np.where(np.isnan(rest), rest, 0.0)
    known = -(np.exp(listed) * np.where(np.isneginf(listed), 0.0, listed)).sum(axis=-1)
    lower = known - rest * np.log(np.where(rest == 0, 1.0, rest))
    if vocabulary is None:
        return lower, None
    spread = np.log(max(vocabulary - k, 1))
    return lower, lower + rest * spread


ORIENTATION: Final[Mapping[str, int]] = {
    "mean_logprob": +1,
    "sum_logprob": +1,
    "sentence_prob": +1,
    "token_logprob_var": -1,
    "token_prob_var": -1,
    "softmax_entropy": -1,
    "vocab_logprob_var": +1,
    "vocab_mean_logp_logit": +1,
    "code_logprobs": +1,
    "code_logprobs_entropy": +1,
    "code_logprobs_variance": +1,
    "ensemble_exp": +1,
    "ensemble_var": -1,
    "attention_entropy_min": -1,
    "attention_entropy_avg": -1,
}
"""+1 where a higher value should mean a better answer: what theory says, or the code's own reading.

The data that SelfEval released say otherwise of some: there mean log-probability correlates
*negatively* with the grade of chat answers, and the paper prints absolute values. So correlations
are shown signed, beside this.
"""

PRINTED: Final[Mapping[str, str]] = {
    f"glass_box.{column}": name
    for plain, printed in {
        "mean_logprob": "SentProb", "softmax_entropy": "Softmax-Ent",
        "token_prob_var": "Softmax-Var", "combo_of_model": "Softmax-combo",
        "decoding_exp": "DecEnsem-Exp", "decoding_var": "DecEnsem-Var",
        "redrawn_exp": "PrmEnsem-Exp", "redrawn_var": "PrmEnsem-Var",
        "attention_entropy_min": "Attn-Ent-Min", "attention_entropy_avg": "Attn-Ent-Avg",
    }.items()
    for column, name in (
        (plain, printed),
        (f"illustrated_{plain}", f"{printed} +illustration"),
        (f"{plain}_calibrated", f"{printed} +calibration"),
    )
} | {"auto_j.rating": "Auto-J", "self_generation.rating": "Self-Generation"}  # fmt: skip
"""Scores as the paper's Tables 1 and 2 name them."""


def sum_logprob(logprobs: ArrayLike) -> float:
    """sum_t ln p(y_t), the logarithm of SentProb."""
    values = _tokens(logprobs)
    return float(values.sum()) if values.size else float("nan")


def mean_over_tokens(feature: ArrayLike) -> float:
    """The mean of a feature, such as of each token, shape (T,); nan where there is none."""
    values = _tokens(feature)
    return float(values.mean()) if values.size else float("nan")


def ensemble(scores: ArrayLike) -> tuple[float, float]:
    """Unt-Exp and Unt-Var: E[SP] and E[SP^2] - E[SP]^2 over N passes; nan for fewer than two.

    Scores of each pass have shape (N,): mean log-probability, or another feature. The code takes
    means only, and N = 7.
    """
    values = _tokens(scores)
    if values.size < 2:
        return float("nan"), float("nan")
    return mean_over_tokens(values), _population_var(values)


FORMULAS: Final[Mapping[str, tuple[str, Callable[[ArrayLike], float]]]] = {
    "mean_logprob": ("", mean_over_tokens),
    "sum_logprob": ("", sum_logprob),
    "sentence_prob": ("", lambda logprobs: float(np.exp(sum_logprob(logprobs)))),
    "token_logprob_var": ("", lambda logprobs: _population_var(_tokens(logprobs))),
    "token_prob_var": ("", lambda logprobs: _population_var(np.exp(_tokens(logprobs)))),
    "softmax_entropy": ("entropy", mean_over_tokens),
    "vocab_logprob_var": ("vocab_logprob_var", mean_over_tokens),
    "vocab_mean_logp_logit": ("vocab_mean_logp_logit", mean_over_tokens),
    "attention_entropy_min": (
        "attention_entropy",
        lambda heads: float(np.min(heads)) if np.size(heads) else float("nan"),
    ),
    "attention_entropy_avg": ("attention_entropy", mean_over_tokens),
    "code_logprobs": ("compat_logprob", mean_over_tokens),
    "code_logprobs_entropy": ("compat_vocab_mean_logp_logit", mean_over_tokens),
    "code_logprobs_variance": ("compat_vocab_logprob_var", mean_over_tokens),
}
"""By name: the feature that a scoring pass gives, empty for the tokens' ln p; and its formula.

`mean_logprob` is (1/T) sum_t ln p(y_t), the length-normalised form of SentProb; `sentence_prob` is
SentProb as printed, prod_t p(y_t): 0 in float64 for any answer of some length.
Softmax-Var is the population variance over tokens, of ln p(y_t) as the paper's prose has it, and of
p(y_t) as its formula has it. AttnEnt is the least, or the mean, of all heads of all layers.
`softmax_entropy` is Softmax-Ent as printed: the mean of -sum_v p ln p. `vocab_logprob_var` is the
published "Softmax-Var", aligned: the mean of Var_v(ln p), ddof=1. `vocab_mean_logp_logit` is the
published "Softmax-Ent", aligned: the mean of mean_v(ln p * logit). It is no entropy: it depends on
where the logits' zero lies. `code_logprobs` is the code's "logprobs": one position late, the last
target wraps round to the first token.
"""


def sent_prob_ref(reference_logprobs: ArrayLike) -> float:
    """SentProb-Ref as printed: -(1/T) sum_t p ln p of the reference answer's own tokens.

    The paper's prose calls it "the log-probability of the reference answer", which it is not; that
    is `-mean_logprob(reference_logprobs)`.
    """
    values = _tokens(reference_logprobs)
    return mean_over_tokens(-np.exp(values) * np.where(np.isneginf(values), 0.0, values))


def combo(
    features: Mapping[str, ArrayLike],
    orientation: Mapping[str, int] = ORIENTATION,
) -> Floats:
    """Softmax-combo: the sum of normalised, oriented features over the evaluated set.

    The paper says "normalized summation" and does not say how; z-scores with the population's
    standard deviation are what we take; the range [0, 1] would be another reading. A feature that
    is the same for all adds 0. An item that lacks one gets nan and does not count for the others.
    Features have shape (N,), one value an item; an orientation is +1 or -1.

    Raises:
        StatisticsError: If there are no features, their lengths differ, or one has no orientation.
    """
    columns = {name: np.asarray(values, dtype=np.float64) for name, values in features.items()}
    shapes = {column.shape for column in columns.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise StatisticsError(f"a combination needs features of one length, got {sorted(shapes)}")
    if unknown := sorted(columns.keys() - orientation.keys()):
        raise StatisticsError(f"which way is better is not stated for {', '.join(unknown)}")
    complete = np.all([np.isfinite(column) for column in columns.values()], axis=0)
    summed = np.zeros(int(complete.sum()))
    for name, column in columns.items():
        # In place: of a million items each number more takes 8 MB.
        values = column[complete]
        values *= orientation[name]
        if not values.size or np.ptp(values) == 0:
            continue
        spread = values.std()
        values -= values.mean()
        values /= spread
        summed += values
    total = np.full(len(complete), np.nan)
    total[complete] = summed
    return total


def _tokens(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)


def _population_var(values: Floats) -> float:
    if not values.size or not np.isfinite(values).all():
        return float("nan")
    return float(values.var())
