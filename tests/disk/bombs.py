"""Parquet files written by hand, of some hundred bytes, that hold gigabytes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import zstandard

I32, I64, TEXT, LIST, STRUCT = 5, 6, 8, 9, 12
BYTE_ARRAY, FIXED = 6, 7
PLAIN, DELTA_BINARY_PACKED, DELTA_BYTE_ARRAY, RLE_DICTIONARY = 0, 5, 7, 8
_ZSTD = 6
_DATA, _DICTIONARY = 0, 2

Fields = dict[int, tuple[int, Any]]


def rows(path: Path, *, n: int = 300_000_000, said: int | None = None) -> None:
    """One text in very many rows: one run of the index 0. The footer may say other numbers."""
    write(path, [dictionary(b"x"), indices(n)], n if said is None else said)


def text(path: Path, *, n: int = 5_000, length: int = 1_000_000) -> None:
    """A long text that many rows share."""
    write(path, [dictionary(b"x" * length), indices(n)], n)


def fixed(path: Path, *, n: int = 5_000, length: int = 1_000_000) -> None:
    """The same, of a type whose values can't be shared."""
    value = page(_DICTIONARY, bytes(length), 1, PLAIN)
    write(path, [value, indices(n)], n, kind=FIXED, length=length)


def pages(path: Path, *, n: int = 5, length: int = 1_000_000_000) -> None:
    """Long texts as they are, each in a page that shrinks to a few kB."""
    compressor = zstandard.ZstdCompressor().compressobj(size=4 + length)
    packed = compressor.compress(length.to_bytes(4, "little"))
    rest = length
    while rest:
        packed += compressor.compress(bytes(min(rest, 1 << 20)))
        rest -= min(rest, 1 << 20)
    packed += compressor.flush()
    one = header(_DATA, 4 + length, len(packed), 1, PLAIN) + packed
    write(path, [one] * n, n)


def prefixes(path: Path, *, n: int = 100_000, length: int = 100_000) -> None:
    """Texts each of which is the one before it, whole, and nothing more."""
    # Lengths of prefixes: 0, then `length`; lengths of suffixes: `length`, then 0.
    data = deltas(0, length, n) + deltas(length, -length, n) + bytes(length)
    write(path, [page(_DATA, data, n, DELTA_BYTE_ARRAY)], n)


ALL: dict[str, Callable[..., None]] = {
    "rows": rows,
    "text": text,
    "fixed": fixed,
    "pages": pages,
    "prefixes": prefixes,
}


def write(path: Path, chunk: list[bytes], n: int, *, kind: int = BYTE_ARRAY, length: int = 0):
    """A file of one column `prompt` in one group of rows, made of pages."""
    data = b"".join(chunk)
    root: Fields = {4: (TEXT, b"schema"), 5: (I32, 1)}
    leaf: Fields = {1: (I32, kind), 2: (I32, length), 3: (I32, 0), 4: (TEXT, b"prompt")}
    if kind == BYTE_ARRAY:
        leaf[6] = (I32, 0)  # UTF8
    has_dictionary = len(chunk) == 2 and kind in {BYTE_ARRAY, FIXED}
    begins: Fields = (
        {9: (I64, 4 + len(chunk[0])), 11: (I64, 4)} if has_dictionary else {9: (I64, 4)}
    )
    column: Fields = {
        1: (I32, kind),
        2: (LIST, (I32, [PLAIN, RLE_DICTIONARY])),
        3: (LIST, (TEXT, [b"prompt"])),
        4: (I32, _ZSTD),
        5: (I64, n),
        6: (I64, len(data)),
        7: (I64, len(data)),
        **begins,
    }
    columns = [{2: (I64, 4), 3: (STRUCT, column)}]
    group: Fields = {1: (LIST, (STRUCT, columns)), 2: (I64, len(data)), 3: (I64, n)}
    footer = struct(
        {
            1: (I32, 1),
            2: (LIST, (STRUCT, [root, leaf])),
            3: (I64, n),
            4: (LIST, (STRUCT, [group])),
        }
    )
    path.write_bytes(b"PAR1" + data + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def dictionary(value: bytes) -> bytes:
    """A dictionary of one text."""
    return page(_DICTIONARY, len(value).to_bytes(4, "little") + value, 1, PLAIN)


def indices(n: int) -> bytes:
    """A page of n times the first entry of the dictionary, as one run."""
    return page(_DATA, b"\x01" + natural(n << 1) + b"\x00", n, RLE_DICTIONARY)


def deltas(first: int, step: int, n: int) -> bytes:
    """n numbers in DELTA_BINARY_PACKED: the first, then others that are all `first + step`."""
    head = natural(128) + natural(4) + natural(n) + natural(zigzag(first))
    # A block of 128 differences: those of the first are the step and 0 (one bit each), then 0.
    least = min(step, 0)
    width = abs(step).bit_length()
    values = [step - least] + [-least] * 31
    bits = sum(value << place * width for place, value in enumerate(values))
    rest = 32 * width // 8 * 3
    others = b"".join(
        sum(-least << place * width for place in range(32)).to_bytes(32 * width // 8, "little")
        for _ in range(3)
    )
    assert len(others) == rest
    block = natural(zigzag(least)) + bytes([width] * 4) + bits.to_bytes(32 * width // 8, "little")
    n_blocks = -(-(n - 1) // 128)
    return head + block + others + (natural(0) + bytes(4)) * (n_blocks - 1)


def page(kind: int, data: bytes, n: int, encoding: int) -> bytes:
    packed = zstandard.compress(data)
    return header(kind, len(data), len(packed), n, encoding) + packed


def header(kind: int, inflated: int, compressed: int, n: int, encoding: int) -> bytes:
    about: Fields = {1: (I32, n), 2: (I32, encoding)}
    if kind == _DATA:
        about |= {3: (I32, 3), 4: (I32, 3)}
    sizes: Fields = {1: (I32, kind), 2: (I32, inflated), 3: (I32, compressed)}
    return struct(sizes | {5 if kind == _DATA else 7: (STRUCT, about)})


def struct(fields: Fields) -> bytes:
    """A structure in Thrift's compact protocol."""
    found, last = b"", 0
    for number, (kind, value) in sorted(fields.items()):
        found += bytes(((number - last) << 4 | kind,)) + _value(kind, value)
        last = number
    return found + b"\x00"


def _value(kind: int, value: Any) -> bytes:
    match kind:
        case 5 | 6:
            return natural(zigzag(value))
        case 8:
            return natural(len(value)) + bytes(value)
        case 9:
            inner, values = value
            head = bytes((len(values) << 4 | inner,))
            return head + b"".join(_value(inner, one) for one in values)
        case _:
            return struct(value)


def zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def natural(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes((value & 127 | 128,))
        value >>= 7
    return found + bytes((value,))
