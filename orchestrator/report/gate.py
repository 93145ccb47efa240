"""Whether a run passes its gate: in a sentence, for a terminal, as Markdown, JSON and JUnit XML."""

import json
from collections.abc import Iterator
from typing import Any, Final
from xml.etree import ElementTree as ET

from rich.console import RenderableType
from rich.table import Table

from orchestrator.gates import FORMAT, Checked, Decision, Verdict
from orchestrator.numbers import UNDEFINED
from orchestrator.report.generic import generic_markdown
from orchestrator.report.page import BAD, DOUBTFUL, FAINT, GOOD, HEADING, Page, paged
from orchestrator.report.text import safe_line
from orchestrator.report.words import plain
from orchestrator.tables import Column, Measured, cell_text, make_table, table_columns

_OF_ALL: Final[dict[Verdict, str]] = {
    "holds": "holds", "fails": "fails", "not known yet": "is not decided yet",
}  # fmt: skip


_COUNTED: Final[dict[Verdict, tuple[str, str]]] = {
    "holds": ("requirement holds", "requirements hold"),
    "fails": ("fails", "fail"),
    "not known yet": ("is not known yet", "are not known yet"),
}


def gate_words(found: Decision) -> str:
    """Return the verdict on a run in a sentence."""
    counts = {
        verdict: sum(one.verdict == verdict for one in found.requirements) for verdict in _COUNTED
    }
    said = ", ".join(f"{n} {_COUNTED[verdict][n > 1]}" for verdict, n in counts.items() if n)
    return f"The gate {_OF_ALL[found.verdict]}: {said}."


def gate_value(found: Decision) -> dict[str, Any]:
    """Return the verdict as JSON values, with the metadata of the runs."""
    said = {
        "format": FORMAT,
        "verdict": found.verdict,
        "exit_code": found.exit_code,
        "confidence_level": found.confidence_level,
        "level_of_intervals": found.level,
        "adjustment": found.adjustment,
        "requirements": found.requirements,
        "notes": list(found.notes),
        "run": dict(found.run),
        "against": None if found.against is None else dict(found.against),
    }
    return {name: plain(value) for name, value in said.items()}


_STYLES: Final[dict[Verdict, str]] = {
    "holds": GOOD, "fails": BAD, "not known yet": DOUBTFUL,
}  # fmt: skip


def measured_words(one: Checked) -> str:
    """Return what was measured with its interval, in the form of its measure."""
    what = "difference" if one.is_difference else "measured"
    if one.value is None:
        return f"{what} {UNDEFINED}"
    column = Column("measured", one.form)
    # A count is exact, and has no interval worth showing.
    low, high = (None, None) if one.n is None else (one.low, one.high)
    cell = Measured(one.value, low, high, one.n, "", one.n_clusters)
    return f"{what} {cell_text(column, cell)}"


@paged
def gate_text(page: Page, found: Decision) -> Iterator[RenderableType]:
    """For a terminal: the verdict, then each requirement with what it rests on."""
    yield page.words(gate_words(found), f"{HEADING} {_STYLES[found.verdict]}")
    yield page.words("")
    marks: dict[Verdict, str] = {
        "holds": "●", "fails": "✕", "not known yet": "○",
    }  # fmt: skip
    grid = Table.grid(padding=(0, 2, 0, 0))
    for one in found.requirements:
        verdict = page.cell(f"{marks[one.verdict]} {one.verdict}", _STYLES[one.verdict])
        grid.add_row(verdict, page.prose(one.requirement, HEADING))
        why = f" · {one.why}" if one.why else ""
        grid.add_row(page.cell(""), page.prose(f"{measured_words(one)}{why}", FAINT))
    yield grid
    yield page.words("")
    for note in (*found.notes, found.adjustment):
        yield page.prose(note, FAINT, bullet=True)


def gate_markdown(found: Decision) -> str:
    """Return the verdict and the requirements as Markdown, for the summary of a job."""
    marks: dict[Verdict, str] = {"holds": "✅", "fails": "❌", "not known yet": "❔"}
    about = f"Run {found.run.get('name', '')} ({found.run.get('run', '')})"
    if found.against is not None:
        about += f", against {found.against.get('name', '')} ({found.against.get('run', '')})"
    rows = [
        (one.requirement, f"{marks[one.verdict]} {one.verdict}", measured_words(one), one.why)
        for one in found.requirements
    ]
    columns = table_columns("requirement | verdict | measured | why")
    notes = (*found.notes, found.adjustment)
    table = make_table("gate", gate_words(found), columns, rows, basis=about, notes=notes)
    return f"{generic_markdown(table)}\n"


def gate_junit(found: Decision, *, pass_unknown: bool = False) -> str:
    """Return the verdict as JUnit XML: a test case for each requirement.

    A requirement that fails is a failure. One that is not known yet is an error, or skipped with
    `pass_unknown`.
    """
    open_as = "skipped" if pass_unknown else "error"
    counts = dict.fromkeys(_STYLES, 0)
    for one in found.requirements:
        counts[one.verdict] += 1
    n_open = counts["not known yet"]
    suite = ET.Element(
        "testsuite",
        name="orchestrator gate",
        tests=str(len(found.requirements)),
        failures=str(counts["fails"]),
        errors=str(0 if pass_unknown else n_open),
        skipped=str(n_open if pass_unknown else 0),
        time=f"{found.seconds:.3f}",
    )
    properties = ET.SubElement(suite, "properties")
    about: dict[str, Any] = {
        "confidence_level": found.confidence_level,
        "level_of_intervals": found.level,
    }
    for prefix, run in (("run", found.run), ("against", found.against or {})):
        about |= {
            f"{prefix}.{name}" if name != "run" else prefix: value for name, value in run.items()
        }
    for name, value in about.items():
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        ET.SubElement(properties, "property", name=name, value=_xml(text))
    for one in found.requirements:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=_xml(f"gate.{found.run.get('name', 'run')}"),
            name=_xml(one.requirement),
            time="0",
        )
        said = _xml(measured_words(one) + (f"; {one.why}" if one.why else ""))
        if one.verdict == "fails":
            ET.SubElement(case, "failure", message=said, type="fails").text = said
        elif one.verdict == "not known yet":
            element = ET.SubElement(case, open_as, message=said)
            if not pass_unknown:
                element.set("type", "not known yet")
        ET.SubElement(case, "system-out").text = said
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _xml(text: str) -> str:
    """Text without what XML 1.0 can't hold."""
    return safe_line(text).encode("utf-8", "replace").decode()
