"""A run as files: tables, frames, figures, and the HTML report."""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final, Literal, TypeVar

import msgspec
import polars as pl

from orchestrator import __version__, figures
from orchestrator.columns import ITEMS, is_name
from orchestrator.disk.files import write_text
from orchestrator.disk.paths import is_foreign
from orchestrator.errors import UsageError, nearest
from orchestrator.frames import PART_ROWS, names_of, slices_of
from orchestrator.interface.labelling import side_by_side
from orchestrator.interface.result import Result
from orchestrator.report.export import FOLDER, Format, card, frame_of, html, table_of, write_frame
from orchestrator.report.generic import generic_markdown
from orchestrator.report.html.figures import Material
from orchestrator.report.html.page import all_figures, render, sections
from orchestrator.report.html.shell import undrawn
from orchestrator.report.latex import latex
from orchestrator.report.words import UNTRUSTED
from orchestrator.runner.results.frames import rows_by_epoch
from orchestrator.runner.results.stored import use_words
from orchestrator.store import ServerUse
from orchestrator.tables import Table

REPORT = "report.html"
SIDE_BY_SIDE: Final = "side_by_side"
"""Name of the frame of all that was judged, with its texts, for people."""


def write_html(result: Result, to: Path | None = None) -> Path:
    """Write the report of a run to one HTML file, replaced as a whole; its path.

    Args:
        result: The run.
        to: Where; `report.html` in the run directory where left out.

    Raises:
        UsageError: If the file can't be written.
    """
    if to is None and is_foreign(result.path):
        raise UsageError(
            f"{result.path} belongs to another user; give a file to write to: --html F"
        )
    path = result.path / REPORT if to is None else to
    write_text(path, render(material(result)))
    return path


def write_charts(result: Result, folder: Path) -> list[Path]:
    """Write each chart of a run as SVG, PDF and PNG; the paths.

    Raises:
        UsageError: If charts can't be drawn here, or a file can't be written.
    """
    written: list[Path] = _module().write_charts(all_figures(material(result)), folder)
    return written


def charts(result: Result) -> dict[str, object]:
    """Each chart of a run's report as an Altair object, by the key that it has there.

    Raises:
        UsageError: If charts can't be drawn here.
    """
    drawing, altair = _module(), importlib.import_module("altair")
    specified = {one.key: drawing.specification(one) for one in all_figures(material(result))}
    return {
        key: altair.Chart.from_dict(found) for key, found in specified.items() if found is not None
    }


def _module() -> ModuleType:
    if needed := undrawn():
        raise UsageError(f"charts need: {needed}")
    return importlib.import_module("orchestrator.report.html.charts")


def material(result: Result) -> Material:
    """Collect the material of the report."""
    record, status = result.record, result.record.status
    return Material(
        name=str(result.settings.get("name", result.path.name)),
        where=str(result.path),
        at="" if status is None else status.at.strftime("%Y-%m-%d %H:%M UTC"),
        version=record.version,
        settings=result.settings,
        identities={
            model: {str(field): str(value) for field, value in identity.items()}
            for model, identity in record.identities.items()
        },
        servers={model: _words(used) for model, used in record.servers.items()},
        progress={} if status is None else status.values,
        frames=result.frames,
        rankings=result.rankings,
        tables=[_on_page(table) for table in result.tables],
        context=result.context,
        lost=record.failures,
        n_left=result.n_left,
        brief=result.brief,
        epochs=partial(rows_by_epoch, result.frames),
        probes=record.probes,
    )


def _on_page(table: Table) -> Table:
    """A table of the page, where its warning stands in front of what it rests on."""
    if not table.warning:
        return table
    basis = f"{table.warning} {table.basis}".rstrip()
    return msgspec.structs.replace(table, title=f"{table.title} {UNTRUSTED}", basis=basis)


def _words(used: Sequence[ServerUse]) -> list[str]:
    """The servers of a model in words, with how much each gave where there are several."""
    several = len({use.epoch for use in used}) > 1
    return [
        use_words(use, with_epoch=several) + (f" ({use.n:,} outcomes)" if use.n else "")
        for use in used
    ]


TextFormat = Literal["latex", "markdown", "html"]

_T = TypeVar("_T")
_SUFFIXES: Final[dict[TextFormat, str]] = {"latex": "tex", "markdown": "md", "html": "html"}


def report_tables(result: Result) -> dict[str, Table]:
    """Return every table of the HTML report by a name that stays the same between runs.

    A table of a run that is not complete, or that rests on a judge that can't be trusted, carries
    the warning.
    """
    # The page's own copies have their warnings in the title.
    of_page = replace(material(result), tables=result.tables)
    found: dict[str, Table] = {}
    for section in sections(of_page):
        drawn = [
            msgspec.structs.replace(table, basis=table.basis or figure.basis)
            for figure in section.figures
            for table in (figure.table, *figure.beside)
        ]
        for table in (*drawn, *section.tables, *section.folded):
            name = table.key
            if table.source and table.source not in name.replace("-", "_"):
                name = f"{table.source}.{name}"  # wins-pairwise-ranking-judge has it
            known = found.get(name)
            # A figure draws the first table of its method, which stands among all tables too.
            if table.columns and table.rows and (known is None or known.rows != table.rows):
                found[figures.free(name, found)] = table
    if not (warning := result.completeness.words()):
        return found
    return {
        name: msgspec.structs.replace(table, warning=f"{warning} {table.warning}".rstrip())
        for name, table in found.items()
    }


def texts(
    result: Result, form: TextFormat, tables: Mapping[str, Table], frames: Sequence[str]
) -> dict[str, str]:
    """Return tables as text, by name, frames as tables too; without any, all of the report.

    Raises:
        UsageError: If there is no such frame; names the nearest.
    """
    found = dict(tables) if tables or frames else report_tables(result)
    for name, read in readers(result, {}, frames).items() if frames else ():
        found[figures.free(name, found)] = table_of(name, pl.concat(read()))
    return {name: _text(table, name, form, result) for name, table in found.items()}


def tables(
    results: Sequence[Result], names: Sequence[str], arrange: Callable[[dict[str, Table]], Table]
) -> dict[str, Table]:
    """Return tables by name, that of all runs arranged as one; runs are named by their recipes.

    Raises:
        UsageError: If a run has no such table.
    """
    named = {str(one.settings.get("name", one.path.name)): report_tables(one) for one in results}
    if len(named) < len(results):
        named = {str(one.path): report_tables(one) for one in results}
    return {
        name: arrange({run: _one(known, name, "table") for run, known in named.items()})
        for name in names
    }


def is_judged(result: Result) -> bool:
    """Return True if a run has rows beside answers and items, which `SIDE_BY_SIDE` shows."""
    return bool(set(result.frames) - {"answers", ITEMS})


def readers(
    result: Result, tables: Mapping[str, Table], frames: Sequence[str]
) -> dict[str, Callable[[], Iterable[pl.DataFrame]]]:
    """Return what reads each frame, and each table as one, in parts; without any, all frames.

    Raises:
        UsageError: If there is no such frame; names the nearest.
    """
    # A run that ends writes no notes, and exports nothing.
    from orchestrator.runner.results.notes import FRAME, read_notes  # noqa: PLC0415

    found: dict[str, Callable[[], Iterable[pl.DataFrame]]] = {}
    is_chosen = bool(tables or frames)
    if FRAME in frames or not is_chosen:
        notes = read_notes(result.path)
        if is_chosen or not notes.is_empty():
            found[FRAME] = partial(iter, [notes])
    for name in frames if is_chosen else result.frames:
        if name in found:
            continue
        if name == SIDE_BY_SIDE:
            found[name] = lambda: [side_by_side(result)]
            continue
        _one(dict.fromkeys((*result.frames, SIDE_BY_SIDE)), name, "frame")
        columns = names_of(result.frames, name)
        found[name] = partial(slices_of, result.frames, name, columns, PART_ROWS)
    for name, table in tables.items():
        found[figures.free(name, found)] = partial(iter, [frame_of(table)])
    return found


def write_texts(
    result: Result,
    form: TextFormat,
    folder: Path,
    tables: Mapping[str, Table],
    frames: Sequence[str],
) -> Iterator[Path]:
    """Write each of `texts` to a file of its own, replaced as a whole; their paths.

    Raises:
        UsageError: If there is no such frame, or a file can't be written.
    """
    taken: set[str] = set()
    for name, text in texts(result, form, tables, frames).items():
        path = folder / f"{figures.free(figures.key(name), taken)}.{_SUFFIXES[form]}"
        taken.add(path.stem)
        write_text(path, text)
        yield path


def write_frames(
    result: Result, form: Format, folder: Path, tables: Mapping[str, Table], frames: Sequence[str]
) -> Iterator[tuple[Path, int]]:
    """Write each of `readers` to a file of its own; their paths and numbers of rows.

    Raises:
        UsageError: If there is no such frame, or a file can't be written.
    """
    taken: set[str] = set()
    for name, read in readers(result, tables, frames).items():
        stem = name if is_name(name) else figures.key(name)
        path = folder / f"{figures.free(stem, taken)}.{form}"
        taken.add(path.stem)
        yield path, write_frame(read(), path, form)


def write_dataset(
    result: Result, folder: Path, tables: Mapping[str, Table], frames: Sequence[str]
) -> Iterator[tuple[Path, int]]:
    """Write a dataset folder for Hugging Face; the paths and numbers of rows of its Parquet files.

    The frames are those of `readers`, the items last: a table of answers or judgments is the
    default configuration.

    Raises:
        UsageError: If there is no such frame, or a file can't be written.
    """
    rows: dict[str, int] = {}
    for path, n_rows in write_frames(result, "parquet", folder / FOLDER, tables, frames):
        rows[path.stem] = n_rows
        yield path, n_rows
    ordered = {name: rows[name] for name in sorted(rows, key=lambda one: one == ITEMS)}
    citation = result.cite()
    text = card(
        str(result.settings.get("name", result.path.name)),
        ordered,
        about=[citation.text],
        bibtex=citation.bibtex,
    )
    write_text(folder / "README.md", text)
    yield folder / "README.md", 0


def _text(table: Table, name: str, form: TextFormat, result: Result) -> str:
    match form:
        case "latex":
            recipe = result.settings.get("name", result.path.name)
            about = f"Table {name} of the run {recipe}, written by orchestrator {__version__}."
            return latex(table, name=name, about=about)
        case "markdown":
            return generic_markdown(table) + "\n"
        case "html":
            return html(table, name=figures.key(name))


def _one(known: Mapping[str, _T], name: str, what: str) -> _T:
    if name not in known:
        raise UsageError(f"no {what} {name!r} in this run{nearest(name, known)}")
    return known[name]
