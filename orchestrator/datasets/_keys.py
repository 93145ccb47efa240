"""Faults of JSON that decoders do not name: keys that stand twice, halves of characters."""

import json
import re
from typing import Any, Final

_KEY_END: Final = re.compile(rb'"\s*:')
# An escaped backslash or a whole pair is taken first, so that what is left is a half.
_ESCAPED: Final = re.compile(
    rb"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def not_json(text: bytes, error: Exception) -> str:
    """Say why a text can't be decoded.

    Programs that cut texts by characters of UTF-16 leave halves, which decoders call malformed.
    """
    half = next((found for found in _ESCAPED.finditer(text) if found["half"]), None)
    if half is None:
        return f"not JSON: {error}"
    return f"has half a character ({half['half'].decode()}, a lone surrogate); remove it"


def repeated_key(text: bytes, value: object) -> str | None:
    """Return a key that an object of a JSON text has twice, at any depth; None where there is none.

    Args:
        text: Valid JSON.
        value: What it was decoded to. As many keys in it as the text can hold mean that none was
            lost, so that few texts have to be decoded again.
    """
    n_keys, to_visit = 0, [value]
    while to_visit:
        one = to_visit.pop()
        if isinstance(one, dict):
            n_keys += len(one)
            to_visit += one.values()
        elif isinstance(one, list):
            to_visit += one
    if len(_KEY_END.findall(text)) == n_keys:
        return None
    found: list[str] = []

    def pairs(entries: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, entry in entries:
            if key in made:
                found.append(key)
            made[key] = entry
        return made

    try:
        json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        # Numbers of thousands of digits, or nested deeper than this decoder goes.
        return None
    return found[0] if found else None
