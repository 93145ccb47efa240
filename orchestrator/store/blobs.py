"""The bytes below the codecs: version, compression, and texts that are not UTF-8.

A blob is a version byte, a compression byte and a body. Arrays need neither: their length is known
from the head they belong to, so a blob of that length holds them as they are, and a shorter one
holds them transposed by byte (all first bytes, then all second bytes, …) and zstd-compressed. On
log-probabilities that is a fifth smaller and twice as fast as zstd alone. Arrays with alternatives
have a form of their own: `store.alternatives`.
"""

import threading
from typing import Final

import numpy as np
import zstandard

from orchestrator.errors import StoreError

VERSION: Final = 1
COMPRESS_FROM_BYTES: Final = 256
_RAW: Final = 0
_ZSTD: Final = 1
_PREFIX_BYTES: Final = 2
_RAW_PREFIX: Final = bytes((VERSION, _RAW))
_ZSTD_PREFIX: Final = bytes((VERSION, _ZSTD))


class _Zstd(threading.local):
    """zstd contexts are not for two threads at once."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=3)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _Zstd()


def seal(body: bytes) -> bytes:
    """A blob of the body as it is."""
    return _RAW_PREFIX + body


def shorten(blob: bytes) -> bytes:
    """A sealed blob, compressed where that makes it shorter."""
    if len(blob) < COMPRESS_FROM_BYTES:
        return blob
    return _shorter(_ZSTD_PREFIX + _zstd.compressor.compress(blob[_PREFIX_BYTES:]), blob)


def open_blob(blob: bytes) -> bytes | memoryview:
    """The body of a blob.

    Raises:
        StoreError: If it is damaged or of an unknown version.
    """
    if len(blob) < _PREFIX_BYTES:
        raise StoreError("a stored record is damaged: it has no version")
    if blob[0] != VERSION:
        raise StoreError(
            f"a stored record has format {blob[0]}, this version reads {VERSION}: "
            "use the version that wrote the run, or start again with --fresh"
        )
    body = memoryview(blob)[_PREFIX_BYTES:]
    if blob[1] == _RAW:
        return body
    try:
        return _zstd.decompressor.decompress(body)
    except (zstandard.ZstdError, MemoryError) as error:
        raise StoreError(f"a stored record is damaged: {error}") from error


def shorten_arrays(arrays: bytes) -> bytes:
    """Four-byte values, compressed where that makes them shorter."""
    if len(arrays) < COMPRESS_FROM_BYTES:
        return arrays
    planes = np.frombuffer(arrays, np.uint8).reshape(-1, 4).T.tobytes()
    return _shorter(compressed(planes), arrays)


def expand_arrays(arrays: bytes, n_bytes: int) -> bytes:
    """The four-byte values, which are `n_bytes` long.

    Raises:
        StoreError: If they are not.
    """
    if len(arrays) == n_bytes:
        return arrays
    if len(arrays) > n_bytes:
        raise StoreError(f"stored arrays are damaged: {len(arrays)} bytes hold no {n_bytes}")
    planes = np.frombuffer(decompressed(arrays, n_bytes), np.uint8)
    return planes.reshape(4, -1).T.tobytes()


def compressed(body: bytes) -> bytes:
    """One zstd frame."""
    return _zstd.compressor.compress(body)


def decompressed(frame: bytes, n_bytes: int) -> bytes:
    """What a frame holds, which is `n_bytes` long.

    Raises:
        StoreError: If it is not.
    """
    try:
        # The frame says its size; one that lies would make zstd allocate it.
        if zstandard.frame_content_size(frame) == n_bytes:
            return _zstd.decompressor.decompress(frame)
    except zstandard.ZstdError as error:
        raise StoreError(f"stored arrays are damaged: {error}") from error
    raise StoreError(f"stored arrays are damaged: {len(frame)} bytes hold no {n_bytes}")


def text_to_bytes(text: str) -> bytes:
    """UTF-8, lone surrogates included: model output may hold them."""
    return text.encode("utf-8", "surrogatepass")


def bytes_to_text(stored: bytes) -> str:
    """The text that `text_to_bytes` was given."""
    return stored.decode("utf-8", "surrogatepass")


def printable(text: str, max_characters: int) -> str:
    """A shortened text that any file or column can hold; lone surrogates become escapes."""
    return text[:max_characters].encode("utf-8", "backslashreplace").decode()


def _shorter(candidate: bytes, original: bytes) -> bytes:
    return candidate if len(candidate) < len(original) else original
