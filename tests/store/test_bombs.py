"""Compressed bodies that would take far more memory than they are long."""

import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import numpy as np
import pytest
import zstandard

from orchestrator.errors import StoreError
from orchestrator.records import Generation
from orchestrator.store import blobs, codec, values
from tests.store.frames import compressed_blob, zeros

ROOM_BYTES = 3 << 20
GIB = 1 << 30
LENGTHS = {
    "stated": 4 * GIB,
    "understated": 100,
    "of_18_exabytes": 2**64 - 3,
    "not_stated": None,
}


@contextmanager
def little_memory() -> Iterator[None]:
    """Bound what Python's allocators hand out meanwhile; zstd's output is among it."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < ROOM_BYTES
    finally:
        tracemalloc.stop()


@pytest.fixture(params=[*LENGTHS.values()], ids=[*LENGTHS])
def bomb(request: pytest.FixtureRequest) -> bytes:
    return zeros(4 * GIB, stated=request.param)


def refuses(read: Callable[[], object]) -> None:
    with little_memory(), pytest.raises(StoreError, match="damaged"):
        read()


def test_frames_of_zeros_are_what_zstd_writes_too() -> None:
    frame = zeros(1 << 20, stated=1 << 20)
    assert zstandard.ZstdDecompressor().decompress(frame) == bytes(1 << 20)
    assert len(zeros(4 * GIB, stated=4 * GIB)) < 140_000


def test_a_head_that_inflates_without_end_is_damage(bomb: bytes) -> None:
    refuses(lambda: codec.decode(compressed_blob(bomb), b""))


def test_rows_that_inflate_without_end_are_damage(bomb: bytes) -> None:
    refuses(lambda: values.decode(compressed_blob(bomb)))


@pytest.mark.parametrize("n_values", [400, GIB, 2**62])
@pytest.mark.parametrize("mark", [b"", b"\x01\x00\x00"], ids=["planes", "alternatives"])
def test_arrays_that_inflate_without_end_are_damage(
    bomb: bytes, n_values: int, mark: bytes
) -> None:
    top = (n_values // 2, 1) if mark else None
    sizes = (n_values, None, None) if top is None else (None, None, top)
    # The fields of a stored generation in their order, its tag first.
    head = [1, b"", b"stop", 1, 1, 0, True, *sizes]
    arrays = mark + bomb
    sealed = blobs.checked(blobs.seal(msgspec.msgpack.encode(head)), arrays)
    refuses(lambda: codec.decode(sealed, arrays))


def test_a_frame_behind_one_to_be_skipped_is_damage() -> None:
    skipped = struct.pack("<II", 0x184D2A50, 4) + bytes(4)
    refuses(lambda: values.decode(compressed_blob(skipped + zeros(4 * GIB, stated=4 * GIB))))


def test_what_is_written_can_be_read() -> None:
    text = "a" * (blobs.MOST_BYTES - 200)
    back = codec.decode(*codec.encode(Generation(text, "stop")))
    assert isinstance(back, Generation)
    assert back.text == text


def test_what_could_not_be_read_is_not_written() -> None:
    text = "a" * blobs.MOST_BYTES
    with pytest.raises(StoreError, match=r"more than the 67,108,864"):
        codec.pack(Generation(text, "stop"))
    with pytest.raises(StoreError, match=r"more than the 67,108,864"):
        values.encode([(text,)])
    ids = np.zeros(blobs.MOST_ARRAYS_BYTES // 4 + 1, np.int32)
    with pytest.raises(StoreError, match=r"more than the 134,217,728"):
        codec.pack(Generation("", "stop", token_ids=ids))
