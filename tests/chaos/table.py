"""Runs the tests of this folder, prints what they measured, and writes its sums into the docs.

`python -m tests.chaos.table`; `make chaos` does it after set-up. The page is docs/reliability.md.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final

from tests.conftest import ROOT

NOTES: Final = "CHAOS_NOTES"
PAGE: Final = ROOT / "docs" / "reliability.md"
BEGIN: Final = "<!-- fault and outcome: make chaos -->"
END: Final = "<!-- end of fault and outcome -->"
SECTIONS: Final = ("The process", "The disk", "The file", "Locks and clocks", "The server")
_HEAD: Final = ("fault", "times", "exit", "what the user reads", "recorded", "lost", "sent twice",
                "then")  # fmt: skip


@dataclass(frozen=True)
class Row:
    """Measurements of one fault.

    Attributes:
        section: Of the table.
        fault: What happened.
        times: How often it struck.
        exit: Exit codes of the commands that met it.
        said: What the user read, shortened.
        recorded: Outcomes on the disk when it had struck; None where none can be.
        lost: How many of these were gone or changed afterwards.
        asked_again: How many of these were asked again.
        then: How the run ended after it.
    """

    section: str
    fault: str
    times: int
    exit: str
    said: str
    recorded: int | None = None
    lost: int | None = None
    asked_again: int | None = None
    then: str = ""

    def cells(self) -> tuple[str, ...]:
        """Markdown cells."""
        numbers = (self.recorded, self.lost, self.asked_again)
        return (
            self.fault,
            f"{self.times:,}",
            self.exit,
            _escaped(self.said),
            *("" if number is None else f"{number:,}" for number in numbers),
            self.then,
        )


def main() -> int:
    """Run all, then write; the exit code of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "tests/chaos", "-m", "slow", "-o", "timeout=1800",
             *sys.argv[1:]],
            cwd=ROOT, check=False, env={"CHAOS": "full", **os.environ, NOTES: folder},
        )  # fmt: skip
        if ended.returncode == 0:
            rows = [Row(**json.loads(file.read_text())) for file in Path(folder).glob("*.json")]
            sys.stdout.write(tables(rows))
            PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    return ended.returncode


def replaced(text: str, rows: Iterable[Row]) -> str:
    """The page with another table."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{sums(rows)}{END}{after}"


def tables(rows: Iterable[Row]) -> str:
    """A table a section."""
    ordered = sorted(rows, key=lambda row: (SECTIONS.index(row.section), row.fault))
    parts = []
    for section, members in groupby(ordered, key=lambda row: row.section):
        lines = [_HEAD, ("---",) * len(_HEAD), *(row.cells() for row in joined(members))]
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        parts.append(f"\n### {section}\n\n{table}")
    return "".join(parts) + "\n"


def sums(rows: Iterable[Row]) -> str:
    """One table: a row for the faults of a section that lost nothing, and each that lost some."""
    lines = ["| faults | times | recorded | lost | sent twice |", "| --- | --: | --: | --: | --: |"]
    ordered = sorted(rows, key=lambda row: (SECTIONS.index(row.section), row.fault))
    for section, members in groupby(ordered, key=lambda row: row.section):
        of_section = list(members)
        harmless = [row for row in of_section if not (row.lost or row.asked_again)]
        recorded = sum(row.recorded or 0 for row in harmless)
        times = sum(row.times for row in harmless)
        lines.append(f"| {section}: {len(harmless)} kinds | {times:,} | {recorded:,} | 0 | 0 |")
        lines += [
            f"| {section}: {row.fault} | {row.times:,} | {row.recorded or 0:,} | "
            f"{row.lost or 0:,} | {row.asked_again or 0:,} |"
            for row in of_section
            if row.lost or row.asked_again
        ]
    return "\n".join(["", *lines, "", ""])


def joined(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield one row for faults that lost nothing and ended alike, in the place of their first."""
    alike: dict[object, list[Row]] = {}
    for row in rows:
        is_harmless = not (row.lost or row.asked_again or row.then[:1].isdigit())
        key = (row.exit, row.said, row.lost, row.asked_again, row.then) if is_harmless else row
        alike.setdefault(key, []).append(row)
    for members in alike.values():
        recorded = [row.recorded for row in members if row.recorded is not None]
        yield replace(
            members[0],
            fault=_together(row.fault for row in members),
            times=sum(row.times for row in members),
            recorded=sum(recorded) if recorded else None,
        )


def _together(faults: Iterable[str]) -> str:
    """Return faults in one text; what stands before a colon is said once."""
    parts = [(fault.rpartition(": ")[0], fault.rpartition(": ")[2]) for fault in faults]
    return "; ".join(
        f"{head}: {' / '.join(tail for _, tail in members)}"
        if head
        else "; ".join(tail for _, tail in members)
        for head, members in groupby(parts, key=lambda part: part[0])
    )


def _escaped(said: str) -> str:
    return said.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.exit(main())
