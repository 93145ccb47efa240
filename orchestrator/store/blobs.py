"""The bytes below the codecs: version, compression, texts that are not UTF-8, and alternatives.

A blob is a version byte, a compression byte and a body; as it is stored (version 2) two checksums
stand before the body, its own and that of the key and arrays which belong to it: SQLite has none,
and a bit that flips on the disk would be another number. Arrays need no version: their length is
known from the head they belong to, so a blob of that length holds them as they are, and a shorter
one holds them transposed by byte (all first bytes, then all second bytes, …) and zstd-compressed.
On log-probabilities that is a fifth smaller and twice as fast as zstd alone. Arrays with
alternatives have a form of their own.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import numpy as np
import zstandard
from numpy.typing import NDArray

from orchestrator.disk.paths import repair
from orchestrator.errors import StoreError

Words = NDArray[np.uint32]

VERSION: Final = 2
COMPRESS_FROM_BYTES: Final = 256
_RAW: Final = 0
_ZSTD: Final = 1
_UNCHECKED: Final = 1
_PREFIX_BYTES: Final = 2
_SUM_BYTES: Final = 4
_CHECKED_PREFIX_BYTES: Final = _PREFIX_BYTES + 2 * _SUM_BYTES
_RAW_PREFIX: Final = bytes((_UNCHECKED, _RAW))
_ZSTD_PREFIX: Final = bytes((_UNCHECKED, _ZSTD))
# Compressed at once, which takes about as much memory again.
_BYTES_AT_ONCE: Final = 4 << 20
REPAIR: Final = "`orchestrator runs repair RUN` keeps what is readable"
"""The remedy of `damaged`, for a run that `located` names."""
MOST_BYTES: Final = 64 << 20
"""The longest body of a record: no reply is longer. Longer ones are neither written nor read."""
MOST_ARRAYS_BYTES: Final = 2 * MOST_BYTES
"""The longest arrays of an outcome: a number takes four bytes, in a reply at least two."""


Content = tuple[bytes, bytes]
"""Four-byte values before compression: a mark, and what is compressed to stand behind it."""


class _Zstd(threading.local):
    """zstd contexts are not for two threads at once."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=3)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _Zstd()


def damaged(what: str, error: object) -> StoreError:
    """Return the error for content that is not as it was written, with the remedy."""
    return StoreError(f"{what} damaged: {error}. {REPAIR}")


def located(error: StoreError, path: Path) -> StoreError:
    """The same error of the store at `path`, which records do not know."""
    said = str(error).replace(REPAIR, repair(path.parent))
    return StoreError(said if str(path) in said else f"{path}: {said}")


def seal(body: bytes) -> bytes:
    """A blob of the body as it is, without checksums.

    Raises:
        ValueError: If it is longer than a body may be.
    """
    check_length(len(body), MOST_BYTES)
    return _RAW_PREFIX + body


def check_length(n_bytes: int, most_bytes: int) -> None:
    """Hold a length to its limit.

    Raises:
        ValueError: If it is exceeded.
    """
    if n_bytes > most_bytes:
        raise ValueError(f"{n_bytes:,} bytes, more than the {most_bytes:,} that a record can have")


def shorten(blobs: Sequence[bytes]) -> list[bytes]:
    """Sealed blobs, each compressed where that makes it shorter."""
    shortened = list(blobs)
    long = [at for at, blob in enumerate(blobs) if len(blob) >= COMPRESS_FROM_BYTES]
    frames = compressed([blobs[at][_PREFIX_BYTES:] for at in long])
    for at, frame in zip(long, frames, strict=True):
        shortened[at] = min(blobs[at], _ZSTD_PREFIX + frame, key=len)
    return shortened


def open_blob(blob: bytes) -> bytes | memoryview:
    """The body of a blob.

    Raises:
        StoreError: If it is damaged or of an unknown version.
    """
    body = _checked_body(blob)
    if blob[1] == _RAW:
        return body
    try:
        return inflate(body, MOST_BYTES)
    except (zstandard.ZstdError, ValueError) as error:
        raise damaged("a stored record is", error) from error


def inflate(frame: bytes | memoryview, most_bytes: int) -> bytes:
    """The content of a zstd frame.

    Memory for the length that the frame states is allocated before anything is read, so that length
    is held to the limit first. A frame with more content than it states is refused by zstd.

    Raises:
        zstandard.ZstdError: If it is no frame, or states no length or another than it has.
        ValueError: If it is longer than `most_bytes`.
    """
    check_length(zstandard.frame_content_size(frame), most_bytes)
    return _zstd.decompressor.decompress(frame)


def checked(blob: bytes, belonging: bytes = b"") -> bytes:
    """A sealed blob as it is stored: with checksums of itself and of what belongs to it."""
    rest = _sum(belonging) + blob[_PREFIX_BYTES:]
    return bytes((VERSION, blob[1])) + _sum(blob[1:2] + rest) + rest


def is_checked(blob: bytes) -> bool:
    """Return True if a blob has checksums."""
    return blob[:1] == bytes((VERSION,))


def check(blob: bytes, belonging: bytes = b"") -> None:
    """Hold a blob, its key and arrays to their checksums, where it has any.

    Raises:
        StoreError: If they are damaged.
    """
    _checked_body(blob)
    check_belonging(blob, belonging)


def check_belonging(blob: bytes, belonging: bytes) -> None:
    """Hold key and arrays to the checksum in the blob that they belong to, where it has one.

    Raises:
        StoreError: If they are damaged.
    """
    stated = blob[_PREFIX_BYTES + _SUM_BYTES : _CHECKED_PREFIX_BYTES]
    if is_checked(blob) and stated != _sum(belonging):
        raise damaged("a stored key or its arrays are", "their checksum differs")


def _checked_body(blob: bytes) -> memoryview:
    if not isinstance(blob, bytes):
        # A bit of a record's header makes a number of a blob.
        raise damaged("a stored record is", "wrong type")
    view = memoryview(blob)
    if len(blob) < _PREFIX_BYTES:
        raise damaged("a stored record is", "no version")
    if blob[0] == _UNCHECKED:
        return view[_PREFIX_BYTES:]
    if blob[0] != VERSION:
        raise StoreError(
            f"a stored record has format {blob[0]}, this version reads {VERSION}: use the version "
            f"that wrote the run. If there is none, the record is damaged: {REPAIR}"
        )
    rest = _PREFIX_BYTES + _SUM_BYTES
    if blob[_PREFIX_BYTES:rest] != _sum(blob[1:2] + blob[rest:]):
        raise damaged("a stored record is", "its checksum differs")
    return view[_CHECKED_PREFIX_BYTES:]


def _sum(content: bytes) -> bytes:
    return crc32(content).to_bytes(_SUM_BYTES, "little")


def expand_arrays(arrays: bytes, n_bytes: int) -> bytes:
    """The four-byte values, which are `n_bytes` long.

    Raises:
        StoreError: If they are not.
    """
    if len(arrays) == n_bytes:
        return arrays
    if len(arrays) > n_bytes:
        raise damaged("stored arrays are", f"{len(arrays)} bytes do not decompress to {n_bytes}")
    planes = np.frombuffer(decompressed(arrays, n_bytes), np.uint8)
    return planes.reshape(4, -1).T.tobytes()


def compressed(bodies: Sequence[bytes]) -> list[bytes]:
    """One zstd frame for each body.

    Python's lock is let go for many of them together: to get it back from the event loop each time
    took longer than to compress.
    """
    frames: list[bytes] = []
    together: list[bytes | bytearray | memoryview] = []
    n_bytes = 0
    for number, body in enumerate(bodies, 1):
        together.append(body)
        n_bytes += len(body)
        if n_bytes >= _BYTES_AT_ONCE or number == len(bodies):
            made = _zstd.compressor.multi_compress_to_buffer(together)
            frames += [made[at].tobytes() for at in range(len(made))]
            together, n_bytes = [], 0
    return frames


def decompressed(frame: bytes, n_bytes: int) -> bytes:
    """Return the content of a frame, which is `n_bytes` long.

    Raises:
        StoreError: If it is not.
    """
    try:
        # The expected length comes from the head, which may be as wrong as the frame.
        check_length(n_bytes, MOST_ARRAYS_BYTES)
        content = inflate(frame, n_bytes)
    except (zstandard.ZstdError, ValueError) as error:
        raise damaged("stored arrays are", error) from error
    if len(content) != n_bytes:
        raise damaged("stored arrays are", f"{len(content)} bytes instead of {n_bytes}")
    return content


def text_to_bytes(text: str) -> bytes:
    """UTF-8, lone surrogates included: model output may hold them."""
    return text.encode("utf-8", "surrogatepass")


def bytes_to_text(stored: bytes) -> str:
    """The text that `text_to_bytes` was given."""
    return stored.decode("utf-8", "surrogatepass")


def printable(text: str, max_characters: int) -> str:
    """A shortened text that any file or column can hold; lone surrogates become escapes."""
    return text[:max_characters].encode("utf-8", "backslashreplace").decode()


# Arrays blobs with alternatives: fewer bytes, bit for bit the same values.
#
# Two things are known of the most likely tokens at each position. They stand in order, so that the
# bits of a log-probability differ little from those of its left neighbour; where the server's
# logits have 16 bits, as they mostly do, the difference is a small multiple of their step. And the
# same tokens come again and again, so that a list of the distinct ids and a short index are less
# than the ids. What is left is laid out rank by rank, transposed by byte, and compressed by zstd.
#
# A blob is a mark, the number of distinct ids (two bytes, little-endian; 0 where the ids stand as
# they are), and one zstd frame. The mark tells it from the other form of an arrays blob, which
# begins with zstd's own: see `store.blobs`.


MARK: Final = 1
_HEAD_BYTES: Final = 3
_MOST_DISTINCT: Final = 2**16 - 1
# With more distinct ids than one in three, list and index are longer than the ids.
_SHARE: Final = 3
_ONE_BYTE: Final = 2**8
_HIGH: Final = np.uint64(32)

Top = tuple[int, tuple[int, int]]
"""Place of the alternatives in an outcome's arrays: values before them, and their shape (T, k).

As many ids come first, then as many log-probabilities."""


def content_of(arrays: bytes, top: Top | None) -> Content:
    """Return the form of the arrays that is compressed, without or with alternatives."""
    if top is None:
        return b"", _planes(np.frombuffer(arrays, "<u4"))
    values: Words = np.frombuffer(arrays, "<u4")
    begin, shape = top
    n = shape[0] * shape[1]
    rest = np.concatenate((values[:begin], values[begin + 2 * n :]))
    ids = values[begin : begin + n].reshape(shape).T
    logprobs = values[begin + n : begin + 2 * n].reshape(shape).T
    steps = logprobs.copy()
    steps[1:] -= logprobs[:-1]
    n_distinct, coded = _coded(ids)
    mark = bytes((MARK,)) + n_distinct.to_bytes(_HEAD_BYTES - 1, "little")
    return mark, _planes(rest) + coded + _planes(steps)


def expand_alternatives(blob: bytes, n_bytes: int, top: Top) -> bytes:
    """The arrays, which are `n_bytes` long.

    Raises:
        StoreError: If the blob is damaged.
    """
    n_distinct = int.from_bytes(blob[1:_HEAD_BYTES], "little")
    begin, shape = top
    n, width = shape[0] * shape[1], 1 + (n_distinct > _ONE_BYTE)
    n_rest = n_bytes // 4 - 2 * n
    n_list = n_distinct or n
    n_index = n * width if n_distinct else 0
    content = decompressed(blob[_HEAD_BYTES:], 4 * (n_rest + n_list + n) + n_index)
    rest = _from_planes(content[: 4 * n_rest], "<u4")
    at = 4 * (n_rest + n_list)
    listed = _from_planes(content[4 * n_rest : at], "<u4")
    steps = _from_planes(content[at + n_index :], "<u4").reshape(shape[::-1])
    if n_distinct:
        index = _from_planes(content[at : at + n_index], f"<u{width}")
        if index.size and int(index.max()) >= n_distinct:
            raise StoreError("stored arrays are damaged: an index has no id")
        listed = np.cumsum(listed, dtype=np.uint32)[index]
    ids = listed.reshape(shape[::-1]).T
    logprobs = np.cumsum(steps, axis=0, dtype=np.uint32).T
    parts = (rest[:begin], ids.ravel(), logprobs.ravel(), rest[begin:])
    return np.concatenate(parts).astype("<u4", copy=False).tobytes()


def _coded(ids: Words) -> tuple[int, bytes]:
    """Return the number of distinct ids, and their list with its index; 0 and the ids for none."""
    # Sorted together with their places, which is several times faster than looking each id up.
    placed = (ids.ravel().astype(np.uint64) << _HIGH) | np.arange(ids.size, dtype=np.uint64)
    placed.sort()
    ordered = (placed >> _HIGH).astype(np.uint32)
    is_new = np.empty(ids.size, np.bool_)
    is_new[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    listed = ordered[is_new]
    n_distinct = len(listed)
    if n_distinct > min(ids.size // _SHARE, _MOST_DISTINCT):
        return 0, _planes(ids)
    index = np.cumsum(is_new, dtype=np.uint32) - 1
    if n_distinct > _ONE_BYTE:
        # The most frequent, as many as one byte tells, come first: the second byte of most indexes
        # is 0 then. Both parts stay in order, so that gaps stay small.
        counts = np.diff(np.flatnonzero(is_new), append=ids.size)
        by_count = np.argsort(-counts, kind="stable")
        by_place = np.concatenate((np.sort(by_count[:_ONE_BYTE]), np.sort(by_count[_ONE_BYTE:])))
        listed = listed[by_place]
        index = np.argsort(by_place).astype(np.uint32)[index]
    gaps = listed.copy()
    gaps[1:] -= listed[:-1]
    coded = np.empty(ids.size, f"<u{1 + (n_distinct > _ONE_BYTE)}")
    coded[placed.astype(np.uint32)] = index
    return n_distinct, _planes(gaps) + _planes(coded)


def _planes(values: NDArray[Any]) -> bytes:
    """All first bytes of the values, then all second bytes, and so on."""
    width = values.dtype.itemsize
    if width == 1:
        return values.tobytes()
    return np.frombuffer(values.tobytes(), np.uint8).reshape(-1, width).T.tobytes()


def _from_planes(planes: bytes, dtype: str) -> NDArray[Any]:
    width = np.dtype(dtype).itemsize
    joined = np.frombuffer(planes, np.uint8).reshape(width, -1).T.tobytes()
    return np.frombuffer(joined, dtype)
