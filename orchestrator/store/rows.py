"""Rows of frames to bytes and back."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from orchestrator.errors import StoreError
from orchestrator.store import blobs

_SURROGATE_TEXT: Final = 1


def pack_rows(rows: Sequence[Sequence[object]]) -> bytes:
    """Rows of plain values (numpy scalars become Python's) as one blob, uncompressed.

    Raises:
        StoreError: If a value is of a type that can't be stored, or they are too long.
    """
    try:
        try:
            body = _encode(rows)
        except UnicodeEncodeError:
            body = _encode([[_surrogates_to_ext(value) for value in row] for row in rows])
        return blobs.seal(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StoreError(f"a row cannot be stored: {error}") from error


def compress_rows(packed: Sequence[bytes]) -> list[bytes]:
    """Compress the rows of `pack_rows` where they are long, and add checksums."""
    return [blobs.checked(blob) for blob in blobs.shorten(packed)]


def decode_rows(blob: bytes) -> list[tuple[object, ...]]:
    """The rows of a blob; sequences inside a row come back as lists.

    Raises:
        StoreError: If the blob is damaged or of an unknown version.
    """
    try:
        return _decode(blobs.open_blob(blob))
    except (msgspec.MsgspecError, ValueError) as error:
        raise blobs.damaged("stored rows are", error) from error


def _plain_value(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"values of type {type(value).__name__} are not storable")


def _surrogates_to_ext(value: object) -> object:
    match value:
        case str():
            return msgspec.msgpack.Ext(_SURROGATE_TEXT, blobs.text_to_bytes(value))
        case list() | tuple():
            return [_surrogates_to_ext(inner) for inner in value]
        case dict():
            return {key: _surrogates_to_ext(inner) for key, inner in value.items()}
        case _:
            return value


def _ext_to_text(code: int, data: memoryview) -> str:
    if code != _SURROGATE_TEXT:
        raise msgspec.ValidationError(f"unknown extension {code}")
    return blobs.bytes_to_text(bytes(data))


_encode = msgspec.msgpack.Encoder(enc_hook=_plain_value).encode
_decode = msgspec.msgpack.Decoder(list[tuple[Any, ...]], ext_hook=_ext_to_text).decode
