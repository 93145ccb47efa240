"""Whether a run passes its gate: in a sentence, for a terminal, as Markdown, JSON and JUnit XML."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final
from xml.etree import ElementTree as ET

import msgspec
from rich.console import RenderableType
from rich.table import Table

from orchestrator.errors import EXIT_COMPLETE, EXIT_GATE_FAILS, EXIT_GATE_OPEN
from orchestrator.gates import Checked, Verdict
from orchestrator.numbers import UNDEFINED
from orchestrator.report.generic import generic_markdown
from orchestrator.report.page import BAD, DOUBTFUL, FAINT, GOOD, HEADING, Page, paged
from orchestrator.report.text import safe_line
from orchestrator.report.words import plain
from orchestrator.tables import Column, Measured, cell_text, make_table, table_columns

FORMAT: Final = 1
"""Raised when a field of the JSON changes its meaning or goes; new fields may come at any time."""

_OF_ALL: Final[dict[Verdict, str]] = {
    "holds": "holds", "fails": "fails", "not known yet": "is not decided yet",
}  # fmt: skip


_COUNTED: Final[dict[Verdict, tuple[str, str]]] = {
    "holds": ("requirement holds", "requirements hold"),
    "fails": ("fails", "fail"),
    "not known yet": ("is not known yet", "are not known yet"),
}


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


class GateResult(msgspec.Struct, frozen=True):
    """The verdict on a run: it fails if one requirement does, and holds if all do.

    Attributes:
        requirements: Each with its verdict, in order.
        run: Metadata of the run.
        against: Metadata of the run that it is compared with; None without one.
        confidence_level: Of all verdicts together.
        level: Of each interval: Bonferroni's, over the requirements that are estimated.
        notes: What to know besides, a sentence each.
    """

    requirements: tuple[Checked, ...]
    run: Mapping[str, Any]
    against: Mapping[str, Any] | None
    confidence_level: float
    level: float
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict on all requirements together."""
        verdicts = {one.verdict for one in self.requirements}
        if "fails" in verdicts:
            return "fails"
        return "not known yet" if "not known yet" in verdicts else "holds"

    @property
    def exit_code(self) -> int:
        """0 if all requirements hold, 4 if one fails, 5 if none fails but one is not known yet."""
        codes = {"holds": EXIT_COMPLETE, "fails": EXIT_GATE_FAILS, "not known yet": EXIT_GATE_OPEN}
        return codes[self.verdict]

    @property
    def adjustment(self) -> str:
        """The share of the confidence level that each requirement has, in words."""
        n = round((1 - self.confidence_level) / (1 - self.level))
        level, each = f"{100 * self.confidence_level:.4g} %", f"{100 * self.level:.4g} %"
        if n < 2:
            return f"the {each} interval decides"
        return (
            f"the {each} interval decides, so that all {n} verdicts hold together at {level} "
            "(Bonferroni: each requirement can be decided wrongly in one way only, whichever way "
            "it is, so each takes an equal share of the error)"
        )

    def words(self) -> str:
        """Return the verdict on the run in a sentence."""
        counts = Counter(one.verdict for one in self.requirements)
        said = ", ".join(
            f"{n} {words[n > 1]}" for verdict, words in _COUNTED.items() if (n := counts[verdict])
        )
        return f"The gate {_OF_ALL[self.verdict]}: {said}."

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as JSON values, with the metadata of the runs."""
        said = {
            "format": FORMAT,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "confidence_level": self.confidence_level,
            "level_of_intervals": self.level,
            "adjustment": self.adjustment,
            "requirements": self.requirements,
            "notes": list(self.notes),
            "run": dict(self.run),
            "against": None if self.against is None else dict(self.against),
        }
        return {name: plain(value) for name, value in said.items()}

    def to_json(self) -> str:
        """Return the verdict as one JSON object, with the metadata of the runs.

        Returns:
            The text of `orchestrator gate --format json`.

        Example:
            >>> json.loads(found.to_json())["verdict"]  # doctest: +SKIP
            'holds'
        """
        return json.dumps(self.as_json(), indent=2, allow_nan=False) + "\n"

    def to_markdown(self) -> str:
        """Return the verdict as Markdown, for the summary of a job.

        Returns:
            The text of `orchestrator gate --format markdown`.

        Example:
            >>> print(found.to_markdown())  # doctest: +SKIP
        """
        marks: dict[Verdict, str] = {"holds": "✅", "fails": "❌", "not known yet": "❔"}
        about = f"Run {self.run.get('name', '')} ({self.run.get('run', '')})"
        if self.against is not None:
            about += f", against {self.against.get('name', '')} ({self.against.get('run', '')})"
        rows = [
            (one.requirement, f"{marks[one.verdict]} {one.verdict}", measured_words(one), one.why)
            for one in self.requirements
        ]
        columns = table_columns("requirement | verdict | measured | why")
        notes = (*self.notes, self.adjustment)
        table = make_table("gate", self.words(), columns, rows, basis=about, notes=notes)
        return f"{generic_markdown(table)}\n"

    def to_junit(self, *, pass_unknown: bool = False) -> str:
        """Return the verdict as JUnit XML, with a test case for each requirement.

        Args:
            pass_unknown: Report what is not known yet as skipped instead of as an error.

        Returns:
            The text of `orchestrator gate --junit FILE`.

        Example:
            >>> Path("gate.xml").write_text(found.to_junit())  # doctest: +SKIP
        """
        open_as = "skipped" if pass_unknown else "error"
        counts = Counter(one.verdict for one in self.requirements)
        n_open = counts["not known yet"]
        suite = ET.Element(
            "testsuite",
            name="orchestrator gate",
            tests=str(len(self.requirements)),
            failures=str(counts["fails"]),
            errors=str(0 if pass_unknown else n_open),
            skipped=str(n_open if pass_unknown else 0),
            time="0",
        )
        properties = ET.SubElement(suite, "properties")
        about: dict[str, Any] = {
            "confidence_level": self.confidence_level,
            "level_of_intervals": self.level,
        }
        for prefix, run in (("run", self.run), ("against", self.against or {})):
            for name, value in run.items():
                about[f"{prefix}.{name}" if name != "run" else prefix] = value
        for name, value in about.items():
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            ET.SubElement(properties, "property", name=name, value=_plain(text))
        for one in self.requirements:
            case = ET.SubElement(
                suite,
                "testcase",
                classname=_plain(f"gate.{self.run.get('name', 'run')}"),
                name=_plain(one.requirement),
                time="0",
            )
            said = _plain(measured_words(one) + (f"; {one.why}" if one.why else ""))
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


@paged
def gate_text(page: Page, found: GateResult) -> Iterator[RenderableType]:
    """For a terminal: the verdict, then each requirement with what it rests on."""
    yield page.words(found.words(), f"{HEADING} {_STYLES[found.verdict]}")
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


def _plain(text: str) -> str:
    """Text without what XML 1.0 can't hold."""
    return safe_line(text).encode("utf-8", "replace").decode()
