"""Costs of template operations, and the allowance of a rendering.

A size is in characters, with 16 for each value. What an operation will make is told before it is
made, from what it takes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from string import Formatter
from typing import Any, Final

from jinja2 import TemplateRuntimeError
from jinja2.utils import Namespace

MOST_SIZE: Final = 1 << 24
"""Largest value that a template may make: characters, with 16 for each element of a list."""
MOST_WORK: Final = 1 << 26
"""Sum of the sizes that one rendering may take and make; a turn of a loop counts 64, a call 256."""


STEP: Final = 64
CALL: Final = 256
_WIDEST: Final = 10_000
_TOO_WIDE: Final = "it formats with a width of five digits, or one that is a value"
_ELEMENT: Final = 16
_MOST_BITS: Final = 1 << 12
# A width, or a precision, of five digits, or one that is a value itself.
_WIDE: Final = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(?:\*|\d{5,}|\d*\.(?:\*|\d{5,}))")
_WIDE_SPEC: Final = re.compile(r"\d{5,}|\{")
_MOST_PLACES: Final = 100


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


def _product(left: object, right: object) -> int:
    """Return the size of `left * right`."""
    if isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > _MOST_BITS:
            raise TemplateTooCostly("it multiplies to a number of more than a thousand digits")
        return _ELEMENT
    size, times = (size_of(right), left) if isinstance(left, int) else (size_of(left), right)
    return size * max(0, times) if isinstance(times, int) else size


def _power(base: Any, exponent: Any) -> int:  # noqa: ANN401 (whatever a template holds)
    """Return the size of `base ** exponent`."""
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and base.bit_length() * max(0, exponent) > _MOST_BITS:
        raise TemplateTooCostly("it raises to a number of more than a thousand digits")
    return _ELEMENT


def _by_percent(pattern: str, values: object) -> int:
    """Return the size of `pattern % values`."""
    if _WIDE.search(pattern):
        raise TemplateTooCostly(_TOO_WIDE)
    return len(pattern) + (size_of(values) + _WIDEST) * pattern.count("%")


def by_braces(pattern: str, values: object) -> int:
    """Return the size of `pattern.format(*values)`."""
    try:
        fields = [spec for _, name, spec, _ in Formatter().parse(pattern) if name is not None]
    except ValueError:
        # Malformed: the formatting itself says so.
        return len(pattern)
    if any(spec and _WIDE_SPEC.search(spec) for spec in fields):
        raise TemplateTooCostly(_TOO_WIDE)
    return len(pattern) + (size_of(values) + _WIDEST) * len(fields)


def _number(value: object) -> int:
    """The count or width that an argument stands for; a width may also be a text."""
    return max(0, value) if isinstance(value, int) else size_of(value)


def replaced(s: object, old: object = "", new: object = "", *_: object, **__: object) -> int:
    """Return the size of a text with one text replaced by another everywhere."""
    text, old, new = str(s), str(old), str(new)
    n_places = text.count(old) if old else len(text) + 1
    return len(text) + n_places * len(new)


def padded(value: object, width: object = 80, *_: object, **__: object) -> int:
    """Return the size of a text filled up to a width, or with its tabs expanded to one."""
    return size_of(value) + _number(width) * (1 + str(value).count("\t"))


def _wrapped(s: object, *given: object, wrapstring: object = None, **_: object) -> int:
    """Return the size of a text on lines of a width."""
    # At the least one character a line; by position the line's end is the fourth.
    end = given[2] if len(given) > 2 else wrapstring
    return size_of(s) * (1 + len(str(end or "\n")))


def _batched(value: object, linecount: object = 1, *_: object, slices: object = 1) -> int:
    """Return the size of a list in rows of `linecount`, or in `slices` rows, filled up."""
    return size_of(value) + _ELEMENT * max(_number(linecount), _number(slices))


def _rounded(_value: object, precision: object = 0, *_: object, **__: object) -> int:
    """Return the size of a rounded number."""
    if not isinstance(precision, int) or abs(precision) > _MOST_PLACES:
        raise TemplateTooCostly(f"it rounds to more than {_MOST_PLACES} places")
    return _ELEMENT


def _dumped(value: object, indent: object = None, *_: object, **__: object) -> int:
    """Return the size of a value as JSON, of which every entry may stand on an indented line."""
    width = 0 if indent is None else _number(indent)
    total, to_visit = size_of(value), [(value, 1)]
    while width and to_visit and total <= MOST_SIZE:
        one, depth = to_visit.pop()
        if not isinstance(one, Mapping | list | tuple):
            continue
        entries = list(one.values() if isinstance(one, Mapping) else one)
        total += _ELEMENT + (len(entries) + 1) * depth * width
        to_visit += [(entry, depth + 1) for entry in entries]
    return total


OF_OPERATORS: Final[Mapping[str, Callable[[Any, Any], int]]] = {
    "*": _product,
    "**": _power,
    "+": lambda left, right: size_of(left) + size_of(right),
    "%": lambda left, right: _by_percent(left, right) if isinstance(left, str) else _ELEMENT,
}
OF_FILTERS: Final[Mapping[str, Callable[..., int]]] = {
    "replace": replaced,
    "center": padded,
    "indent": lambda s, width=4, *_, **__: (
        size_of(s) + _number(width) * (1 + len(str(s).splitlines()))
    ),
    "wordwrap": _wrapped,
    "batch": _batched,
    "slice": _batched,
    "format": lambda value, *given, **named: _by_percent(str(value), (given, named)),
    "round": _rounded,
    # A comment at a time is cut out of a copy.
    "striptags": lambda value: size_of(value) * (1 + str(value).count("<!--")),
    "tojson": _dumped,
}


def joined(parts: list[object], separator: object) -> int:
    """Return the size of parts with a separator between them."""
    return size_of(parts) + len(parts) * size_of(separator)
