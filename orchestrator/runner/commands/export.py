"""`orchestrator export`: tables, frames and figures of a run as files, or on stdout."""

import argparse
import json
import sys
from pathlib import Path
from typing import Final, Literal, get_args

from orchestrator import numbers
from orchestrator.errors import EXIT_COMPLETE, UsageError
from orchestrator.report.export.files import Format, frame_text, write_about
from orchestrator.report.live import progress
from orchestrator.report.text import confirm, safe_line, write_to
from orchestrator.runner import api
from orchestrator.runner.commands.files import run_path
from orchestrator.runner.commands.messages import Said
from orchestrator.runner.interface import exporting, html_report
from orchestrator.runner.interface.exporting import TextFormat, Wanted

_Form = TextFormat | Format | Literal["hf", "inspect"]
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
    wanted = Wanted(tuple(options.table), tuple(options.frame))
    if wanted and options.format == "inspect":
        raise UsageError("the logs of Inspect hold all answers; --table and --frame don't choose")
    if options.figures is not None:
        for path in html_report.write_charts(result, Path(options.figures)):
            _wrote(path)
        if options.to is None and not wanted:
            return EXIT_COMPLETE
    if options.to is None:
        _print(result, options.format, wanted)
    else:
        _write(result, options.format, Path(options.to), wanted)
    return EXIT_COMPLETE


def _wrote(path: Path, n_rows: int | None = None) -> None:
    rows = "" if n_rows is None else f": {numbers.count(n_rows)} rows"
    confirm(f"{path}{rows}")


def _print(result: api.Result, form: _Form, wanted: Wanted) -> None:
    """Print what was asked for by name.

    Raises:
        UsageError: If it does not fit on stdout.
    """
    if not wanted:
        raise UsageError(
            "give a folder to write to: --to DIR; or print a table with: --table NAME --format "
            "latex|markdown|html|csv|jsonl (--list lists the tables)"
        )
    match form:
        case "latex" | "markdown" | "html":
            write_to(sys.stdout, "\n".join(exporting.texts(result, form, wanted).values()))
        case "csv" | "jsonl":
            readers = exporting.readers(result, wanted)
            if len(readers) > 1:
                raise UsageError(f"only one table or frame fits on stdout as {form}; give --to DIR")
            for read in readers.values():
                write_to(sys.stdout, frame_text(read(), form))
        case "parquet" | "hf" | "inspect":
            raise UsageError(f"{form} does not fit on stdout; give a folder to write to: --to DIR")


def _write(result: api.Result, form: _Form, folder: Path, wanted: Wanted) -> None:
    match form:
        case "latex" | "markdown" | "html":
            for path in exporting.write_texts(result, form, folder, wanted):
                _wrote(path)
        case "hf":
            for path, n_rows in exporting.write_dataset(result, folder, wanted):
                _wrote(path, n_rows or None)
        case "inspect":
            for path, n_samples in exporting.write_logs(result, folder):
                _wrote(path, n_samples)
        case "parquet" | "csv" | "jsonl":
            rows: dict[str, int] = {}
            n_files = len(wanted.tables) + len(wanted.frames) or len(result.frames)
            with progress("writing frames", n_files) as advance:
                for path, n_rows in exporting.write_frames(result, form, folder, wanted):
                    advance(1)
                    rows[path.name] = n_rows
                    _wrote(path, n_rows)
            about = {"run": str(result.path), **result.completeness.as_json(), "rows": rows}
            write_about(folder / "export.json", about)


def _list(result: api.Result, *, as_json: bool) -> None:
    """List what there is to export."""
    tables = exporting.report_tables(result)
    frames = {name: result.frames.names(name) for name in result.frames}
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
