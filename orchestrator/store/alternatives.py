"""Arrays blobs with alternatives: fewer bytes, bit for bit the same values.

Two things are known of the most likely tokens at each position. They stand in order, so that the
bits of a log-probability differ little from those of its left neighbour; where the server's logits
have 16 bits, as they mostly do, the difference is a small multiple of their step. And the same
tokens come again and again, so that a list of the distinct ids and a short index are less than the
ids. What is left is laid out rank by rank, transposed by byte, and compressed by zstd.

A blob is a mark, the number of distinct ids (two bytes, little-endian; 0 where the ids stand as
they are), and one zstd frame. The mark tells it from the other form of an arrays blob, which
begins with zstd's own: see `store.blobs`.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import StoreError
from orchestrator.store import blobs

MARK: Final = 1
_HEAD_BYTES: Final = 3
_MOST_DISTINCT: Final = 2**16 - 1
# With more distinct ids than one in three, list and index are longer than the ids.
_SHARE: Final = 3
_ONE_BYTE: Final = 2**8
_HIGH: Final = np.uint64(32)

Words = NDArray[np.uint32]


class Layout(NamedTuple):
    """Position of an outcome's alternatives in its arrays.

    Attributes:
        n_before: Values before them.
        shape: (T, k) of their ids, which come first, and of their log-probabilities.
    """

    n_before: int
    shape: tuple[int, int]

    @property
    def size(self) -> int:
        """Ids, and as many log-probabilities."""
        return self.shape[0] * self.shape[1]


def alternatives_content(arrays: bytes, layout: Layout) -> blobs.Content:
    """Return the form of the arrays that is compressed."""
    values: Words = np.frombuffer(arrays, "<u4")
    begin, n = layout.n_before, layout.size
    rest = np.concatenate((values[:begin], values[begin + 2 * n :]))
    ids = values[begin : begin + n].reshape(layout.shape).T
    logprobs = values[begin + n : begin + 2 * n].reshape(layout.shape).T
    steps = logprobs.copy()
    steps[1:] -= logprobs[:-1]
    n_distinct, coded = _coded(ids)
    mark = bytes((MARK,)) + n_distinct.to_bytes(_HEAD_BYTES - 1, "little")
    return blobs.Content(mark, _planes(rest) + coded + _planes(steps))


def expand_alternatives(blob: bytes, n_bytes: int, layout: Layout) -> bytes:
    """The arrays, which are `n_bytes` long.

    Raises:
        StoreError: If the blob is damaged.
    """
    n_distinct = int.from_bytes(blob[1:_HEAD_BYTES], "little")
    n, width = layout.size, _width(n_distinct)
    n_rest = n_bytes // 4 - 2 * n
    n_list = n_distinct or n
    n_index = n * width if n_distinct else 0
    content = blobs.decompressed(blob[_HEAD_BYTES:], 4 * (n_rest + n_list + n) + n_index)
    rest = _from_planes(content[: 4 * n_rest], "<u4")
    at = 4 * (n_rest + n_list)
    listed = _from_planes(content[4 * n_rest : at], "<u4")
    steps = _from_planes(content[at + n_index :], "<u4").reshape(layout.shape[::-1])
    if n_distinct:
        index = _from_planes(content[at : at + n_index], f"<u{width}")
        if index.size and int(index.max()) >= n_distinct:
            raise StoreError("stored arrays are damaged: an index has no id")
        listed = np.cumsum(listed, dtype=np.uint32)[index]
    ids = listed.reshape(layout.shape[::-1]).T
    logprobs = np.cumsum(steps, axis=0, dtype=np.uint32).T
    parts = (rest[: layout.n_before], ids.ravel(), logprobs.ravel(), rest[layout.n_before :])
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
    coded = np.empty(ids.size, f"<u{_width(n_distinct)}")
    coded[placed.astype(np.uint32)] = index
    return n_distinct, _planes(gaps) + _planes(coded)


def _width(n_distinct: int) -> int:
    return 1 if n_distinct <= _ONE_BYTE else 2


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
