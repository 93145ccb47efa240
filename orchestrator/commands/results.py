"""Commands that read runs: report, export, cite, compare, gate, labels and view."""

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal, get_args
from urllib.parse import parse_qsl, quote, urlencode

import msgspec
from rich.console import RenderableType

from orchestrator import numbers
from orchestrator.commands.messages import Said, run_path, show, write_files
from orchestrator.disk.files import write_text
from orchestrator.errors import EXIT_COMPLETE, EXIT_GATE_OPEN, UsageError, need, on_disk_error
from orchestrator.frames import names_of
from orchestrator.interface import api, exporting
from orchestrator.interface.exporting import TextFormat
from orchestrator.interface.labelling import READ, sheet_of
from orchestrator.report.export import Format, beside, frame_text
from orchestrator.report.gate import gate_text
from orchestrator.report.generic import generic_table
from orchestrator.report.live import progress
from orchestrator.report.page import FAINT, HEADING, Page, paged, print_to
from orchestrator.report.text import confirm, safe_line, say, write_to
from orchestrator.tables import Table


def report(options: argparse.Namespace) -> int:
    """Show what a run found."""
    result = api.load(run_path(options.run), allow_code=options.allow_code)
    said = Said()
    if not write_files(result, options, said):
        show(result, options.format, whole=options.full)
    return EXIT_COMPLETE


_Form = TextFormat | Format | Literal["hf"]
_TEXTS: Final = get_args(TextFormat)


def export(options: argparse.Namespace) -> int:
    """Write tables, frames or figures of a run."""
    result = api.load(run_path(options.run), allow_code=options.allow_code)
    if options.list:
        _list(result, as_json=options.json)
        return EXIT_COMPLETE
    said = Said()
    if warning := result.completeness.words():
        said.complain(warning)
    if options.table or options.format in _TEXTS:
        for line in result.warnings:
            said.complain(line)
    arrange: Callable[[dict[str, Table]], Table] = _alone
    if options.beside or options.column or options.where or options.across:
        if options.frame or not options.table:
            raise UsageError("several runs, --column, --where and --across need a --table")
        where = dict(one.partition("=")[::2] for one in options.where)
        arrange = partial(beside, wanted=options.column, where=where, across=options.across or "",
                          average=options.average)  # fmt: skip
    runs = [result, *(api.load(run_path(run)) for run in options.beside)]
    tables = exporting.tables(runs, options.table, arrange) if options.table else {}
    if options.figures is not None:
        for path in exporting.write_charts(result, Path(options.figures)):
            wrote(path)
        if options.to is None and not (tables or options.frame):
            return EXIT_COMPLETE
    if options.to is None:
        _print(result, options.format, tables, options.frame)
    else:
        _write(result, options.format, Path(options.to), tables, options.frame)
    return EXIT_COMPLETE


def _alone(tables: Mapping[str, Table]) -> Table:
    """Return the table of the only run."""
    (table,) = tables.values()
    return table


def wrote(path: Path, n_rows: int | None = None) -> None:
    """Say which file was written."""
    rows = "" if n_rows is None else f": {numbers.count(n_rows)} rows"
    confirm(f"{path}{rows}")


def _print(
    result: api.Result, form: _Form, tables: Mapping[str, Table], frames: Sequence[str]
) -> None:
    if not (tables or frames):
        raise UsageError(
            "give a folder to write to: --to DIR; or print a table with: --table NAME --format "
            "latex|markdown|html|csv|jsonl (--list lists the tables)"
        )
    match form:
        case "latex" | "markdown" | "html":
            write_to(sys.stdout, "\n".join(exporting.texts(result, form, tables, frames).values()))
        case "csv" | "jsonl":
            readers = exporting.readers(result, tables, frames)
            if len(readers) > 1:
                raise UsageError(f"only one table or frame fits on stdout as {form}; give --to DIR")
            for read in readers.values():
                write_to(sys.stdout, frame_text(read(), form))
        case "parquet" | "hf":
            raise UsageError(f"{form} does not fit on stdout; give a folder to write to: --to DIR")


def _write(
    result: api.Result,
    form: _Form,
    folder: Path,
    tables: Mapping[str, Table],
    frames: Sequence[str],
) -> None:
    match form:
        case "latex" | "markdown" | "html":
            for path in exporting.write_texts(result, form, folder, tables, frames):
                wrote(path)
        case "hf":
            for path, n_rows in exporting.write_dataset(result, folder, tables, frames):
                wrote(path, n_rows or None)
        case "parquet" | "csv" | "jsonl":
            rows: dict[str, int] = {}
            n_files = len(tables) + len(frames) or len(result.frames)
            with progress("writing frames", n_files) as advance:
                for path, n_rows in exporting.write_frames(result, form, folder, tables, frames):
                    advance(1)
                    rows[path.name] = n_rows
                    wrote(path, n_rows)
            about = {"run": str(result.path), **result.completeness.as_json(), "rows": rows}
            write_text(folder / "export.json", json.dumps(about, indent=2) + "\n")
            if form == "csv" and exporting.is_judged(result) and not (tables or frames):
                name = exporting.SIDE_BY_SIDE
                Said().note(f"to read judgments beside their texts: --frame {name}")


def _list(result: api.Result, *, as_json: bool) -> None:
    from orchestrator.runner.results.notes import FRAME, read_notes  # noqa: PLC0415 (a run needs none)

    tables = exporting.report_tables(result)
    frames = {name: names_of(result.frames, name) for name in result.frames}
    if exporting.is_judged(result):
        frames[exporting.SIDE_BY_SIDE] = list(READ)
    if not (notes := read_notes(result.path)).is_empty():
        frames[FRAME] = notes.columns
    if as_json:
        listed = {
            "tables": [
                {"name": name, "title": table.title, "rows": len(table.rows)}
                for name, table in tables.items()
            ],
            "frames": [{"name": name, "columns": names} for name, names in frames.items()],
        }
        write_to(sys.stdout, json.dumps(listed, indent=2) + "\n")
        return
    lines = ["tables of the report (--table NAME):"]
    width = max(map(len, (*tables, *frames)), default=0)
    for name, table in tables.items():
        shape = numbers.counted(len(table.rows), "row")
        lines.append(f"  {safe_line(name):{width}}  {safe_line(table.title)} ({shape})")
    lines.append("frames (--frame NAME):")
    for name, names in frames.items():
        lines.append(f"  {safe_line(name):{width}}  {numbers.counted(len(names), 'column')}")
    write_to(sys.stdout, "\n".join(lines) + "\n")


def cite(options: argparse.Namespace) -> int:
    """Print the citations of a run."""
    result = api.load(run_path(options.run), allow_code=options.allow_code)
    if warning := result.completeness.words():
        Said().complain(warning)
    found = result.cite()
    match options.format:
        case "bibtex":
            write_to(sys.stdout, found.bibtex)
        case "json":
            write_to(sys.stdout, found.to_json())
        case _:
            write_to(sys.stdout, f"{found.text}\n\n{found.bibtex}")
    return EXIT_COMPLETE


def compare(options: argparse.Namespace) -> int:
    """Compare runs, or parts of runs, on common items."""
    found = api.compare(
        *map(run_path, options.compared),
        by=options.by,
        match=options.match,
        scores=options.score,
        baseline=options.baseline,
        confidence_level=options.confidence,
        allow_code=options.allow_code,
    )
    if options.html is not None:
        Said().wrote(found.to_html(options.html))
    elif options.format == "json":
        write_to(sys.stdout, found.to_json())
    elif options.format == "markdown":
        write_to(sys.stdout, found.to_markdown())
    else:
        print_to(sys.stdout, _summary(found))
        for table in found.tables:
            print_to(sys.stdout, generic_table(table))
    return EXIT_COMPLETE


@paged
def _summary(page: Page, found: api.Comparison) -> Iterator[RenderableType]:
    """The result in a few sentences, and what limits it."""
    for line in found.headline:
        yield page.prose(line, HEADING)
    for note in found.notes:
        yield page.prose(note, FAINT, bullet=True)
    yield page.words("")


def gate(options: argparse.Namespace) -> int:
    """Hold a run against requirements; the exit code says the verdict."""
    found = api.gate(
        run_path(options.run),
        options.require,
        against=None if options.against is None else run_path(options.against),
        match=options.match,
        confidence_level=options.confidence,
        allow_code=options.allow_code,
    )
    said = Said()
    if options.junit is not None:
        junit = Path(options.junit)
        write_text(junit, found.to_junit(pass_unknown=options.pass_unknown))
        said.wrote(junit)
    if options.summary is not None:
        path = Path(options.summary)
        # Other steps of the job write to it too.
        with on_disk_error(f"{path} cannot be written"), path.open("a", encoding="utf-8") as file:
            file.write(found.to_markdown())
    if options.format == "json":
        write_to(sys.stdout, found.to_json())
    elif options.format == "markdown":
        write_to(sys.stdout, found.to_markdown())
    else:
        print_to(sys.stdout, gate_text(found))
    code = found.exit_code
    return EXIT_COMPLETE if code == EXIT_GATE_OPEN and options.pass_unknown else code


def labels(options: argparse.Namespace) -> int:
    """Write a sheet and its key file, and say how to fill it in."""
    result = api.load(run_path(options.run), allow_code=options.allow_code)
    if warning := result.completeness.words():
        Said().complain(warning)
    n = options.n or (100 if options.below is None else None)
    sheet = sheet_of(
        msgspec.structs.replace(result.context, name="labels"),
        method=options.method,
        n_labels=n,
        seed=options.seed,
        below=options.below,
    )
    path = Path(options.to)
    key = sheet.write(path, force=options.force)
    what, form = ("pair", "1, 2 or tie") if sheet.is_pairs else ("answer", "a number")
    analysis = {"kind": "human_labels", "labels": str(path), "method": sheet.method}
    lines = [
        f"{path}: {numbers.counted(len(sheet.rows), what)} of {numbers.count(sheet.n_judged)}; "
        f"write {form} into the column 'label', from the top, and stop where you like",
        f"{key}: the models of each row; keep it beside the sheet, and do not show it to labellers",
    ]
    if options.below is None:
        lines += [
            "then add this to the recipe, and run it again:",
            f"  analyses: [{json.dumps(analysis, ensure_ascii=False)}]",
        ]
    for line in lines:
        say(line)
    return EXIT_COMPLETE


def view(options: argparse.Namespace) -> int:
    """Serve the pages until Ctrl-C.

    Raises:
        UsageError: If the extra `[view]` is not installed, there are no runs, or the port is taken.
    """
    need("the viewer", "view", ("starlette", "uvicorn"))
    # Who labels must not see the models: no runs but those that are named.
    usual = [] if options.labels else [str(api.RUNS)]
    paths = [run_path(name) for name in options.runs or usual]
    for path in paths:
        if not path.is_dir() and path != api.RUNS:
            raise UsageError(f"{path}: no such folder")
    page = "/?"
    if options.items is not None:
        if len(paths) != 1:
            raise UsageError("--items shows those of one run; name it")
        asked = urlencode(parse_qsl(options.items))
        page = f"/run/{quote(paths[0].resolve().name, safe='')}/items?{asked}&"
    # No other command needs what it imports.
    importlib.import_module("orchestrator.view.serve").serve(
        paths,
        port=options.port,
        open_browser=options.open,
        allow_code=options.allow_code,
        labels=None if options.labels is None else Path(options.labels),
        page=page,
    )
    return EXIT_COMPLETE
