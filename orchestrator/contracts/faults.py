"""What a method did wrong, in a sentence that names it, with the way to the line."""

import sys
from traceback import extract_tb
from typing import Final, Self

import msgspec

from orchestrator.errors import MethodError
from orchestrator.records import Unit

_MOST_CHARACTERS: Final = 500
_DEEPEST: Final = 30


class Fault(msgspec.Struct, frozen=True):
    """A fault of a method.

    Attributes:
        said: Method, error, place and unit, in a sentence.
        noted: The same without the error's text, which may quote a prompt.
        raised_at: The way to the error, outermost call first.
    """

    said: str
    noted: str
    raised_at: tuple[str, ...]

    @classmethod
    def of(cls, error: BaseException, kind: str, unit: Unit) -> Self:
        """Describe what a method raised, or what is wrong with what it returned."""
        frames = extract_tb(error.__traceback__)[-_DEEPEST:]
        raised_at = tuple(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
        ours = f"{sys.modules['orchestrator'].__path__[0]}/"
        own = [frame for frame in frames if not frame.filename.startswith(ours)]
        place = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
        text, where = _text(error), about(unit)
        if isinstance(error, MethodError):
            # Its text says all.
            said = text if where in text else f"method {kind!r}{place}: {text} ({where})"
            return cls(said, f"method {kind!r} broke its contract{place}", raised_at)
        noted = f"method {kind!r} raised {type(error).__name__}{place}"
        return cls(f"{noted}{f': {text}' if text else ''} ({where})", noted, raised_at)


def about(unit: Unit) -> str:
    """Return which unit it is, for messages."""
    judge = f", judge {unit.judge}" if unit.judge else ""
    return f"unit: item {unit.item.key!r}, models {', '.join(unit.models)}{judge}"


def _text(error: BaseException) -> str:
    """Return the text of an error, whatever its class makes of it."""
    try:
        text = str(error)
    except BaseException as unreadable:  # noqa: BLE001 (its own code)
        text = f"(its text raised {type(unreadable).__name__})"
    text = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
    return text.encode("utf-8", "replace").decode()
