"""The model that a reply names, found without decoding: looked at in every reply.

Where a name stands is found by its key, which no text of a reply can hold: there its quotes are
escaped.
"""

from typing import Final

from orchestrator.wire import failures

Origin = tuple[bytes, bytes]
"""The texts of `model` and `system_fingerprint`, escaped; empty where there are none."""

_MODEL: Final = b'"model":'
_FINGERPRINT: Final = b'"system_fingerprint":'
_HEAD: Final = 512
_TAIL: Final = 1024
_MOST: Final = 300


def origin_of(body: bytes) -> Origin:
    """Return model and fingerprint near the beginning and the end of a chat completion."""
    model, fingerprint = (member.split(b'"')[3:4] for member in marks_of(body))
    return b"".join(model), b"".join(fingerprint)


def marks_of(body: bytes) -> Origin:
    """The same with its keys, as the reply writes them: what `still_says` looks for."""
    tail = max(len(body) - _TAIL, 0)
    found = _member(body, _FINGERPRINT, tail, len(body)) or _member(body, _FINGERPRINT, 0, _HEAD)
    return _member(body, _MODEL, 0, _HEAD), found


def still_says(body: bytes, marks: Origin) -> bool:
    """Return True if a reply has the same marks as another; False also if that one lacked some."""
    model, fingerprint = marks
    if not model or not fingerprint or body.find(model, 0, _HEAD) < 0:
        return False
    tail = max(len(body) - _TAIL, 0)
    return body.find(fingerprint, tail) >= 0 or body.find(fingerprint, 0, _HEAD) >= 0


def _member(body: bytes, key: bytes, start: int, end: int) -> bytes:
    at = body.find(key, start, end)
    opened = body.find(b'"', at + len(key), at + len(key) + 2) if at >= 0 else -1
    closed = body.find(b'"', opened + 1, opened + _MOST) if opened >= 0 else -1
    return body[at : closed + 1] if closed >= 0 else b""


def words(origin: Origin, secret: str) -> str:
    """An origin for people."""
    model, fingerprint = (
        failures.clean(part.decode("utf-8", "replace"), secret) for part in origin
    )
    return f"{model or 'no name'}{f' ({fingerprint})' if fingerprint else ''}"
