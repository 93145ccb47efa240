"""Rows of methods, held against what they declare, and what is said of a method that did wrong.

The check runs for every row, so all that it needs is computed once a method.
"""

import sys
from collections.abc import Callable
from itertools import chain
from math import isfinite
from traceback import extract_tb
from typing import Any, Final, Self

import msgspec
import numpy as np

from orchestrator.contracts.method import Method, MethodSettings, schema_of
from orchestrator.errors import MethodError, nearest
from orchestrator.records import Failure, Row, Unit

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
    try:
        text = str(error)
    except BaseException as unreadable:  # noqa: BLE001 (its own code)
        text = f"(its text raised {type(unreadable).__name__})"
    text = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
    return text.encode("utf-8", "replace").decode()


OK: Final = "ok"
FAILED: Final = "failed"
_ONLY_OF_FAILED_ROWS: Final = frozenset({"cause", "message"})
_INT64: Final = 1 << 63
# Of all rows of a unit, so that a store can hold them.
_MOST: Final = 8_000_000
# Characters of a value that a message repeats.
_SHOWN: Final = 60

_Kind = tuple[Callable[[Any], bool], str]


def _is_whole(value: object) -> bool:
    if type(value) is int:
        return -_INT64 <= value < _INT64
    match value:
        case bool() | np.bool_():
            return False
        case float() | np.floating():
            return float(value).is_integer() and abs(float(value)) < _INT64
        case int() | np.integer():
            return _is_whole(int(value))
        case _:
            return False


def _is_number(value: object) -> bool:
    if isinstance(value, float | np.floating):
        return isfinite(value)
    return _is_whole(value)


def is_text(value: object) -> bool:
    """Return True for text that a file can hold: half a surrogate pair is none."""
    if not isinstance(value, str):
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


_FLOATS: Final = frozenset({float, type(None)})
_TEXTS: Final = frozenset({str, type(None)})
# By type of column: the test of a value that is there, and words.
_SCALARS: Final[dict[str, _Kind]] = {
    "str": (is_text, "text"),
    "f64": (_is_number, "a finite number"),
    "i64": (_is_whole, "a whole number of at most 64 bits"),
    "bool": (lambda value: type(value) in (bool, np.bool_), "True or False"),
}


def _listed(inner: str) -> _Kind:
    holds, words = _SCALARS[inner]

    def is_list(value: object) -> bool:
        if not isinstance(value, list | tuple):
            return False
        # Types and sums are found in C: a list may have an entry for every token.
        types = {*map(type, value)}
        if inner == "f64" and types <= _FLOATS and isfinite(sum(filter(None, value))):
            return True
        if inner == "str" and types <= _TEXTS:
            return is_text("".join(filter(None, value)))
        return all(v is None or holds(v) for v in value)

    return is_list, f"a list, each entry {words}"


def _length(value: object) -> int:
    """Return about how much is stored of a value, in characters and numbers."""
    if isinstance(value, list | tuple):
        return len(value) + sum(len(one) for one in value if isinstance(one, str))
    return len(value) if isinstance(value, str) else 1


_KINDS: Final = {**_SCALARS, **{f"list[{inner}]": _listed(inner) for inner in _SCALARS}}


class RowContract:
    """The columns of a method's rows in their order, and the check of rows against them.

    Args:
        kind: Of the method, for messages.
        method: It gives the values of the columns that say what a row is about.

    Attributes:
        columns: Column to type, with those that the run adds: `method`, and `server_epoch`, the
            highest among the outcomes that a row rests on (0: the first server of each model).
    """

    def __init__(self, kind: str, method: Method[MethodSettings]) -> None:
        schema = schema_of(type(method))
        self.columns = {"method": "str", **schema, "server_epoch": "i64"}
        self._kind = kind
        self._identify = method.identify
        self._names = frozenset(schema)
        self._wanted = self._names - _ONLY_OF_FAILED_ROWS
        self._kinds = {name: _KINDS[type_] for name, type_ in schema.items()}

    def check(self, rows: object, unit: Unit) -> list[Row]:
        """Return the rows that `evaluate` returned for a unit, filled in, if they are good.

        A row may leave out what the method's `identify` gives, and "status", which is "ok" then.
        One whose status is "ok" gives every other column (None where a value is undefined) except
        "cause" and "message". One whose status is "failed" has a cause and may leave out others.

        Args:
            rows: A row, or a list of rows.
            unit: That they are about.

        Raises:
            MethodError: If they break the contract; its text names method, column and unit.
        """
        if isinstance(rows, dict):
            rows = [rows]
        if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
            raise self._error(unit, f"returned {type(rows).__name__}, not a row or a list of rows")
        known = self._known(unit)
        if sum(map(_length, chain.from_iterable(map(dict.values, rows)))) > _MOST:
            raise self._error(unit, f"returned rows of more than {_MOST:,} characters and numbers")
        found = []
        for given in rows:
            row = {**known, **given}
            if not self._wanted <= row.keys() <= self._names:
                self._refuse(row, unit)
                missing = self._wanted - row.keys()
                if row["status"] == OK and missing:
                    raise self._error(
                        unit,
                        f"a row has no {', '.join(map(repr, sorted(missing)))}; give every column "
                        f"of the method, None where a value is undefined",
                    )
            self._check_values(row, unit)
            if row["status"] != OK:
                if row["status"] != FAILED:
                    said = f"a row's status is {_short(row['status'])}"
                    raise self._error(unit, f"{said}; it must be {OK!r} or {FAILED!r}")
                if not row.get("cause"):
                    raise self._error(unit, "a failed row has no 'cause'")
            found.append(row)
        return found

    def failed(self, unit: Unit, failure: Failure) -> Row:
        """Return the row of a unit that failed.

        Raises:
            MethodError: If the method's `identify` breaks the contract.
        """
        row = self._known(unit)
        self._refuse(row, unit)
        self._check_values(row, unit)
        return row | failed_row(failure)

    def _known(self, unit: Unit) -> Row:
        """Return the values that every row of a unit has."""
        row = self._identify(unit)
        if not isinstance(row, dict):
            raise self._error(unit, f"identify() returned {type(row).__name__}, not a dict")
        return {**row, "status": OK}

    def _refuse(self, row: Row, unit: Unit) -> None:
        for name in row.keys() - self._names:
            hint = nearest(str(name), self._names, "")
            raise self._error(
                unit, f"a row has {_short(name)}, which is no column of the method{hint}"
            )

    def _check_values(self, row: Row, unit: Unit) -> None:
        kinds = self._kinds
        for name, value in row.items():
            holds, words = kinds[name]
            if value is not None and not holds(value):
                said = f"column {name!r} can't hold {_short(value)} ({type(value).__name__})"
                raise self._error(unit, f"{said}; it must be {words}, or None")

    def _error(self, unit: Unit, said: str) -> MethodError:
        return MethodError(f"method {self._kind!r}: {said} ({about(unit)})")


def failed_row(failure: Failure) -> Row:
    """Return what every failed row has."""
    return {"status": FAILED, "cause": failure.cause, "message": failure.message}


def _short(value: object) -> str:
    try:
        text = repr(value)
    except BaseException:  # noqa: BLE001 (its own code)
        # Such as a whole number of more digits than Python writes.
        return "a value that can't be shown"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
