"""Tables and frames as files that other programs read, and tables of several runs as one."""

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, product
from pathlib import Path
from statistics import mean
from typing import Final, Literal

import msgspec
import polars as pl
import yaml

from orchestrator import numbers
from orchestrator.disk import columnar, files
from orchestrator.errors import UsageError, nearest, on_disk_error
from orchestrator.frames import PART_ROWS, write_part
from orchestrator.report.html.shell import grid, template
from orchestrator.report.text import MAX_CHARACTERS, escaped
from orchestrator.tables import (
    GROUP,
    Cell,
    Column,
    Form,
    Measured,
    Table,
    cell_text,
    make_table,
    number_of,
)

# Frames written to files that other programs read.
#
# Parquet and JSON Lines hold the data exactly. CSV is for spreadsheets, which take some texts for
# formulas and terminals some for commands, so there both are made harmless: see `docs/export.md`.


Format = Literal["parquet", "csv", "jsonl"]

# What JSON need not escape, but a terminal obeys or shows as nothing. Escapes change no value.
_UNSEEN: Final = (
    "\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f"
)
_HIDDEN: Final = re.compile(f"[{_UNSEEN}]")
_CONTROL: Final = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f{_UNSEEN}]")
# A formula to a spreadsheet, in some locales of full width; "- item" and "-1.5" are none.
_FORMULA: Final = re.compile(
    r"\s*(?:[=@\uff1d\uff20]"
    r"|[+\-\uff0b\uff0d](?!\s)(?![\d.,]+(?:[eE][+-]?\d+)?%?\s*$))"
)
# What may be either.
_ODD: Final = f"[\x00-\x08\x0b\x0c\x0e-\x1f{_UNSEEN}]|^\\s*[=@\uff1d\uff20+\\-\uff0b\uff0d]"


def write_frame(parts: Iterable[pl.DataFrame], path: Path, form: Format) -> int:
    """Write a frame to one file, replaced as a whole when all of it is there; its rows.

    Its parts, of which there is at least one, are held one at a time.

    Raises:
        UsageError: If the file can't be written.
    """
    n_rows = 0
    with on_disk_error(f"{path} cannot be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            files.replacing(path) as file,
            files.temporary_folder(path.parent) as aside,
        ):
            written: list[Path] = []
            for at, part in enumerate(parts):
                n_rows += part.height
                if form == "parquet":
                    written.append(write_part(part, aside / f"{at}.parquet"))
                else:
                    file.write(_text(part, form, at))
            if written:
                # A group of rows is held until it is full, and the default is 122,880 rows.
                columnar.scan(written).sink_parquet(file, row_group_size=PART_ROWS)
    return n_rows


def frame_text(parts: Iterable[pl.DataFrame], form: Literal["csv", "jsonl"]) -> str:
    """Return a frame as the text that `write_frame` writes."""
    return b"".join(_text(part, form, at) for at, part in enumerate(parts)).decode()


def _text(part: pl.DataFrame, form: Literal["csv", "jsonl"], at: int) -> bytes:
    """Return a part of a frame in UTF-8, the first of which has the header."""
    if form == "csv":
        # As bytes from the first: lists of a million rows are gigabytes.
        harmless(part).write_csv(written := io.BytesIO(), include_header=not at)
        return written.getvalue()
    # Hidden characters stand in JSON inside of strings only.
    return _HIDDEN.sub(
        lambda found: json.dumps(found[0])[1:-1].replace("\x7f", "\\u007f"), part.write_ndjson()
    ).encode()


def harmless(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame as CSV can hold it: lists as JSON, no formulas or control characters."""
    changed: list[pl.Series] = []
    for name, kind in frame.schema.items():
        if isinstance(kind, pl.List) and (kind.inner.is_numeric() or kind.inner == pl.Boolean):
            # As `json.dumps` writes them, but for exponents: 1e-7, no 1e-07. A null stays.
            parts = pl.element().cast(pl.String).fill_null("null")
            written = pl.col(name).list.eval(parts).list.join(", ")
            if kind.inner.is_float() and frame[name].explode().is_infinite().any():
                written = written.str.replace_all("inf", "Infinity", literal=True)
            changed.append(frame.select(pl.format("[{}]", written).alias(name)).to_series())
        elif isinstance(kind, pl.List):
            # Names of criteria, mostly: the same in each row.
            dumped = cache(json.dumps) if kind.inner == pl.String else json.dumps
            values = frame[name].to_list()
            lists = [None if value is None else dumped(tuple(value)) for value in values]
            changed.append(pl.Series(name, lists))
        elif kind == pl.String and (odd := frame[name].str.contains(_ODD)).any():
            cells = zip(frame[name], odd, strict=True)
            texts = [_cell(value) if is_odd else value for value, is_odd in cells]
            changed.append(pl.Series(name, texts, pl.String))
    return frame.with_columns(changed).rename({name: str(_cell(name)) for name in frame.columns})


def _cell(text: str | None) -> str | None:
    if text is None:
        return None
    shown = _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)
    return f"'{shown}" if _FORMULA.match(shown) else shown


# The README.md of a folder that `datasets.load_dataset` of Hugging Face reads.
#
# Each Parquet file under `data/` is a configuration of its own, because frames differ in columns.
# https://huggingface.co/docs/hub/datasets-manual-configuration


FOLDER = "data"


def card(name: str, rows: Mapping[str, int], *, about: Sequence[str] = (), bibtex: str = "") -> str:
    """Return the card as Markdown with a YAML head.

    Args:
        name: Of the run.
        rows: Rows of each Parquet file by its name without a suffix, the default one first.
        about: Sentences on the run; may come from outside.
        bibtex: Entries to cite.
    """
    configs = [
        {
            "config_name": one,
            "data_files": [{"split": "train", "path": f"{FOLDER}/{one}.parquet"}],
            **({"default": True} if place == 0 else {}),
        }
        for place, one in enumerate(rows)
    ]
    head = yaml.safe_dump(
        {"pretty_name": name, "configs": configs}, sort_keys=False, allow_unicode=True
    )
    lines = [
        "---", head.rstrip(), "---", "",
        f"# {escaped(name)}", "",
        "Results of an evaluation of language models with selfeval-orchestrator. Texts of models "
        "are untrusted.", "",
        *(f"{escaped(line)}\n" for line in about),
        "| configuration | rows |", "| :--- | ---: |",
        *(f"| {escaped(one)} | {n:,} |" for one, n in rows.items()), "",
        "Hugging Face calls the one split of each `train`; nothing was trained on it.", "",
    ]  # fmt: skip
    if bibtex:
        lines += ["```bibtex", bibtex.rstrip().replace("```", "'''"), "```", ""]
    return "\n".join(lines)


# Tables of a run, or of several as one, in other forms.

_FIELDS: Final[dict[str, pl.DataType]] = {
    "low": pl.Float64(),
    "high": pl.Float64(),
    "n": pl.Int64(),
    "n_clusters": pl.Int64(),
    "why": pl.String(),
}


def beside(
    tables: Mapping[str, Table],
    wanted: Sequence[str] = (),
    where: Mapping[str, str] = {},
    across: str = "",
    *,
    average: bool = False,
) -> Table:
    """Return tables of several runs as one, with scores named as papers print them.

    Args:
        tables: By run, which is the text of the column `run` where there are several.
        wanted: Headings of the columns that are kept, in this order; all for none.
        where: Rows that are kept, by heading and text.
        across: Heading whose every text gets columns of its own, without intervals; "" for none.
        average: Whether the mean over the first of each of these columns stands behind them.

    Raises:
        UsageError: If there is no such column; names the nearest.
    """
    # Imported here: no run needs it.
    from orchestrator.judgment.glass_box import PRINTED  # noqa: PLC0415

    first, *_ = every = [*tables.values()]
    heads = {"run": Column("run")} | {one.name: one for table in every for one in table.columns}
    wanted = wanted or [*heads][len(tables) == 1 :]
    for name in (*wanted, *where, across or "run"):
        if name not in heads:
            raise UsageError(f"no column {name!r} in this table{nearest(name, heads)}")
    rows: list[dict[str, Cell]] = []
    for run, table in tables.items():
        for cells in table.rows:
            known = {one.name: cell for one, cell in zip(table.columns, cells, strict=True)}
            row: dict[str, Cell] = dict.fromkeys(heads) | known | {"run": run}
            if all(cell_text(heads[name], row[name]) == text for name, text in where.items()):
                rows.append({name: PRINTED.get(str(cell), cell) for name, cell in row.items()})
    columns = [heads[name] for name in wanted if name != across]
    lines: list[list[Cell]] = [[row[column.name] for column in columns] for row in rows]
    if across:
        columns, lines = _groups(columns, rows, heads[across], average=average)
    basis = first.basis if len({table.basis for table in every}) == 1 else ""
    warnings = dict.fromkeys(table.warning for table in every if table.warning)
    made = make_table(first.key, first.title, columns, lines, basis=basis)
    return msgspec.structs.replace(made, notes=first.notes, warning=" ".join(warnings))


def _groups(
    columns: Sequence[Column], rows: Sequence[dict[str, Cell]], across: Column, *, average: bool
) -> tuple[list[Column], list[list[Cell]]]:
    """The columns and lines of a table with a group of columns for each text of one."""
    wide = [column for column in columns if column.is_text]
    values = [column for column in columns if not column.is_text]
    found: dict[tuple[Cell, ...], dict[str, dict[str, Cell]]] = {}
    for row in rows:
        parts = found.setdefault(tuple(row[column.name] for column in wide), {})
        if (group := cell_text(across, row[across.name])) in parts:
            raise UsageError(f"several rows for {across.name} {group!r}: choose some with --where")
        parts[group] = row
    lines = [list(names) for names in found]
    for group, column in product(dict.fromkeys(chain(*found.values())), values):
        name = f"{group}{GROUP}{column.name}" if len(values) > 1 else group
        wide.append(msgspec.structs.replace(column, name=name))
        for line, parts in zip(lines, found.values(), strict=True):
            line.append(number_of(parts.get(group, {}).get(column.name)))
    if average and values:
        wide.append(msgspec.structs.replace(values[0], name="Average"))
        for names, line in zip(found, lines, strict=True):
            of = [number_of(cell) for cell in line[len(names) :: len(values)]]
            known = [value for value in of if value is not None]
            line.append(mean(known) if len(known) == len(of) else None)
    return wide, lines


def frame_of(table: Table) -> pl.DataFrame:
    """Return a table as a frame.

    A column with intervals becomes several: `rating`, `rating.low`, `rating.high`, and where any
    cell has them `rating.n`, `rating.n_clusters` and `rating.why`. Ends that are open are infinite;
    what is undefined is null. Shares are in [0, 1].
    """
    found: dict[str, pl.Series] = {}
    for place, column in enumerate(table.columns):
        for name, values in _split(column, [row[place] for row in table.rows]):
            free = name
            while free in found:
                free += "_"
            found[free] = values.alias(free)
    return pl.DataFrame(list(found.values()))


def table_of(name: str, frame: pl.DataFrame) -> Table:
    """Return a frame as a table, to typeset it.

    Args:
        name: Of the frame.
        frame: Its rows; lists are written out.
    """
    columns, cells = [], []
    for series in frame.iter_columns():
        form: Form = "count" if series.dtype.is_integer() else "number"
        is_number = series.dtype.is_numeric()
        columns.append(Column(series.name, form if is_number else "text", 4))
        cells.append([_plain(value, is_number=is_number) for value in series])
    rows = tuple(zip(*cells, strict=True)) if cells else ()
    return Table(name, name, tuple(columns), rows, basis=numbers.counted(frame.height, "row"))


def _plain(value: object, *, is_number: bool) -> Cell:
    if value is None:
        return None if is_number else ""
    if is_number and isinstance(value, int | float):
        return value
    return str(value.to_list()) if isinstance(value, pl.Series) else str(value)


def _split(column: Column, cells: Sequence[Cell]) -> Iterator[tuple[str, pl.Series]]:
    """Yield the columns of a frame that hold one column of a table."""
    words = [cell for cell in cells if isinstance(cell, str) and cell != numbers.UNDEFINED]
    if column.is_text or words:
        texts = [cell.value if isinstance(cell, Measured) else cell for cell in cells]
        known = [None if text is None else str(text) for text in texts]
        yield column.name, pl.Series(known, dtype=pl.String)
        return
    values = [number_of(cell) for cell in cells]
    if column.form == "count" and all(value is None or value.is_integer() for value in values):
        counts = [None if value is None else int(value) for value in values]
        yield column.name, pl.Series(counts, dtype=pl.Int64)
    else:
        yield column.name, pl.Series(values, dtype=pl.Float64)
    measured = [cell if isinstance(cell, Measured) else Measured(None) for cell in cells]
    for field, dtype in _FIELDS.items():
        found = [getattr(cell, field) for cell in measured]
        known = [None if value == "" else value for value in found]
        if any(value is not None for value in known):
            yield f"{column.name}.{field}", pl.Series(known, dtype=dtype)


def html(table: Table, *, name: str) -> str:
    """Return a table as one HTML file with caption and notes.

    Args:
        table: The table.
        name: Of the table in its run; the `id` of the table.
    """
    made = template("table.html.j2").render(
        table=table, name=name, grid=grid(table, name, MAX_CHARACTERS)
    )
    return f"{made.rstrip()}\n"
