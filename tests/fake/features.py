"""Invented features of scoring passes, of the shapes that the embedded server gives."""

import importlib
from collections.abc import Sequence
from typing import Final

from tests.fake import language
from tests.fake.protocol import RefusedError

_LAYERS, _HEADS = 2, 4
_RANGES: Final = {
    "entropy": (0.1, 3.0),
    "vocab_logprob_var": (2.0, 9.0),
    "vocab_mean_logp_logit": (3.0, 20.0),
}


def check(names: Sequence[str]) -> None:
    """Refuse names that are no features.

    Raises:
        RefusedError: 400 that names them.
    """
    # Few ask for any, and the records come with numpy: half of the time to start.
    records = importlib.import_module("orchestrator.records") if names else None
    if records and (unknown := records.unknown_features(names)):
        raise RefusedError(400, f"there is no feature {', '.join(unknown)}")


def observe(name: str, context: int, start: int, ids: Sequence[int]) -> list[object]:
    """One feature of `ids` from position `start` on, a pure function of these."""
    if name == "attention_entropy":
        key = (name, context, start, *ids)
        return [
            [_between(0.2, 1.5, *key, layer, head) for head in range(_HEADS)]
            for layer in range(_LAYERS)
        ]
    if name == "compat_logprob":
        following = [*ids[1:], language.ASSISTANT][: len(ids)]
        return [
            language.logprob(context, at, token) for at, token in enumerate(following, start + 1)
        ]
    # The released code's positions are one later, so that its numbers are those of the next token.
    plain = name.removeprefix("compat_")
    later = start + (plain != name)
    low, high = _RANGES[plain]
    return [_between(low, high, plain, context, at) for at in range(later, later + len(ids))]


def _between(low: float, high: float, *key: object) -> float:
    return round(low + (high - low) * language.fraction(*key), 6)
