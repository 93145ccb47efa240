"""Zstd frames written by hand, whose stated length may be any."""

import struct
from zlib import crc32

from orchestrator.store import blobs

_MAGIC = b"\x28\xb5\x2f\xfd"
# The longest block that may be: 128 KiB, here of one byte that is repeated.
_BLOCK_BYTES = 1 << 17
_RLE = 1
_WINDOW_OF_128_KIB = bytes((7 << 3,))
_EIGHT_BYTES_OF_LENGTH = 3 << 6


def zeros(n_bytes: int, stated: int | None) -> bytes:
    """A frame of zeros that states a length; four bytes for each 128 KiB of them.

    Source: RFC 8878, sections 3.1.1.1 and 3.1.1.2.
    """
    if stated is None:
        head = b"\x00" + _WINDOW_OF_128_KIB
    else:
        head = bytes((_EIGHT_BYTES_OF_LENGTH,)) + _WINDOW_OF_128_KIB + struct.pack("<Q", stated)
    n_blocks = -(-n_bytes // _BLOCK_BYTES)
    last = n_bytes - (n_blocks - 1) * _BLOCK_BYTES
    blocks = _block(_BLOCK_BYTES, is_last=False) * (n_blocks - 1) + _block(last, is_last=True)
    return _MAGIC + head + blocks


def compressed_blob(frame: bytes) -> bytes:
    """A stored blob with right checksums, as anybody can make one."""
    rest = struct.pack("<I", crc32(b"")) + frame
    return bytes((blobs.VERSION, 1)) + struct.pack("<I", crc32(b"\x01" + rest)) + rest


def _block(n_bytes: int, *, is_last: bool) -> bytes:
    return (n_bytes << 3 | _RLE << 1 | is_last).to_bytes(3, "little") + b"\x00"
