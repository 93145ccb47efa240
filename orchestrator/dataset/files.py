"""Datasets that are files: finding them, and rows of any by its suffix, or of several in turn."""

import bz2
import gzip
import lzma
import tempfile
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, Final

import zstandard

from orchestrator.dataset import readers
from orchestrator.dataset.rows import Rows, other_form
from orchestrator.dataset.shapes import Row
from orchestrator.disk.paths import OTHER_FORMS, PACKED, answers, expanded, suffix_of
from orchestrator.errors import DatasetError, StoreError, need

PARQUET_SUFFIXES: Final = (".parquet", ".pq")
EXCEL_SUFFIXES: Final = (".xlsx", ".xlsm", ".ods")


# A text that repeats itself packs to a hundredth; what packs better than that is a bomb.
_MOST_UNPACKED: Final = 64 << 20
_MOST_RATIO: Final = 200
_OPENERS: Final[Mapping[str, Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
# Of Zstandard, bytes read at a time: they may be a thousand blocks of 128 KB.
_STEP: Final = 4096
_DAMAGED: Final = (OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, zstandard.ZstdError)


def open_rows(
    path: Path,
    shown: str,
    suffix: str = "",
    *,
    rows: str | None = None,
    separator: str | None = None,
    sheet: str | None = None,
) -> Rows:
    """The rows of a JSON Lines, JSON, CSV, TSV, Parquet or Excel file, perhaps compressed.

    Args:
        path: Of the file.
        shown: For messages.
        suffix: Of its kind, where that is not told by its name.
        rows: Path of the list of rows in a JSON file.
        separator: Of a CSV file.
        sheet: Of an Excel file; the first where it is not named.

    Raises:
        DatasetError: If the suffix is none of these, or the file can't be read.
        UsageError: If the extra `[excel]` is needed.
    """
    suffix = suffix or suffix_of(path.name)
    # What is packed twice may unpack to itself, for ever.
    if path.suffix.lower() in PACKED and suffix not in PACKED:
        with tempfile.TemporaryDirectory() as folder:
            # Rows keep the file open that they are read from.
            unpacked = Path(folder, "rows").with_suffix(suffix)
            opener = _OPENERS.get(path.suffix.lower())
            try:
                with (opener or open)(path, "rb") as packed, unpacked.open("wb") as file:
                    chunks = (_chunks if opener else _frames)(packed)
                    file.writelines(_pieces(chunks, path, shown))
            except (*_DAMAGED, EOFError) as error:
                raise DatasetError(f"{shown}: cannot be unpacked: {_why(error)}") from error
            return open_rows(unpacked, shown, suffix, rows=rows, separator=separator, sheet=sheet)
    if rows is not None and suffix not in readers.LIST_SUFFIXES:
        raise DatasetError(f"{shown}: 'rows' names a list in a JSON file; this is {suffix}")
    if suffix in readers.LINES_SUFFIXES:
        return readers.json_lines(path, shown)
    if suffix in readers.LIST_SUFFIXES:
        return readers.json_rows(path, shown, rows)
    if suffix in readers.SUFFIXES:
        return readers.csv_rows(path, shown, separator)
    if suffix in PARQUET_SUFFIXES:
        return parquet_rows(path, shown)
    if suffix in EXCEL_SUFFIXES:
        return _opened(path, shown, sheet)
    of_text = readers.LINES_SUFFIXES + readers.LIST_SUFFIXES + readers.SUFFIXES
    known = ", ".join(of_text + PARQUET_SUFFIXES + EXCEL_SUFFIXES)
    said = OTHER_FORMS.get(suffix, "save it as another")
    raise DatasetError(f"{shown}: unknown file type; {said} ({known})")


def _unreadable(
    source: object, shown: str, own: bytes, form: str, error: Exception
) -> DatasetError:
    """A file that is not what its name says, or damaged; `own` begins each file of the form."""
    for path in source if isinstance(source, list) else [source]:
        if isinstance(path, Path) and path.is_file():
            with path.open("rb") as file:
                begin = file.read(64)
            if not begin.startswith(own) and (said := other_form(begin)):
                return DatasetError(f"{shown if path is source else path}: {said}")
    return DatasetError(f"{shown}: not readable as {form}: {_why(error)}")


def _why(error: Exception) -> str:
    """Say what is wrong with a file that a library can't read; some speak in codes of their own."""
    said = "it is cut off" if isinstance(error, EOFError) else str(error).partition("\n")[0]
    if isinstance(error, _DAMAGED) or "{" in said:
        said = getattr(error, "strerror", None) or "it is damaged, or of another form"
    return f"{said}; save or download it again"


def _opened(path: Path, shown: str, sheet: str | None) -> Rows:
    """The rows of a sheet, by calamine; dates and times are texts."""
    need("reading an Excel file", "excel", ("fastexcel",))
    # Imported here, as for Parquet.
    import fastexcel  # noqa: PLC0415
    import polars as pl  # noqa: PLC0415
    from polars import selectors  # noqa: PLC0415

    try:
        with zipfile.ZipFile(path) as packed:
            n = 0
            for one in packed.infolist():
                # What is said there may be a lie.
                one.file_size = 1 << 62
                with packed.open(one) as part:
                    n += sum(map(len, _pieces(_chunks(part), path, shown, n)))
        reader = fastexcel.read_excel(str(path))
        names = reader.sheet_names
        if not names or sheet not in (None, *names):
            there = ", ".join(names) or "none"
            raise DatasetError(f"{shown}: no sheet {sheet or ''!r}; there are: {there}")
        chosen = sheet or names[0]
        frame = reader.load_sheet(chosen, schema_sample_rows=None).to_polars()
        # As the sheet counts them, below its header.
        frame = frame.with_row_index("", 2)
        frame = frame.filter(~pl.all_horizontal(pl.exclude("").is_null()))
        numbers = frame.drop_in_place("").to_list()
        dates = selectors.temporal().cast(pl.String).str.replace(r"( 00:00:00)?\.0+$", "")
        frame = frame.with_columns(dates, selectors.object().cast(pl.String))
    except (*_DAMAGED, EOFError, ValueError, RuntimeError, fastexcel.FastExcelError,
            pl.exceptions.PolarsError) as error:  # fmt: skip
        raise _unreadable(path, shown, b"PK", "an Excel file", error) from error

    def row(index: int) -> Row:
        # A sheet has no other numbers than floats, and shows 4 for 4.0.
        return {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in frame.row(index, named=True).items()
        }

    return Rows(
        shown,
        tuple(frame.columns),
        len(frame),
        row,
        lambda index: f"{shown}: row {numbers[index]}",
        f"rows from the sheet {chosen!r}, of {len(names)}" if len(names) > 1 else "",
    )


def _chunks(packed: IO[bytes]) -> Iterator[bytes]:
    return iter(partial(packed.read, 1 << 20), b"")


def _frames(packed: IO[bytes]) -> Iterator[bytes]:
    """Yield what Zstandard packed, frame by frame: its own reader does not tell a file cut off."""
    frame, read = None, b""
    while read := read or packed.read(_STEP):
        frame = frame or zstandard.ZstdDecompressor().decompressobj()
        yield frame.decompress(read)
        read, frame = frame.unused_data, None if frame.eof else frame
    if frame is not None:
        raise EOFError


def _pieces(chunks: Iterator[bytes], path: Path, shown: str, n: int = 0) -> Iterator[bytes]:
    """Yield what is packed in a file; with `n` bytes before it, it must not be far too much."""
    most = max(_MOST_UNPACKED, _MOST_RATIO * path.stat().st_size)
    for chunk in chunks:
        n += len(chunk)
        if n > most:
            raise DatasetError(
                f"{shown}: unpacks to more than {most >> 20} MB, {_MOST_RATIO} times its size; if "
                "this is right, unpack it first"
            )
        yield chunk


def joined_rows(paths: Sequence[Path], shown: str) -> Rows:
    """The rows of several files of one kind, one after the other.

    Raises:
        DatasetError: If a file can't be read.
    """
    if len(paths) == 1:
        return open_rows(paths[0], shown)
    if all(path.suffix.lower() in PARQUET_SUFFIXES for path in paths):
        return parquet_rows(list(paths), shown)
    return joined([open_rows(path, f"{shown} {path.name}") for path in paths], shown)


def joined(parts: Sequence[Rows], shown: str) -> Rows:
    """The rows of several files, one after the other."""
    ends = list(accumulate(map(len, parts)))

    def place(index: int) -> tuple[Rows, int]:
        which = bisect_right(ends, index)
        return parts[which], index - (ends[which - 1] if which else 0)

    def row(index: int) -> Row:
        part, own = place(index)
        return part.row(own)

    def where(index: int) -> str:
        part, own = place(index)
        return part.where(own)

    columns = dict.fromkeys(name for part in parts for name in part.columns)
    return Rows(shown, tuple(columns), ends[-1] if ends else 0, row, where)


def parquet_rows(source: Path | list[Path], shown: str) -> Rows:
    """The rows of a Parquet file, or of several with the same columns.

    Raises:
        DatasetError: If a file can't be read.
    """
    # Imported here: most recipes read no such file, and polars takes a quarter of a second.
    from orchestrator.disk import columnar  # noqa: PLC0415

    try:
        frame = columnar.read(source)
    except columnar.UNREADABLE as error:
        raise _unreadable(source, shown, b"PAR1", "Parquet", error) from error
    except StoreError as error:
        raise DatasetError(f"{error}, or use JSON Lines") from error
    return Rows(
        shown,
        tuple(frame.columns),
        len(frame),
        lambda index: frame.row(index, named=True),
        lambda index: f"{shown}: row {index + 1}",
    )


def located(path: str, base: Path) -> tuple[Path, str]:
    """The file, looked for from `base`, and its name for messages.

    Raises:
        DatasetError: If it is not there.
    """
    given = expanded(path)
    file = base / given
    if not answers(file, Path.is_file):
        what = "is a folder" if answers(file, Path.is_dir) else "there is no such file"
        raise DatasetError(f"{path}: {what}")
    try:
        return file, str(file.resolve().relative_to(Path.cwd()))
    except ValueError:
        return file, str(given)
