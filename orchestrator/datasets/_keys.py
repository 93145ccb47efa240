"""Keys that stand twice in one JSON object: decoders keep the last and say nothing."""

import json
import re
from typing import Any, Final

_KEY_END: Final = re.compile(rb'"\s*:')


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
