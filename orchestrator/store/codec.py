"""Outcomes to bytes and back, bit for bit, and shorter where they are long.

An outcome becomes two blobs. The *head* holds text, counts and shapes; the *arrays* hold token ids
and log-probabilities, little-endian, so that a reader of texts never touches them.
"""

import math
import struct
from collections.abc import Iterable
from typing import Annotated, Any, Final, NamedTuple, assert_never

import msgspec
import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import StoreError
from orchestrator.records import (
    Choice,
    Failure,
    FloatArray,
    Generation,
    IntArray,
    Outcome,
    PairScores,
    Rewards,
    Scored,
    TopLogprobs,
)
from orchestrator.store import blobs
from orchestrator.store.blobs import Content, Layout

_bytes = blobs.text_to_bytes
_text = blobs.bytes_to_text
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Shape = tuple[_Count, _Count]
_MARK: Final = bytes((blobs.MARK,))


class Packed(NamedTuple):
    """An outcome as two blobs; `arrays` is empty where the outcome has none."""

    head: bytes
    arrays: bytes

    @property
    def n_bytes(self) -> int:
        """Length of both blobs."""
        return len(self.head) + len(self.arrays)


class _Generation(msgspec.Struct, array_like=True, tag=1, gc=False):
    text: bytes
    finish_reason: bytes
    n_prompt_tokens: int
    n_completion_tokens: int
    n_cached_tokens: int
    raw: bool
    n_ids: _Count | None
    n_logprobs: _Count | None
    top: _Shape | None
    n_offsets: _Count | None = None
    thinking: bytes = b""
    n_thinking_tokens: _Count | None = None
    n_named: _Count | None = None


class _Scored(msgspec.Struct, array_like=True, tag=2, gc=False):
    n_ids: _Count
    n_logprobs: _Count
    n_prompt_tokens: int
    n_cached_tokens: int
    boundary: bytes
    method: bytes
    top: _Shape | None = None
    features: tuple[tuple[bytes, tuple[_Count, ...]], ...] | None = None


class _Choice(msgspec.Struct, array_like=True, tag=3, gc=False):
    logprobs: bytes
    upper: bytes | None
    """None if all bounds equal the log-probabilities bit for bit."""
    method: bytes
    n_prompt_tokens: int
    n_cached_tokens: int
    n_requests: int


class _PairScores(msgspec.Struct, array_like=True, tag=4, gc=False):
    precision: _Shape
    recall: _Shape
    encoder: bytes
    layer: int
    n_truncated: int = 0


class _Failure(msgspec.Struct, array_like=True, tag=5, gc=False):
    cause: bytes
    message: bytes
    permanent: bool
    status: int
    retry_after_s: float | None


class _Rewards(msgspec.Struct, array_like=True, tag=6, gc=False):
    values: _Shape
    by_place: bool
    method: bytes
    n_prompt_tokens: int
    n_cached_tokens: int


_Head = _Generation | _Scored | _Choice | _PairScores | _Failure | _Rewards
_encode_head = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(_Head).decode


def pack(outcome: Outcome | Failure) -> Packed:
    """The blobs of an outcome, uncompressed.

    Raises:
        StoreError: If an array has another type or rank than `records` says, or it is too long.
    """
    try:
        head, arrays = _take_apart(outcome)
        blobs.check_length(len(arrays), blobs.MOST_ARRAYS_BYTES)
        return Packed(blobs.seal(_encode_head(head)), arrays)
    except (TypeError, ValueError, AttributeError, OverflowError, struct.error) as error:
        raise StoreError(f"a {type(outcome).__name__} cannot be stored: {error}") from error


def layout_of(packed: Packed) -> Layout | None:
    """Return the position of alternatives in the arrays of `pack`; None if there are none."""
    return _alternatives(_read_head(packed.head))


def decode(head: bytes, arrays: bytes, key: bytes = b"") -> Outcome | Failure:
    """The outcome of a key's two blobs, compressed or not; its arrays are read-only.

    Raises:
        StoreError: If the blobs are damaged or of an unknown version.
    """
    record = _read_head(head)
    if not isinstance(arrays, bytes):
        raise blobs.damaged("stored arrays are", "wrong type")
    blobs.check_belonging(head, key + arrays)
    try:
        return _put_together(record, arrays)
    except (ValueError, struct.error, OverflowError) as error:
        raise blobs.damaged("a stored outcome is", error) from error


def _alternatives(head: _Head) -> Layout | None:
    if not isinstance(head, _Generation | _Scored) or head.top is None:
        return None
    return Layout((head.n_ids or 0) + (head.n_logprobs or 0), head.top)


def _take_apart(outcome: Outcome | Failure) -> tuple[_Head, bytes]:
    match outcome:
        case Choice():
            logprobs = struct.pack(f"<{len(outcome.logprobs)}d", *outcome.logprobs)
            upper = struct.pack(f"<{len(outcome.upper)}d", *outcome.upper)
            choice = _Choice(
                logprobs,
                None if upper == logprobs else upper,
                _bytes(outcome.method),
                outcome.n_prompt_tokens,
                outcome.n_cached_tokens,
                outcome.n_requests,
            )
            return choice, b""
        case Generation():
            return _generation_head(outcome)
        case Scored():
            ids, features = outcome.token_ids, outcome.features
            shapes = [(_bytes(name), array.shape) for name, array in (features or {}).items()]
            scored = _Scored(
                len(ids),
                len(outcome.logprobs),
                outcome.n_prompt_tokens,
                outcome.n_cached_tokens,
                _bytes(outcome.boundary),
                _bytes(outcome.method),
                None if outcome.top is None else _shape(outcome.top.token_ids),
                None if features is None else tuple(shapes),
            )
            parts = [_ints(ids), _floats(outcome.logprobs), *_top_parts(outcome.top)]
            parts += [_floats(array, array.ndim) for array in (features or {}).values()]
            return scored, b"".join(parts)
        case PairScores():
            precision, recall = outcome.precision, outcome.recall
            pairs = _PairScores(
                _shape(precision),
                _shape(recall),
                _bytes(outcome.encoder),
                outcome.layer,
                outcome.n_truncated,
            )
            return pairs, _floats(precision, 2) + _floats(recall, 2)
        case Rewards():
            rewards = _Rewards(
                _shape(outcome.values),
                outcome.by_place,
                _bytes(outcome.method),
                outcome.n_prompt_tokens,
                outcome.n_cached_tokens,
            )
            return rewards, _floats(outcome.values, 2)
        case Failure(cause, message, permanent, status, retry_after_s, _):
            return _Failure(_bytes(cause), _bytes(message), permanent, status, retry_after_s), b""
        case _:
            assert_never(outcome)


def _generation_head(made: Generation) -> tuple[_Generation, bytes]:
    ids, logprobs, top = made.token_ids, made.logprobs, made.top
    parts = []
    if ids is not None:
        parts.append(_ints(ids))
    if logprobs is not None:
        parts.append(_floats(logprobs))
    parts += _top_parts(top)
    if made.offsets is not None:
        parts.append(_ints(made.offsets))
    if made.named is not None:
        parts.append(_ints(made.named))
    head = _Generation(
        _bytes(made.text),
        _bytes(made.finish_reason),
        made.n_prompt_tokens,
        made.n_completion_tokens,
        made.n_cached_tokens,
        made.raw,
        None if ids is None else len(ids),
        None if logprobs is None else len(logprobs),
        None if top is None else _shape(top.token_ids),
        None if made.offsets is None else len(made.offsets),
        _bytes(made.thinking),
        made.n_thinking_tokens,
        None if made.named is None else len(made.named),
    )
    return head, b"".join(parts)


def _top_parts(top: TopLogprobs | None) -> list[bytes]:
    if top is None:
        return []
    if top.token_ids.shape != top.logprobs.shape:
        raise ValueError(f"top: {top.token_ids.shape} ids, {top.logprobs.shape} logprobs")
    return [_ints(top.token_ids, 2), _floats(top.logprobs, 2)]


def _put_together(head: _Head, arrays: bytes) -> Outcome | Failure:
    match head:
        case _Choice():
            logprobs = _doubles(head.logprobs)
            upper = logprobs if head.upper is None else _doubles(head.upper)
            return Choice(
                logprobs,
                upper,
                _text(head.method),
                head.n_prompt_tokens,
                head.n_cached_tokens,
                head.n_requests,
            )
        case _Generation():
            return _generation(head, arrays)
        case _Scored():
            n_top = 0 if head.top is None else _size(head.top)
            n_features = sum(math.prod(shape) for _, shape in head.features or ())
            n_values = head.n_ids + head.n_logprobs + 2 * n_top + n_features
            cut = _Cutter(arrays, n_values, _alternatives(head))
            return Scored(
                cut.ints(head.n_ids),
                cut.floats(head.n_logprobs),
                head.n_prompt_tokens,
                _text(head.boundary),
                _text(head.method),
                head.n_cached_tokens,
                cut.top(head.top),
                None
                if head.features is None
                else {
                    _text(name): cut.floats(math.prod(shape)).reshape(shape)
                    for name, shape in head.features
                },
            )
        case _PairScores():
            cut = _Cutter(arrays, _size(head.precision) + _size(head.recall))
            precision = cut.floats(_size(head.precision)).reshape(head.precision)
            recall = cut.floats(_size(head.recall)).reshape(head.recall)
            return PairScores(precision, recall, _text(head.encoder), head.layer, head.n_truncated)
        case _Rewards():
            cut = _Cutter(arrays, _size(head.values))
            return Rewards(
                cut.floats(_size(head.values)).reshape(head.values),
                head.by_place,
                _text(head.method),
                head.n_prompt_tokens,
                head.n_cached_tokens,
            )
        case _Failure():
            return Failure(
                _text(head.cause),
                _text(head.message),
                head.permanent,
                head.status,
                head.retry_after_s,
            )
        case _:
            assert_never(head)


def _generation(head: _Generation, arrays: bytes) -> Generation:
    n_top = 0 if head.top is None else _size(head.top)
    n_last = (head.n_offsets or 0) + (head.n_named or 0)
    n_values = (head.n_ids or 0) + (head.n_logprobs or 0) + 2 * n_top + n_last
    cut = _Cutter(arrays, n_values, _alternatives(head))
    ids = None if head.n_ids is None else cut.ints(head.n_ids)
    logprobs = None if head.n_logprobs is None else cut.floats(head.n_logprobs)
    top = cut.top(head.top)
    return Generation(
        _text(head.text),
        _text(head.finish_reason),
        head.n_prompt_tokens,
        head.n_completion_tokens,
        ids,
        logprobs,
        top,
        head.raw,
        head.n_cached_tokens,
        offsets=None if head.n_offsets is None else cut.ints(head.n_offsets),
        thinking=_text(head.thinking),
        n_thinking_tokens=head.n_thinking_tokens,
        named=None if head.n_named is None else cut.ints(head.n_named),
    )


class _Cutter:
    """Cuts an arrays blob of `n_values` four-byte values into its arrays, in order."""

    __slots__ = ("_blob", "_offset")

    def __init__(self, blob: bytes, n_values: int, layout: Layout | None = None) -> None:
        n_bytes = 4 * n_values
        if layout is not None and len(blob) < n_bytes and blob[:1] == _MARK:
            self._blob = blobs.expand_alternatives(blob, n_bytes, layout)
        else:
            self._blob = blobs.expand_arrays(blob, n_bytes)
        self._offset = 0

    def ints(self, n: int) -> IntArray:
        return self._take("<i4", n)

    def floats(self, n: int) -> FloatArray:
        return self._take("<f4", n)

    def top(self, shape: _Shape | None) -> TopLogprobs | None:
        if shape is None:
            return None
        ids = self.ints(_size(shape)).reshape(shape)
        return TopLogprobs(ids, self.floats(_size(shape)).reshape(shape))

    def _take(self, dtype: str, n: int) -> NDArray[Any]:
        taken = np.frombuffer(self._blob, dtype, n, self._offset)
        self._offset += 4 * n
        return taken


def _ints(array: IntArray, ndim: int = 1) -> bytes:
    if array.dtype != np.int32 or array.ndim != ndim:
        raise TypeError(f"int32 of {ndim} axes expected, got {array.dtype} of {array.ndim}")
    return array.astype("<i4", copy=False).tobytes()


def _floats(array: FloatArray, ndim: int = 1) -> bytes:
    if array.dtype != np.float32 or array.ndim != ndim:
        raise TypeError(f"float32 of {ndim} axes expected, got {array.dtype} of {array.ndim}")
    return array.astype("<f4", copy=False).tobytes()


def _shape(array: NDArray[Any]) -> _Shape:
    n_rows, n_columns = array.shape
    return n_rows, n_columns


def _size(shape: _Shape) -> int:
    return shape[0] * shape[1]


def _doubles(packed: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(packed) // 8}d", packed)


def _read_head(head: bytes) -> _Head:
    try:
        record: _Head = _decode_head(blobs.open_blob(head))
    except msgspec.MsgspecError as error:
        raise blobs.damaged("a stored outcome is", error) from error
    return record


# Outcomes as they are stored: shorter where they are long, and with checksums.
#
# What is compressed is laid out by who puts an outcome in: that takes many small steps, each of
# which needs Python's lock. Compressing many together needs it once, and is left to the writer's
# thread.


def compressible(packed: Packed) -> Content | None:
    """Return the form in which arrays of `codec.pack` are compressed; None if they are short."""
    if len(packed.arrays) < blobs.COMPRESS_FROM_BYTES:
        return None
    layout = layout_of(packed)
    if layout is None:
        return blobs.arrays_content(packed.arrays)
    return blobs.alternatives_content(packed.arrays, layout)


def compress(outcomes: Iterable[tuple[Packed, Content | None, bytes]]) -> list[Packed]:
    """Outcomes as they are stored.

    Each outcome is what `codec.pack` gave, its `compressible` form, and the key. One that is
    compressed already, with no such form, stays as it is.
    """
    given = list(outcomes)
    stored = [packed for packed, _, _ in given]
    new = [at for at, packed in enumerate(stored) if not blobs.is_checked(packed.head)]
    heads = blobs.shorten([stored[at].head for at in new])
    frames = iter(blobs.compressed([content.planes for _, content, _ in given if content]))
    for at, head in zip(new, heads, strict=True):
        packed, content, key = given[at]
        arrays = packed.arrays
        if content is not None:
            arrays = blobs.shorter(content.mark + next(frames), arrays)
        stored[at] = Packed(blobs.checked(head, key + arrays), arrays)
    return stored


def encode(outcome: Outcome | Failure, key: bytes = b"") -> Packed:
    """The blobs of an outcome as they are stored under a key; fails as `codec.pack` does."""
    packed = pack(outcome)
    return compress([(packed, compressible(packed), key)])[0]
