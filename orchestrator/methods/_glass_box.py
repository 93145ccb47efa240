"""Glass-box values of one text: from what a scoring pass or a draw observed to columns of a row.

A value that is undefined is None, never 0.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from orchestrator.judgment import glass_box as features
from orchestrator.judgment.entropy import entropy_bounds
from orchestrator.plugin import Generation, Scored
from orchestrator.records import FloatArray, TopLogprobs

Values = dict[str, float | None]

VOCABULARY: Final = ("entropy", "vocab_logprob_var", "vocab_mean_logp_logit")
ATTENTION: Final = ("attention_entropy",)
CODE: Final = ("compat_logprob", "compat_vocab_logprob_var", "compat_vocab_mean_logp_logit")

OF_TOKENS: Final = (
    "mean_logprob",
    "sum_logprob",
    "sentence_prob",
    "token_logprob_var",
    "token_prob_var",
)
OF_VOCABULARY: Final = ("softmax_entropy", "vocab_logprob_var", "vocab_mean_logp_logit")
OF_BOUNDS: Final = ("softmax_entropy_low", "softmax_entropy_high")
OF_ATTENTION: Final = ("attention_entropy_min", "attention_entropy_avg")
OF_CODE: Final = ("code_logprobs", "code_logprobs_entropy", "code_logprobs_variance")


class Observed(NamedTuple):
    """Log-probabilities and features of a text's tokens.

    Attributes:
        logprobs: float32, shape (T,): raw ln p of each token; None where they are not known.
        top: The most likely tokens, where asked for.
        features: Of the scoring pass, by name.
        why: Why there are no log-probabilities; empty where there are.
    """

    logprobs: FloatArray | None
    top: TopLogprobs | None = None
    features: Mapping[str, FloatArray] = {}
    why: str = ""


def of_score(scored: Scored) -> Observed:
    """Return the observations of a scoring pass."""
    return Observed(scored.logprobs, scored.top, scored.features or {})


def of_draw(drawn: Generation) -> Observed:
    """Return the observations that came with a draw."""
    if drawn.logprobs is None:
        return Observed(None, why="the server gave no log-probabilities with the draw")
    if not drawn.raw:
        return Observed(None, why="the draw's log-probabilities are not those of temperature 1")
    return Observed(drawn.logprobs, drawn.top)


def token_values(seen: Observed) -> Values:
    """SentProb in its forms, and Softmax-Var as the paper's formula and prose have it."""
    if seen.logprobs is None:
        return dict.fromkeys(OF_TOKENS)
    lp = seen.logprobs.astype(np.float64)
    return {
        "mean_logprob": known(features.mean_logprob(lp)),
        "sum_logprob": known(features.sum_logprob(lp)),
        "sentence_prob": known(features.sentence_prob(lp)),
        "token_logprob_var": known(features.token_logprob_var(lp)),
        "token_prob_var": known(features.token_prob_var(lp)),
    }


def vocabulary_values(seen: Observed) -> Values:
    """Softmax-Ent as printed, and the two features of the whole vocabulary, aligned."""
    given = seen.features
    if not set(VOCABULARY) <= given.keys():
        return dict.fromkeys(OF_VOCABULARY)
    return {
        "softmax_entropy": known(features.softmax_entropy(given["entropy"])),
        "vocab_logprob_var": known(features.vocab_logprob_var(given["vocab_logprob_var"])),
        "vocab_mean_logp_logit": known(
            features.vocab_mean_logp_logit(given["vocab_mean_logp_logit"])
        ),
    }


def bound_values(seen: Observed, vocabulary: int | None) -> Values:
    """Between what Softmax-Ent must lie, from the most likely tokens."""
    if seen.top is None or not seen.top.logprobs.size:
        return dict.fromkeys(OF_BOUNDS)
    bounds = entropy_bounds(seen.top.logprobs, vocabulary)
    upper = None if bounds.upper is None else known(features.softmax_entropy(bounds.upper))
    return {
        "softmax_entropy_low": known(features.softmax_entropy(bounds.lower)),
        "softmax_entropy_high": upper,
    }


def attention_values(seen: Observed) -> Values:
    """AttnEnt-Min and AttnEnt-Avg."""
    by_head = seen.features.get("attention_entropy")
    if by_head is None:
        return dict.fromkeys(OF_ATTENTION)
    return {
        "attention_entropy_min": known(features.attention_entropy_min(by_head)),
        "attention_entropy_avg": known(features.attention_entropy_avg(by_head)),
    }


def code_values(scored: Scored) -> Values:
    """The released code's three numbers, from a score that includes the end of the turn."""
    given = scored.features or {}
    return {
        "code_logprobs": known(features.code_logprobs(given["compat_logprob"])),
        "code_logprobs_entropy": known(
            features.code_logprobs_entropy(given["compat_vocab_mean_logp_logit"])
        ),
        "code_logprobs_variance": known(
            features.code_logprobs_variance(given["compat_vocab_logprob_var"])
        ),
    }


def ensemble_values(kind: str, passes: Iterable[Observed]) -> Values:
    """Unt-Exp and Unt-Var of SP: as mean log-probability, its exponential, and the product.

    The product is SentProb as printed, prod_t p(y_t).
    """
    given = [token_values(seen) for seen in passes]
    known_ones = [one for one in given if one["mean_logprob"] is not None]
    means, products = (
        np.array([one[name] for one in known_ones], dtype=np.float64)
        for name in ("mean_logprob", "sentence_prob")
    )
    found: Values = {}
    for form, scores in (("", means), ("_prob", np.exp(means)), ("_product", products)):
        one = features.ensemble(scores)
        found[f"{kind}_exp{form}"], found[f"{kind}_var{form}"] = known(one.exp), known(one.var)
    return {**found, f"{kind}_passes": len(means)}


def calibrated_values(answer: Values, reference: Values, sent_prob_ref: float | None) -> Values:
    """Each feature of the reference answer, less it, and less SentProb-Ref as printed."""
    found: Values = {"reference_sent_prob": sent_prob_ref}
    for name in reference:
        found[f"reference_{name}"] = reference.get(name)
        found[f"{name}_calibrated"] = _less(answer.get(name), reference.get(name))
        found[f"{name}_calibrated_printed"] = _less(answer.get(name), sent_prob_ref)
    return found


def sent_prob_ref(seen: Observed) -> float | None:
    """SentProb-Ref as printed."""
    return None if seen.logprobs is None else known(features.sent_prob_ref(seen.logprobs))


def known(value: float) -> float | None:
    """A number, or None where it is not finite."""
    return float(value) if math.isfinite(value) else None


def _less(feature: float | None, of_reference: float | None) -> float | None:
    if feature is None or of_reference is None:
        return None
    return features.calibrated(feature, of_reference)
