"""Glass-box features from logits and attention, as the paper and its released code have them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from orchestrator.errors import StatisticsError
from orchestrator.records import Floats


def entropy(logprobs: ArrayLike) -> Floats:
    """-sum_v p_v ln p_v over the last axis; a probability of 0 adds nothing.

    Args:
        logprobs: Shape (..., V): ln p over the whole vocabulary.
    """
    p = np.exp(np.asarray(logprobs, dtype=np.float64))
    found: Floats = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=-1)
    return found


class TokenFeatures(NamedTuple):
    """Features of a scoring pass at each of T positions, arrays of shape (T,)."""

    logprob: Floats
    entropy: Floats
    vocab_logprob_var: Floats
    vocab_mean_logp_logit: Floats


def aligned_features(logits: ArrayLike, token_ids: Sequence[int], n_prompt: int) -> TokenFeatures:
    """The features of the tokens behind a prompt, from the logits of a whole sequence.

    Args:
        logits: Shape (L, V): position t predicts token t + 1.
        token_ids: The L tokens.
        n_prompt: How many of them are the prompt's; at least 1.

    Raises:
        StatisticsError: If there is no prompt, or the lengths differ.
    """
    rows = np.asarray(logits, dtype=np.float64)
    ids = np.asarray(token_ids, dtype=np.int64)
    if rows.ndim != 2 or rows.shape[0] != ids.size or not 1 <= n_prompt <= ids.size:
        text = f"logits of shape {rows.shape} for {ids.size} tokens, {n_prompt} of the prompt"
        raise StatisticsError(text)
    kept, targets = rows[n_prompt - 1 : -1], ids[n_prompt:]
    logprobs = kept - np.logaddexp.reduce(kept, axis=-1, keepdims=True)
    return TokenFeatures(
        np.take_along_axis(logprobs, targets[:, None], axis=-1)[:, 0],
        entropy(logprobs),
        logprobs.var(axis=-1, ddof=1),
        (logprobs * kept).mean(axis=-1),
    )


def attention_entropy(weights: ArrayLike) -> Floats:
    """AttnEnt of each head: -(1/I) sum_i sum_j a_ji ln a_ji, of shape (...).

    Args:
        weights: Shape (..., J, I): what each of J tokens of the answer pays to each of I tokens of
            the instruction; rows need not sum to 1.
    """
    paid = np.asarray(weights, dtype=np.float64)
    logs = np.log(np.where(paid == 0, 1.0, paid))
    found: Floats = -(paid * logs).sum(axis=(-2, -1)) / paid.shape[-1]
    return found


def code_features(logits: ArrayLike, token_ids: Sequence[int], n_prompt: int) -> TokenFeatures:
    """The features as `get_single_evaluation` has them.

    It keeps the positions n_prompt..L-1: the one that predicts the answer's first token is lost,
    the one behind its last token is kept, and `torch.roll` makes the sequence's first token its
    target.
    """
    table = np.asarray(logits, np.float64)
    rolled = [*token_ids, token_ids[0]]
    return aligned_features(np.vstack([table, table[-1:]]), rolled, n_prompt + 1)
