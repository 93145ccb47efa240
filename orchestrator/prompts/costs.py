"""Costs of template operations, and the allowance of a rendering.

A size is in characters, with 16 for each value. What an operation will make is told before it is
made, from what it takes.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from jinja2 import TemplateRuntimeError
from jinja2.utils import Namespace

MOST_SIZE: Final = 1 << 24
"""Largest value that a template may make: characters, with 16 for each element of a list."""
MOST_WORK: Final = 1 << 26
"""Sum of the sizes that one rendering may take and make; a turn of a loop counts 64, a call 256."""


STEP: Final = 64
CALL: Final = 256
_ELEMENT: Final = 16
_MOST_BITS: Final = 1 << 12


class TemplateTooCostly(TemplateRuntimeError):  # noqa: N818 (it reads as a state in messages)
    """A rendering that exceeds its allowance of time or memory."""


# Work that one rendering has left, the only entry.
_allowance: ContextVar[list[int]] = ContextVar("allowance")


@contextmanager
def allowance() -> Iterator[None]:
    """Give the renderings within the block one allowance of work together."""
    token = _allowance.set([MOST_WORK])
    try:
        yield
    finally:
        _allowance.reset(token)


def charge(work: int) -> None:
    """Take work from the allowance of the rendering.

    Raises:
        TemplateTooCostly: If so much is not left.
    """
    current = _allowance.get(None)
    if current is None:
        return
    current[0] -= work
    if current[0] < 0:
        raise TemplateTooCostly("it takes too many steps, or handles too much text")


def bound(size: int) -> None:
    """Take a value's size from the allowance of the rendering.

    Raises:
        TemplateTooCostly: If the value is too large, or so much is not left.
    """
    if size > MOST_SIZE:
        raise TemplateTooCostly(f"it makes a value of {size:,} characters; {MOST_SIZE:,} may be")
    charge(size)


def size_of(value: object) -> int:
    """Return the size of a value with all that it holds, as often as it holds it."""
    total, to_visit = 0, [value]
    while to_visit:
        one = to_visit.pop()
        if isinstance(one, Namespace):
            one = object.__getattribute__(one, "_Namespace__attrs")
        if isinstance(one, str | bytes):
            total += len(one)
        elif isinstance(one, Mapping):
            to_visit += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            to_visit += one
        elif isinstance(one, int):
            # The digits that it is written with.
            total += one.bit_length() // 3
        total += _ELEMENT
        if total > MOST_SIZE:
            break
    return total


# -- what single operations make -------------------------------------------------------------------


def product(left: object, right: object) -> int:
    """Return the size of `left * right`."""
    if isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > _MOST_BITS:
            raise TemplateTooCostly("it multiplies to a number of more than a thousand digits")
        return _ELEMENT
    size, times = (size_of(right), left) if isinstance(left, int) else (size_of(left), right)
    return size * max(0, times) if isinstance(times, int) else size


def replaced(s: object, old: object = "", new: object = "", *_: object, **__: object) -> int:
    """Return the size of a text with one text replaced by another everywhere."""
    text, old, new = str(s), str(old), str(new)
    n_places = text.count(old) if old else len(text) + 1
    return len(text) + n_places * len(new)


def joined(parts: list[object], separator: object) -> int:
    """Return the size of parts with a separator between them."""
    return size_of(parts) + len(parts) * size_of(separator)


def indented(s: object, width: int | str = 4, *_: object, **__: object) -> int:
    """Return the size of a text whose lines are indented, by a number of blanks or a text."""
    width = len(width) if isinstance(width, str) else width
    return size_of(s) + max(0, width) * (1 + len(str(s).splitlines()))


def tojson(value: object) -> int:
    """Return the size of a value as JSON on one line; with an indent it could be far larger."""
    return size_of(value)
