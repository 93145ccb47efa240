"""A run as the HTML report sees it, and the report as a file."""

import importlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from orchestrator.disk.paths import is_foreign
from orchestrator.errors import UsageError
from orchestrator.report.export.files import write_text
from orchestrator.report.html.figures import Lost, Material
from orchestrator.report.html.page import all_figures, render
from orchestrator.report.html.page import summary as page_summary
from orchestrator.report.html.shell import undrawn
from orchestrator.report.words import UNTRUSTED
from orchestrator.runner.interface.result import Result
from orchestrator.runner.results.frames import rows_by_epoch
from orchestrator.runner.results.stored import use_words
from orchestrator.runner.results.tables import all_sources
from orchestrator.store import ServerUse
from orchestrator.tables import Table

REPORT = "report.html"


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
    _need_drawing()
    drawing = importlib.import_module("orchestrator.report.html.charts")
    written: list[Path] = drawing.write_charts(all_figures(material(result)), folder)
    return written


def charts(result: Result) -> dict[str, object]:
    """Each chart of a run's report as an Altair object, by the key that it has there.

    Raises:
        UsageError: If charts can't be drawn here.
    """
    _need_drawing()
    altair = importlib.import_module("altair")
    drawing = importlib.import_module("orchestrator.report.html.charts")
    specified = {one.key: drawing.specification(one) for one in all_figures(material(result))}
    return {
        key: altair.Chart.from_dict(found) for key, found in specified.items() if found is not None
    }


def summary(result: Result) -> str:
    """A run in short, as HTML for a notebook."""
    return page_summary(material(result))


def _need_drawing() -> None:
    if needed := undrawn():
        raise UsageError(f"charts need: {needed}")


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
        servers={model: _servers(used) for model, used in record.servers.items()},
        progress={} if status is None else status.values,
        frames=result.frames,
        rankings=result.rankings,
        tables=[_on_page(table) for table in result.tables],
        context=all_sources(
            result.frames, result.settings, allow_code=result.allow_code, run=result.path
        ),
        lost=[Lost(one.model, one.cause, one.n, one.last_message) for one in record.failures],
        exact_match=result.exact_match,
        notes=result.notes,
        n_left=result.n_left,
        brief=result.brief,
        epochs=rows_by_epoch(result.frames),
        probes=record.probes,
    )


def _on_page(table: Table) -> Table:
    """A table of the page, where its warning stands in front of what it rests on."""
    if not table.warning:
        return table
    basis = f"{table.warning} {table.basis}".rstrip()
    return msgspec.structs.replace(table, title=f"{table.title} {UNTRUSTED}", basis=basis)


def _servers(used: Sequence[ServerUse]) -> list[str]:
    """The servers of a model in words, with how much each gave where there are several."""
    several = len({use.epoch for use in used}) > 1
    return [
        use_words(use, with_epoch=several) + (f" ({use.n:,} outcomes)" if use.n else "")
        for use in used
    ]
