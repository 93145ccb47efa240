"""Reward models: vLLM's `/pooling`, and SGLang's `/classify`.

Written against vLLM 0.32, run for real, and SGLang's published documentation (0.5.23), not run.
By default vLLM puts a sigmoid over a single output and a softmax over several, after which
differences are no log-odds, so `use_activation: false` is sent. What a server sends is not trusted:
a reply without finite numbers in a rectangle of a bounded size is a failure.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from orchestrator.ask import RewardAsk
from orchestrator.records import Rewards, unparseable
from orchestrator.wire.failures import Failed, as_value
from orchestrator.wire.parsing import NO_USAGE, Counted, Decoder, Usage, error_in
from orchestrator.wire.requests import encode, messages_of

POOLING: Final = "/pooling"
CLASSIFY: Final = "/classify"
MOST_VALUES: Final = 2**20
"""Outputs of one conversation; more is no reply to what was asked."""


class _Pooled(msgspec.Struct, gc=False):
    # A list of numbers, or one for each place; looked at by `_fault`.
    data: list[Any] | None = None


class _Pooling(Counted, gc=False):
    data: list[_Pooled] | None = None


class _Classified(msgspec.Struct, gc=False):
    embedding: list[Any] | None = None
    meta_info: Usage | None = None
    error: Any = None


_pooling: Final = Decoder(_Pooling, needs="data")
_classified: Final = Decoder(_Classified)


def pool(model: str, ask: RewardAsk, template: Mapping[str, object]) -> bytes:
    """Return the body of vLLM's `/pooling`; the server renders the conversation.

    Args:
        model: The server's name for it.
        ask: The conversation.
        template: Fields that the chat template depends on.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": messages_of(ask.messages),
        "add_generation_prompt": False,
        "use_activation": False,
        **template,
    }
    return encode(body)


def classify(model: str, ids: Sequence[int]) -> bytes:
    """Return the body of SGLang's `/classify` for a conversation as token ids."""
    return encode({"model": model, "input_ids": ids})


@as_value
def pooled(body: bytes, method: str, secret: str) -> Rewards:
    """Return the outputs in a reply of `/pooling`, of one conversation.

    Failures: "unparseable", and what an error in the reply says.
    """
    reply = _pooling(body, secret)
    first, *others = reply.data or []
    if first.data is None:
        raise Failed(error_in(body, secret))
    if others:
        raise Failed(unparseable(f"one conversation was sent and {1 + len(others)} are rated"))
    usage = reply.usage or NO_USAGE
    return _rewards(first.data, method, usage.n_prompt, usage.n_cached)


@as_value
def classified(body: bytes, method: str, secret: str) -> Rewards:
    """Return the outputs in a reply of SGLang's `/classify`, of one conversation.

    Failures: "unparseable", and what an error in the reply says.
    """
    reply = _classified(body, secret)
    if reply.error or reply.embedding is None:
        raise Failed(error_in(body, secret))
    usage = reply.meta_info or NO_USAGE
    return _rewards(reply.embedding, method, usage.n_prompt, usage.n_cached)


def _rewards(given: Sequence[object], method: str, n_prompt: int, n_cached: int) -> Rewards:
    by_place = bool(given) and isinstance(given[0], list)
    rows: Sequence[Any] = given if by_place else [given]
    fault = _fault(rows)
    wide = np.array([] if fault else rows, dtype=np.float64)
    if not np.isfinite(wide).all():
        fault = "are not all finite numbers: the model gave nan or infinity"
    elif wide.size and np.abs(wide).max() > np.finfo(np.float32).max:
        fault = "are too large for float32"
    if fault:
        raise Failed(unparseable(f"the rewards in the reply {fault}"))
    return Rewards(wide.astype(np.float32), by_place, method, n_prompt, n_cached)


def _fault(rows: Sequence[Any]) -> str:
    """Return the fault in the shape of a reply's rewards; empty for none."""
    width = len(rows[0]) if rows and isinstance(rows[0], list) else 0
    if not width:
        return "are empty"
    if width * len(rows) > MOST_VALUES:
        return f"are {len(rows):,} times {width:,}, more than {MOST_VALUES:,}"
    for row in rows:
        if not isinstance(row, list) or len(row) != width:
            return "have rows of different lengths"
        for value in row:
            # null stands for nan in strict JSON, and is caught with it.
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float)
            ):
                return f"hold a {type(value).__name__} where a number was expected"
    return ""
