"""Outcomes as they are stored: shorter where they are long, and with checksums.

What is compressed is laid out by who puts an outcome in: that takes many small steps, each of which
needs Python's lock. Compressing many together needs it once, and is left to the writer's thread.
"""

from collections.abc import Iterable

from orchestrator.records import Failure, Outcome
from orchestrator.store import alternatives, blobs, codec
from orchestrator.store.blobs import Content
from orchestrator.store.codec import Packed


def compressible(packed: Packed) -> Content | None:
    """Return the form in which arrays of `codec.pack` are compressed; None if they are short."""
    if len(packed.arrays) < blobs.COMPRESS_FROM_BYTES:
        return None
    layout = codec.layout_of(packed)
    if layout is None:
        return blobs.arrays_content(packed.arrays)
    return alternatives.alternatives_content(packed.arrays, layout)


def compress(outcomes: Iterable[tuple[Packed, Content | None, bytes]]) -> list[Packed]:
    """Outcomes as they are stored.

    Args:
        outcomes: What `codec.pack` gave, its `compressible` form, and the key. One that is
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
    packed = codec.pack(outcome)
    return compress([(packed, compressible(packed), key)])[0]
