"""How long a server asks to wait before the next attempt: in headers, or in the words of a body."""

import datetime as dt
import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

MAX_RETRY_AFTER_S: Final = 24 * 3600.0
WAITING_HEADERS: Final = (
    "retry-after",
    "retry-after-ms",
    "x-ratelimit-remaining",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "ratelimit-remaining",
    "ratelimit-reset",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-tokens-reset",
)
"""Headers that say how long to wait, in lower case."""

_RESETS: Final = tuple(
    (name, name.replace("reset-after", "remaining").replace("reset", "remaining"))
    for name in WAITING_HEADERS
    if "reset" in name
)
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|h|m|s)")
_SECONDS: Final[Mapping[str, float]] = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3}
# What counts from 1970 is above the first, in milliseconds above the second.
_EPOCH: Final = 1e9
_EPOCH_MS: Final = 1e12
_UNIT: Final = r"(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?)"
_IN_WORDS: Final = re.compile(
    rf"(?:try again|retry|retry[_ ]?delay|retry[_ -]?after|retry[_ ]?after[_ ]?seconds|"
    rf"estimated_time|wait)[\"']?\s*[:=]?\s*(?:(?:in|after|for|about|at least)\s+)*[\"']?"
    rf"((?:\d+(?:\.\d+)?\s*(?:{_UNIT}(?![a-z]))?\s*)+)",
    re.IGNORECASE,
)
_SPELLED: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milli|h|m|s)?[a-z]*", re.IGNORECASE)


def retry_after(headers: Mapping[str, str], words: str = "") -> float | None:
    """Seconds to wait by a reply's headers, or else by its words; None where neither says.

    Retry-After may be a date; it is compared with the reply's own Date header, so a wrong clock
    here does no harm. Without it, what is said of the limit that is used up counts.
    """
    stated = _stated_wait(headers)
    if stated is None:
        stated = _in_words(words)
    if stated is None or not math.isfinite(stated):
        return None
    return min(max(stated, 0.0), MAX_RETRY_AFTER_S)


def _stated_wait(headers: Mapping[str, str]) -> float | None:
    now = _moment(headers.get("date", ""))
    if (milliseconds := _number(headers.get("retry-after-ms", ""))) is not None:
        return milliseconds / 1000
    if value := headers.get("retry-after", "").strip():
        found = _number(value)
        found = _until(value, now) if found is None else found
        return math.nan if found is None else found
    waits = [
        _until(headers[reset], now)
        for reset, remaining in _RESETS
        if headers.get(reset) and _is_used_up(headers, remaining)
    ]
    return max((wait for wait in waits if wait is not None), default=None)


def _is_used_up(headers: Mapping[str, str], remaining: str) -> bool:
    """Return whether a limit is the one that was met; one header for all is taken for that."""
    said = headers.get(remaining)
    if said is None:
        return remaining in {"x-ratelimit-remaining", "ratelimit-remaining"}
    return _number(said) == 0


def _until(value: str, now: dt.datetime | None) -> float | None:
    """Seconds until what a header says: a number, a duration, a time since 1970, or a date."""
    number = _number(value)
    if number is not None and number >= _EPOCH:
        since = number / 1000 if number >= _EPOCH_MS else number
        return None if now is None else since - now.timestamp()
    if number is not None:
        return number
    if (duration := _duration(value)) is not None:
        return duration
    then = _moment(value)
    return None if then is None or now is None else (then - now).total_seconds()


def _moment(value: str) -> dt.datetime | None:
    for read in (parsedate_to_datetime, dt.datetime.fromisoformat):
        try:
            found = read(value.strip())
        except (ValueError, TypeError, OverflowError):
            continue
        return found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)
    return None


def _in_words(words: str) -> float | None:
    """Seconds by a sentence such as "try again in 6m0s", or by a field of the body."""
    match = _IN_WORDS.search(words)
    if match is None:
        return None
    parts = [(float(number), unit.lower()) for number, unit in _SPELLED.findall(match[1])]
    return math.fsum(
        number * _SECONDS["ms" if unit == "milli" else unit or "s"] for number, unit in parts
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _duration(text: str) -> float | None:
    """Seconds of a duration as Go writes it, such as 6m0s or 20ms."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        return None
    return math.fsum(float(number) * _SECONDS[unit] for number, unit in parts)
