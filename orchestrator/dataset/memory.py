"""Items that Python gives: a frame or a list of mappings, as JSON Lines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, cast, runtime_checkable

import msgspec
import polars as pl

from orchestrator.dataset import NO_ITEMS
from orchestrator.dataset.fields import plain
from orchestrator.errors import DatasetError

_GIVEN: Final = "Recipe(dataset)"


@runtime_checkable
class SupportsArrow(Protocol):
    """A frame that exports itself by the Arrow PyCapsule interface (polars, pandas, pyarrow)."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


def to_json_lines(given: object) -> bytes:
    """Return the rows of a frame, or of a list of mappings, as JSON Lines.

    Dates become ISO 8601 text, binary values hexadecimal text, nan null: the values that the same
    rows have as items if they are read from a file. The text depends on the rows alone.

    Args:
        given: A frame, or a sequence of mappings.

    Raises:
        DatasetError: If it is something else, has no rows, or a value that JSON can't hold.
    """
    lines = []
    for place, row in enumerate(_rows(given)):
        if not isinstance(row, Mapping):
            kind = type(row).__name__
            raise DatasetError(f"{_GIVEN}: row {place} is a {kind}, not a mapping of columns")
        try:
            columns = {str(name): plain(_plain(value)) for name, value in row.items()}
            lines.append(msgspec.json.encode(columns))
        except (RecursionError, UnicodeEncodeError, ValueError) as error:
            raise DatasetError(f"{_GIVEN}: row {place} cannot be written: {error}") from error
    if not lines:
        raise DatasetError(f"{_GIVEN} {NO_ITEMS}")
    return b"\n".join(lines) + b"\n"


def _rows(given: object) -> Iterable[object]:
    if isinstance(given, pl.DataFrame):
        return given.iter_rows(named=True)
    if isinstance(given, SupportsArrow):
        try:
            return pl.DataFrame(cast("Any", given)).iter_rows(named=True)
        except ImportError:
            # pandas exports nothing by Arrow where pyarrow is not installed.
            frame: Any = given
            objects = frame.astype(object)
            found: list[dict[str, Any]] = objects.where(frame.notna(), None).to_dict("records")
            return found
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return given
    hint = "; collect() it first" if isinstance(given, pl.LazyFrame) else ""
    raise DatasetError(
        f"{_GIVEN} must be a frame, a list of mappings, a path, or a mapping with a 'kind', "
        f"not a {type(given).__name__}{hint}"
    )


def _plain(value: object) -> object:
    """Return Python's own value for a scalar or an array of NumPy."""
    to_list: Callable[[], Any] | None = getattr(value, "tolist", None)
    if to_list is not None:
        return to_list()
    return value.to_list() if isinstance(value, pl.Series) else value
