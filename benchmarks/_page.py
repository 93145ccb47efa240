"""Sections of docs/performance.md: each is written by one command and by nothing else.

A section stands between two comments that name it. Writing it again replaces what is between them;
a name that the page does not have yet gets a section at the end. What a section measured of the
targets stands in it as one more comment, from which the table of all targets is made; such a
section has the sentences of what its command prints, and not its tables.
"""

import json
import os
import platform
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"

_TABLE = re.compile(r"(^\|.*\n)+\n", re.MULTILINE)
_FIGURES = re.compile(r"<!-- figures: (.*) -->")


def write_section(
    name: str, text: str, figures: Mapping[str, float] | None = None, *, page: Path = PAGE
) -> None:
    """Puts `text` (Markdown, heading included) into the section `name` of the page.

    Args:
        name: Of the section.
        text: Markdown.
        figures: What was measured of targets, by the names that `benchmarks.targets` knows; with
            them the tables of the text are left out, since the table of targets has the figures.
        page: The file.

    Raises:
        ValueError: If the page has a begin without its end, or the name twice.
    """
    if figures:
        rounded = {key: round(value, 4) for key, value in figures.items()}
        text = f"{_TABLE.sub('', text).strip()}\n<!-- figures: {json.dumps(rounded)} -->"
    page.write_text(replaced(page.read_text(encoding="utf-8"), name, text), encoding="utf-8")


def publish(name: str, text: str, figures: Mapping[str, float], *, write: bool) -> None:
    """Print a section, and put it into the page where that is asked for; raises as that does."""
    print(text)
    if write:
        write_section(name, text, figures)


def figures_in(page: str) -> dict[str, float]:
    """Return the figures of targets in the sections of a page."""
    found: dict[str, float] = {}
    for figures in _FIGURES.findall(page):
        found |= json.loads(figures)
    return found


def replaced(page: str, name: str, text: str) -> str:
    """The page with the section's text in place of what was there, or after everything else."""
    begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    section = f"{begin}\n{text.strip()}\n{end}"
    if (page.count(begin), page.count(end)) == (0, 0):
        return f"{page.rstrip()}\n\n{section}\n"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed) or begin in rest or end in after:
        raise ValueError(f"the section {name!r} must have one begin and one end, in this order")
    return before + section + after


def machine() -> str:
    """Describe the machine: processor, cores, memory, system, Python."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{_processor()}, {os.cpu_count()} cores, {gib:.0f} GiB, {platform.system()} "
        f"{platform.release().partition('-')[0]}, Python {platform.python_version()}; "
        f"load before: {os.getloadavg()[0]:.1f}"
    )


def version(package: str) -> str:
    """The installed version of a package, or "not installed"."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
