"""A measured figure in the documentation has the command that made it: in its section, in the one
above it, or in one that its section links to."""

import re
from typing import NamedTuple

import pytest

from tests.conftest import ROOT

DOCS = ROOT / "docs"
PAGES = [
    path.relative_to(DOCS).as_posix()
    for path in (
        *sorted((DOCS / "methods").glob("*.md")),
        *sorted((DOCS / "how_to").glob("*.md")),
        *(DOCS / f"{name}.md" for name in ("papers", "recipe_runs", "statistics", "validity")),
    )
]
# Intervals, percentages, entropies, and correlations in prose.
FIGURE = re.compile(
    r"\[[\u2212+-]?\d[\d.,]*(?: %)?, [\u2212+-]?\d[\d.,]*(?: %)?\]|\d+(?:\.\d+)? %"
    r"|\d\.\d+ (?:nats|points)|(?:correlate|Spearman) [\u2212+-]?\d"
)
# Of no study: ranges of values, and levels that settings name.
NO_FIGURE = re.compile(r"\[[\u2212+-]?[01], [01]\]|(?:0|2\.5|5|10|90|95|97\.5|100) %")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`|^ {4,}\S.*$", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(
    r"orchestrator (?:run|compare|labels|gate|report|export) |python (?:-m |\S+\.py)"
)
LINK = re.compile(r"\]\(([\w./]*)#([\w-]+)\)")
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
# What others printed, and rules of thumb by a formula that stands beside them.
OF_OTHERS = {
    ("statistics.md", "Length"),
    ("how_to/gate_in_ci.md", "The verdict"),
}


class Section(NamedTuple):
    """A heading with the text up to the next one, and the headings above it but for the title."""

    page: str
    title: str
    text: str
    above: tuple[str, ...]

    def has_figures(self) -> bool:
        prose = CODE.sub("", self.text)
        return any(not NO_FIGURE.fullmatch(found[0]) for found in FIGURE.finditer(prose))

    def anchors(self) -> list[tuple[str, str]]:
        """Pages and anchors that the section links to."""
        folder = (DOCS / self.page).parent
        return [
            ((folder / page).resolve().relative_to(DOCS).as_posix() if page else self.page, anchor)
            for page, anchor in LINK.findall(self.text)
        ]


def anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def sections(page: str) -> list[Section]:
    text = (DOCS / page).read_text("utf-8")
    text = BLOCK.sub(lambda one: one[0].replace("\n#", "\n "), text)
    found = list(HEADING.finditer(text))
    ends = [one.start() for one in found[1:]] + [len(text)] * bool(found)
    made, above = [], list[tuple[int, str]]()
    for one, end in zip(found, ends, strict=True):
        rank = len(one[1])
        above = [(other, title) for other, title in above if 1 < other < rank]
        made.append(Section(page, one[2], text[one.start() : end], tuple(t for _, t in above)))
        above.append((rank, one[2]))
    return made


ALL = [section for page in PAGES for section in sections(page)]
WITH_COMMAND = {(one.page, anchor(one.title)) for one in ALL if COMMAND.search(one.text)}


def has_command(section: Section) -> bool:
    own = [(section.page, anchor(title)) for title in (section.title, *section.above)]
    return any(place in WITH_COMMAND for place in (*own, *section.anchors()))


@pytest.mark.parametrize("page", PAGES)
def test_a_measured_figure_has_its_command(page):
    known = [one for one in ALL if one.page == page and one.has_figures()]
    lacking = [one.title for one in known if not has_command(one)]
    assert [title for title in lacking if (page, title) not in OF_OTHERS] == []


def test_figures_are_found_and_exceptions_are_needed():
    assert sum(one.has_figures() for one in ALL) > 30
    lacking = {(one.page, one.title) for one in ALL if one.has_figures() and not has_command(one)}
    assert lacking >= OF_OTHERS


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("It is right in 81.8 % [76.4, 86.4].", True),
        ("Its entropy is 0.09 nats.", True),
        ("With 95 % confidence, in [0, 1].", False),
        ("Write `fail_under: 12.5 %`.", False),
        ("    at most 12.5 %\n", False),
    ],
)
def test_a_figure_is_told_from_a_setting(text, has):
    assert Section("a.md", "A", text, ()).has_figures() is has
