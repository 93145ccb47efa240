"""Reward models: vLLM's `/pooling` and `/classify`, and another `/classify`, which is SGLang's.

Written against vLLM 0.32, run for real, and SGLang's published documentation (0.5.23), not run.
By default vLLM puts a sigmoid over a single output and a softmax over several, after which
differences are no log-odds, so `use_activation: false` is sent. Of servers that give probabilities
only, the logarithms are taken. What a server sends is not trusted: a reply without finite numbers
in a rectangle of a bounded size is a failure.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np

from orchestrator.ask import RewardAsk
from orchestrator.records import Failure, Rewards, unparseable
from orchestrator.wire.parsing import NO_USAGE, Counted, Decoder, Usage, error_in
from orchestrator.wire.requests import encode, messages_of

POOLING: Final = "/pooling"
CLASSIFY: Final = "/classify"
MOST_VALUES: Final = 2**20
"""Outputs of one conversation; more is no reply to what was asked."""


class _Pooled(msgspec.Struct, gc=False):
    # A list of numbers, or one for each place; looked at by `_fault`.
    data: list[Any] | None = None
    # Of `/classify`.
    probs: list[Any] | None = None


class _Pooling(Counted, gc=False):
    data: list[_Pooled] | None = None


class _Classified(msgspec.Struct, gc=False):
    embedding: list[Any] | None = None
    meta_info: Usage | None = None
    error: Any = None


_pooling: Final = Decoder(_Pooling)
_classified: Final = Decoder(_Classified)
# Distance of the sum of a softmax in float32 from 1.
_SUM_TO_ONE: Final = 1e-5
_NOT_RAW: Final = unparseable(
    "`/classify` gave probabilities where raw outputs were asked for (use_activation: false); set "
    "`rated_by: probabilities` in the settings of the back-end"
)
_CERTAIN: Final = unparseable(
    "`/classify` gave a probability of 0 or 1, whose logarithm is no finite reward; read raw "
    "outputs instead (`rated_by: pooling` or `classify`)"
)


def pool(
    model: str, ask: RewardAsk, template: Mapping[str, object], *, activated: bool = False
) -> bytes:
    """Return the body of vLLM's `/pooling` or `/classify`; the server renders the conversation.

    Args:
        model: The server's name for it.
        ask: The conversation.
        template: Fields that the chat template depends on.
        activated: Ask for probabilities instead of raw outputs.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": messages_of(ask.messages),
        "add_generation_prompt": False,
        "use_activation": activated,
        **template,
    }
    return encode(body)


def classify(model: str, ids: Sequence[int]) -> bytes:
    """Return the body of SGLang's `/classify` for a conversation as token ids."""
    return encode({"model": model, "input_ids": ids})


def pooled(body: bytes, method: str, secret: str) -> Rewards | Failure:
    """Return the outputs in a reply of `/pooling`, of one conversation.

    Failures: "unparseable", and what an error in the reply says.
    """
    return _outputs(body, "data", method, secret)


def classes(body: bytes, method: str, secret: str, *, activated: bool) -> Rewards | Failure:
    """Return the outputs in a reply of vLLM's `/classify`, of one conversation.

    Args:
        body: The reply.
        method: Name of the server call that gave the rewards.
        secret: Left out of messages.
        activated: True if its `probs` are probabilities. Then the outputs are log-odds of the only
            class, or the natural logarithms of all, whose differences are those of raw outputs.

    Failures: "unparseable", and what an error in the reply says.
    """
    found = _outputs(body, "probs", method, secret)
    if isinstance(found, Failure) or found.by_place:
        return found
    p = found.values[0].astype(np.float64)
    is_share = bool(((p >= 0.0) & (p <= 1.0)).all()) and (
        p.size == 1 or abs(float(p.sum()) - 1.0) <= _SUM_TO_ONE
    )
    if not activated:
        return _NOT_RAW if is_share and p.size > 1 else found
    if not is_share:
        return unparseable("the `probs` in the reply of `/classify` are no probabilities")
    if not ((p > 0.0) & (p < 1.0)).all():
        return _CERTAIN
    values = np.log(p) - (np.log1p(-p) if p.size == 1 else 0.0)
    return msgspec.structs.replace(found, values=values.astype(np.float32)[None])


def classified(body: bytes, method: str, secret: str) -> Rewards | Failure:
    """Return the outputs in a reply of SGLang's `/classify`, of one conversation.

    Failures: "unparseable", and what an error in the reply says.
    """
    reply = _classified(body, secret)
    if isinstance(reply, Failure):
        return reply
    if reply.error or reply.embedding is None:
        return error_in(body, secret)
    usage = reply.meta_info or NO_USAGE
    return _rewards(reply.embedding, method, usage.n_prompt, usage.n_cached)


def _outputs(
    body: bytes, field: Literal["data", "probs"], method: str, secret: str
) -> Rewards | Failure:
    """Return the outputs in a field of a reply of vLLM, of one conversation."""
    reply = _pooling(body, secret)
    if isinstance(reply, Failure):
        return reply
    given = getattr(reply.data[0], field) if reply.data else None
    if reply.error or not reply.data or given is None:
        return error_in(body, secret)
    if len(reply.data) != 1:
        return unparseable(f"one conversation was sent and {len(reply.data)} are rated")
    usage = reply.usage or NO_USAGE
    return _rewards(given, method, usage.n_prompt, usage.n_cached)


def _rewards(
    given: Sequence[object], method: str, n_prompt: int, n_cached: int
) -> Rewards | Failure:
    by_place = bool(given) and isinstance(given[0], list)
    rows: Sequence[Any] = given if by_place else [given]
    fault = _fault(rows)
    if fault:
        return unparseable(f"the rewards in the reply {fault}")
    wide = np.array(rows, dtype=np.float64)
    if not np.isfinite(wide).all():
        said = "the rewards in the reply are not all finite numbers: the model gave nan or infinity"
        return unparseable(said)
    if np.abs(wide).max() > np.finfo(np.float32).max:
        return unparseable("the rewards in the reply are too large for float32")
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
