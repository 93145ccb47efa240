"""Outcomes to bytes and back, bit for bit, and shorter where they are long.

An outcome becomes two blobs. The *head* holds text, counts and shapes; the *arrays* hold token ids
and log-probabilities, little-endian, so that a reader of texts never touches them.
"""

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Final, NamedTuple, Union

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
from orchestrator.store.blobs import Content, Top

_bytes = blobs.text_to_bytes
_text = blobs.bytes_to_text
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Shape = tuple[_Count, _Count]
_MARK: Final = bytes((blobs.MARK,))


class Packed(NamedTuple):
    """An outcome as two blobs; `arrays` is empty where the outcome has none."""

    head: bytes
    arrays: bytes


# The fields of each kind of outcome in their order on the disk. The number of those that every head
# has comes first: those behind were added later, and may be missing.
#
# A field that is a type stands in the head as it is, the others in a form: a "text" in UTF-8,
# float64 "doubles" as bytes. Of arrays the head has the shape: int32 "ints", float32 "floats", a
# "grid" of two axes, alternatives ("top"), "features" by name. What ends in "?" may be None, as are
# upper bounds that equal the log-probabilities bit for bit.
_Fields = dict[str, Any]
_COUNTS: Final[_Fields] = {"n_prompt_tokens": int, "n_cached_tokens": int}
_KINDS: Final[dict[type, tuple[int, _Fields]]] = {
    Generation: (9, {
        "text": "text", "finish_reason": "text", "n_prompt_tokens": int,
        "n_completion_tokens": int, "n_cached_tokens": int, "raw": bool, "token_ids": "ints?",
        "logprobs": "floats?", "top": "top?", "offsets": "ints?", "thinking": "text",
        "n_thinking_tokens": _Count | None, "named": "ints?",
    }),
    Scored: (6, {
        "token_ids": "ints", "logprobs": "floats", **_COUNTS, "boundary": "text",
        "method": "text", "top": "top?", "features": "features?",
    }),
    Choice: (6, {
        "logprobs": "doubles", "upper": "doubles?", "method": "text", **_COUNTS, "n_requests": int,
    }),
    PairScores: (4, {
        "precision": "grid", "recall": "grid", "encoder": "text", "layer": int, "n_truncated": int,
    }),
    Failure: (5, {
        "cause": "text", "message": "text", "permanent": bool, "status": int,
        "retry_after_s": float | None,
    }),
    Rewards: (5, {"values": "grid", "by_place": bool, "method": "text", **_COUNTS}),
}  # fmt: skip
_TYPES: Final[_Fields] = {
    "text": bytes, "doubles": bytes, "ints": _Count, "floats": _Count, "grid": _Shape,
    "top": _Shape, "features": tuple[tuple[bytes, tuple[_Count, ...]], ...],
}  # fmt: skip


_STORED: Final[dict[type, str]] = {np.int32: "<i4", np.float32: "<f4"}


def _take(dtype: type, ndim: int, array: IntArray | FloatArray, parts: list[bytes]) -> object:
    parts.append(_little_endian(array, dtype, ndim))
    return len(array) if ndim == 1 else array.shape


def _take_top(top: TopLogprobs, parts: list[bytes]) -> object:
    if top.token_ids.shape != top.logprobs.shape:
        raise ValueError(f"top: {top.token_ids.shape} ids, {top.logprobs.shape} logprobs")
    parts.append(_little_endian(top.token_ids, np.int32, 2))
    return _take(np.float32, 2, top.logprobs, parts)


def _take_features(features: Mapping[str, FloatArray], parts: list[bytes]) -> list[object]:
    parts += [_little_endian(array, np.float32, array.ndim) for array in features.values()]
    return [(_bytes(name), array.shape) for name, array in features.items()]


# What the head has of a value, by form; the bytes of arrays are added to the other blob's parts.
_TAKE: Final[dict[str, Callable[[Any, list[bytes]], object]]] = {
    "text": lambda text, _: _bytes(text),
    "doubles": lambda values, _: struct.pack(f"<{len(values)}d", *values),
    "ints": partial(_take, np.int32, 1),
    "floats": partial(_take, np.float32, 1),
    "grid": partial(_take, np.float32, 2),
    "top": _take_top,
    "features": _take_features,
}
# The value again, with its arrays cut from the blob.
_GIVE: Final[dict[str, Callable[[Any, Callable[[str, tuple[int, ...]], NDArray[Any]]], object]]] = {
    "text": lambda stored, _: _text(stored),
    "doubles": lambda stored, _: struct.unpack(f"<{len(stored) // 8}d", stored),
    "ints": lambda n, take: take("<i4", (n,)),
    "floats": lambda n, take: take("<f4", (n,)),
    "grid": lambda shape, take: take("<f4", shape),
    "top": lambda shape, take: TopLogprobs(take("<i4", shape), take("<f4", shape)),
    "features": lambda stored, take: {_text(name): take("<f4", shape) for name, shape in stored},
}
# How many four-byte values of an array the blob has.
_SIZE: Final[dict[str, Callable[[Any], int]]] = {
    "ints": int,
    "floats": int,
    "grid": math.prod,
    "top": lambda shape: 2 * math.prod(shape),
    "features": lambda stored: sum(math.prod(shape) for _, shape in stored),
}


class _Kind:
    """A kind of outcome with what packs and decodes its fields, each by its place in the head."""

    def __init__(
        self, kind: type[msgspec.Struct], tag: int, n_always: int, fields: _Fields
    ) -> None:
        self.kind: Any = kind
        self.tag = tag
        self.values = attrgetter(*fields)
        forms = [said.rstrip("?") if isinstance(said, str) else "" for said in fields.values()]
        self.take = [(at, _TAKE[form]) for at, form in enumerate(forms, 1) if form]
        self.give = [(at, _GIVE[form]) for at, form in enumerate(forms) if form]
        self.size = [(at, _SIZE[form]) for at, form in enumerate(forms) if form in _SIZE]
        self.top = forms.index("top") if "top" in forms else None
        stored: list[Any] = []
        for (name, said), form in zip(fields.items(), forms, strict=True):
            type_: Any = _TYPES.get(form, said)
            type_ = type_ | None if form and form != said else type_
            missing = {"text": b"", int: 0}.get(said)
            stored.append((name, type_, missing) if len(stored) >= n_always else (name, type_))
        # Fields that are not stored have their defaults.
        defaults = {
            one.name: one.default for one in msgspec.structs.fields(kind) if one.name not in fields
        }
        self.defaults = tuple(defaults.values())
        places = {name: at for at, name in enumerate((*fields, *defaults))}
        self.ordered = itemgetter(*(places[name] for name in kind.__struct_fields__))
        self.head = msgspec.defstruct(kind.__name__, stored, array_like=True, tag=tag, gc=False)


_OF_KIND: Final = {
    kind: _Kind(kind, tag, *said) for tag, (kind, said) in enumerate(_KINDS.items(), 1)
}
_OF_HEAD: Final = {one.head: one for one in _OF_KIND.values()}
_encode_head = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(Union[tuple(_OF_HEAD)]).decode  # noqa: UP007 (made here)


def pack(outcome: Outcome | Failure) -> Packed:
    """The blobs of an outcome, uncompressed.

    Raises:
        StoreError: If an array has another type or rank than `records` says, or it is too long.
    """
    try:
        known, parts = _OF_KIND[type(outcome)], list[bytes]()
        head = [known.tag, *known.values(outcome)]
        for at, take in known.take:
            if head[at] is not None:
                head[at] = take(head[at], parts)
        if type(outcome) is Choice and head[2] == head[1]:
            head[2] = None
        arrays = b"".join(parts)
        blobs.check_length(len(arrays), blobs.MOST_ARRAYS_BYTES)
        return Packed(blobs.seal(_encode_head(head)), arrays)
    except (TypeError, ValueError, AttributeError, OverflowError, struct.error) as error:
        raise StoreError(f"a {type(outcome).__name__} cannot be stored: {error}") from error


def decode(head: bytes, arrays: bytes, key: bytes = b"") -> Outcome | Failure:
    """The outcome of a key's two blobs, compressed or not; its arrays are read-only.

    Raises:
        StoreError: If the blobs are damaged or of an unknown version.
    """
    known, values = _read_head(head)
    if not isinstance(arrays, bytes):
        raise blobs.damaged("stored arrays are", "wrong type")
    blobs.check_belonging(head, key + arrays)
    offset = 0

    def take(dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """Cut the next array of four-byte values."""
        nonlocal offset
        n = math.prod(shape)
        taken = np.frombuffer(body, dtype, n, offset)
        offset += 4 * n
        return taken if len(shape) == 1 else taken.reshape(shape)

    try:
        n_values, top = _sizes(known, values)
        if top is not None and len(arrays) < 4 * n_values and arrays[:1] == _MARK:
            body = blobs.expand_alternatives(arrays, 4 * n_values, top)
        else:
            body = blobs.expand_arrays(arrays, 4 * n_values)
        for at, give in known.give:
            if values[at] is not None:
                values[at] = give(values[at], take)
        if known.kind is Choice and values[1] is None:
            values[1] = values[0]
        outcome: Outcome | Failure = known.kind(*known.ordered((*values, *known.defaults)))
    except (ValueError, struct.error, OverflowError) as error:
        raise blobs.damaged("a stored outcome is", error) from error
    return outcome


def _read_head(head: bytes) -> tuple[_Kind, list[Any]]:
    """Return the kind of an outcome, and its fields as they are stored."""
    try:
        record = _decode_head(blobs.open_blob(head))
    except msgspec.MsgspecError as error:
        raise blobs.damaged("a stored outcome is", error) from error
    return _OF_HEAD[type(record)], [*msgspec.structs.astuple(record)]


def _sizes(known: _Kind, values: Sequence[Any]) -> tuple[int, Top | None]:
    """Return how many four-byte values the arrays have, and where alternatives are among them."""
    n = 0
    top: Top | None = None
    for at, size in known.size:
        if values[at] is not None:
            top = (n, values[at]) if at == known.top else top
            n += size(values[at])
    return n, top


def _little_endian(array: IntArray | FloatArray, dtype: type, ndim: int) -> bytes:
    if array.dtype != dtype or array.ndim != ndim:
        wanted = np.dtype(dtype)
        raise TypeError(f"{wanted} of {ndim} axes expected, got {array.dtype} of {array.ndim}")
    return array.astype(_STORED[dtype], copy=False).tobytes()


# Outcomes as they are stored: shorter where they are long, and with checksums.
#
# What is compressed is laid out by who puts an outcome in: that takes many small steps, each of
# which needs Python's lock. Compressing many together needs it once, and is left to the writer's
# thread.


def compressible(packed: Packed) -> Content | None:
    """Return the form in which arrays of `codec.pack` are compressed; None if they are short."""
    if len(packed.arrays) < blobs.COMPRESS_FROM_BYTES:
        return None
    _, top = _sizes(*_read_head(packed.head))
    return blobs.content_of(packed.arrays, top)


def compress(outcomes: Iterable[tuple[Packed, Content | None, bytes]]) -> list[Packed]:
    """Outcomes as they are stored.

    Each outcome is what `codec.pack` gave, its `compressible` form, and the key. One that is
    compressed already, with no such form, stays as it is.
    """
    given = list(outcomes)
    stored = [packed for packed, _, _ in given]
    new = [at for at, packed in enumerate(stored) if not blobs.is_checked(packed.head)]
    heads = blobs.shorten([stored[at].head for at in new])
    frames = iter(blobs.compressed([content[1] for _, content, _ in given if content]))
    for at, head in zip(new, heads, strict=True):
        packed, content, key = given[at]
        arrays = packed.arrays
        if content is not None:
            arrays = min(arrays, content[0] + next(frames), key=len)
        stored[at] = Packed(blobs.checked(head, key + arrays), arrays)
    return stored


def encode(outcome: Outcome | Failure, key: bytes = b"") -> Packed:
    """The blobs of an outcome as they are stored under a key; fails as `codec.pack` does."""
    packed = pack(outcome)
    return compress([(packed, compressible(packed), key)])[0]
