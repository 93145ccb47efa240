"""Which model a reply says it is of, without decoding it: looked at in every reply.

Where a name stands is found by its key, which no text of a reply can hold: there its quotes are
escaped.
"""

from typing import Final

from orchestrator.wire import failures

Origin = tuple[bytes, bytes]
"""The texts of `model` and `system_fingerprint`, escaped; empty where there are none."""

_HEAD: Final = 512
_TAIL: Final = 1024
_MOST: Final = 300


def origin_of(body: bytes) -> Origin:
    """What a chat completion says near its beginning and near its end, or beginning."""
    model = _member(body, b'"model":', 0, _HEAD)
    key = b'"system_fingerprint":'
    return model, _member(body, key, max(len(body) - _TAIL, 0), len(body)) or (
        _member(body, key, 0, _HEAD)
    )


def _member(body: bytes, key: bytes, start: int, end: int) -> bytes:
    at = body.find(key, start, end)
    if at < 0:
        return b""
    at += len(key)
    opened = body.find(b'"', at, at + 2)
    closed = body.find(b'"', opened + 1, opened + _MOST) if opened >= 0 else -1
    return body[opened + 1 : closed] if closed >= 0 else b""


def words(origin: Origin, secret: str) -> str:
    """An origin for people."""
    model, fingerprint = (
        failures.clean(part.decode("utf-8", "replace"), secret) for part in origin
    )
    return f"{model or 'no name'}{f' ({fingerprint})' if fingerprint else ''}"
