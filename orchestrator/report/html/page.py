"""The page: sections of figures, tables and examples in one file under a strict security policy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import polars as pl
import yaml
from markupsafe import Markup

from orchestrator.columns import ITEMS
from orchestrator.contracts.context import Source, roles_in
from orchestrator.disk.paths import shown
from orchestrator.figures import Figure, free
from orchestrator.frames import counted_by, names_of
from orchestrator.report import rankings as tables
from orchestrator.report.html import basis, judgments, methods, ranked
from orchestrator.report.html.examples import Examples, examples
from orchestrator.report.html.figures import Material, made_safe
from orchestrator.report.html.shell import keyed, page, template, undrawn
from orchestrator.report.picture import forest
from orchestrator.report.text import in_command, page_line, safe_block, safe_name, safe_names
from orchestrator.report.words import plain, subject
from orchestrator.tables import Table

_MAX_RECIPE: Final = 60_000
_MAX_NOTES: Final = 8
MAX_NAME: Final = 48
"""Characters of a model's name in a sentence of the run in brief."""
MAX_ROW_NAME: Final = 28
"""Characters of a model's name beside a plot."""
# Anchors of the page's own sections.
_PLACES: Final = frozenset({
    "ranking", "judge", "scores", "methods", "agreement", "curves", "examples", "tables", "basis",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with a heading.

    Attributes:
        key: Its anchor.
        title: Its heading.
        figures: With their tables folded away.
        tables: Shown as they are.
        folded: Tables of which only the title is shown at first.
        examples: Cases to read.
    """

    key: str
    title: str
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    folded: Sequence[Table] = ()
    examples: Sequence[Examples] = ()

    def __bool__(self) -> bool:
        """Return True if there is anything in it."""
        return any((self.figures, self.tables, self.folded, self.examples))


def all_figures(material: Material) -> list[Figure]:
    """Every figure of a run, in the order of the page."""
    return [figure for one in sections(material) for figure in one.figures]


def render(material: Material) -> str:
    """The report as one HTML file.

    Where they can't be drawn it has no charts; every number is in its tables anyway.
    """
    found = shown_sections(material)
    # These read every row, which no other reader of the sections wants.
    if shown := examples(material):
        at = [one.key in ("tables", "basis") for one in found].index(True)
        found.insert(at, Section("examples", "Examples", examples=shown))
    figures = [figure for section in found for figure in section.figures]
    return page("page.html.j2", figures, behind=_behind(material), **_context(material, found))


def content(material: Material, parts: Sequence[Section] | None = None) -> str:
    """The first screen as HTML, or sections below it for a page that puts in the charts.

    The first screen needs no row of the run where its numbers are kept.
    """
    main = template("main.html.j2")
    if parts is None:
        return main.render(in_brief(material), shown="glance", grid=keyed())
    figures = [figure for section in parts for figure in section.figures if not undrawn()]
    waiting = Markup('<p class="faint">Drawing …</p>')
    drawn = {figure.key: waiting for figure in figures if figure.picture is not None}
    return main.render(_context(material, parts), shown="sections", drawn=drawn, grid=keyed())


def _context(material: Material, parts: Sequence[Section]) -> dict[str, object]:
    # Notes on the rankings, and why there are no charts where there are none.
    found = [
        f"{one.source or 'ranking'}: {note}"
        for one in material.rankings
        for note in one.notes[:_MAX_NOTES]
    ]
    if needed := undrawn():
        found.append(f"Charts are not shown because they need: {needed}.")
    recipe = yaml.safe_dump(
        plain(material.settings, basis.without_folders), sort_keys=False, allow_unicode=True
    )
    return {
        "shown": "all",
        "material": material,
        "sections": parts,
        **in_brief(material),
        "warnings": list(dict.fromkeys(found)),
        "facts": basis.facts(material),
        "recipe": safe_block(recipe, _MAX_RECIPE),
    }


def summary(material: Material) -> str:
    """A run in short, as HTML that stands in a notebook: no style, script or chart."""
    ranked = [tables.ratings(one) for one in material.rankings if one.n_judged]
    return template("summary.html.j2").render(
        material=material,
        **in_brief(material),
        grids=[*map(keyed(), ranked or material.brief.tables)],
        frames=[safe_name(name) for name in material.frames] or ["answers"],
    )


def sections(material: Material) -> Iterator[Section]:
    """The sections, each figure with a key of its own: names may differ in what keys leave out.

    Titles leave out what all of a page have in common: its only ranking, its only method.
    """
    taken: set[str] = set()
    common = [f" ({one.name})" for one in material.context.sources]
    common = common if len(common) == 1 else []
    if len(material.rankings) == 1 and not material.rankings[0].warning:
        common.insert(0, f": {subject(material.rankings[0])}")
    for section in _parts(material):
        figures = []
        for one in section.figures:
            title = one.title
            for ending in common:
                title = title.removesuffix(ending)
            safe = made_safe(one)
            figures.append(replace(safe, title=title, key=free(safe.key, taken)))
            taken.add(figures[-1].key)
        yield replace(section, figures=figures)


def shown_sections(material: Material) -> list[Section]:
    """Return the sections without what the page has shown before them.

    The first screen has drawn some of the numbers, and a table stands with its picture where there
    is one, else among all tables. Of one without columns the first screen tells why.
    """
    questions = material.brief.questions
    drawn = [
        {one.value for one in question.standings} for question in questions if question.is_drawn
    ]
    found, there = [], [] if questions else [*material.brief.tables]
    for section in sections(material):
        figures = []
        for one in section.figures:
            is_drawn = one.picture is None or (
                one.picture.kind == "intervals"
                and any({row["value"] for row in one.picture.rows} <= of for of in drawn)
            )
            # Of a ranking, the table says more than the first screen.
            is_said = one.picture is not None and section.key != "ranking"
            if not is_drawn or not (is_said or one.table in material.tables):
                figures.append(replace(one, picture=None) if is_drawn else one)
        there += [one.table for one in figures]
        folded = [one for one in section.folded if one.columns and one not in there]
        found.append(replace(section, figures=figures, folded=folded))
    return [section for section in found if section]


def _parts(material: Material) -> Iterator[Section]:
    rankings, models = material.rankings, material.models
    yield Section(
        "ranking",
        "Rankings",
        [figure for one in rankings for figure in ranked.ranking(one, models)],
    )
    covered = tables.coverage(rankings)
    yield Section(
        "judge",
        "The judge",
        [
            *ranked.judges(rankings),
            *judgments.verdicts(material),
            *judgments.calibration(material),
        ],
        tables=[covered] if covered.rows else [],
    )
    yield Section("scores", "Scores", judgments.scores(material))
    places = set(_PLACES)
    for place, heading, figures in methods.sections(material):
        section = Section(free(place, places), heading, figures)
        places.add(section.key)
        yield section
    yield Section("methods", "Other methods", methods.summaries(material))
    yield Section("curves", "Curves", methods.curves(material))
    yield Section("agreement", "Methods compared", methods.agreement(material))
    yield Section("tables", "All tables", folded=material.tables)
    found = (basis.requests, basis.lost, basis.epochs, basis.models, basis.probes)
    *counted, probes = [table(material) for table in found]
    yield Section(
        "basis",
        "Data and requests",
        [basis.coverage(material)],
        tables=[table for table in counted if table.rows],
        folded=[probes] if probes.rows else [],
    )


def in_brief(material: Material) -> dict[str, object]:
    """Return the variables of the templates that show a run in brief."""
    brief = material.brief
    return {
        "brief": brief,
        "forests": [forest(question) for question in brief.questions],
        "short": safe_names(brief.names, MAX_NAME, joined=True),
        "row_names": safe_names(brief.names, MAX_ROW_NAME, joined=True),
        "checks": [*(brief.questions[0].checks if brief.questions else ()), *brief.checks],
    }


def _behind(material: Material) -> dict[str, object]:
    """Return what `ways.js` needs of a run, with its folder as it is typed."""
    is_there = "category" in names_of(material.frames, ITEMS)
    rows = counted_by(material.frames, ITEMS, ["category"]) if is_there else ()
    telling = telling_worth(material.frames, material.context.sources)
    found = sorted({row["category"] for row in rows} - {None})
    # Of each method that compares pairs; the viewer has more.
    keys = ["failed", "cut"]
    keys += [f"{one.source}.{name}" for one in material.rankings for name in ("flips", "gap")]
    keys += [f"{one.name}.split" for one in material.context.sources if len(one.method.judges) > 1]
    return {
        "run": in_command(shown(Path(material.where))),
        "models": [page_line(one) for one in material.models],
        "by": [page_line(one.name) for one in telling],
        "categories": [page_line(one) for one in found],
        "measures": [{"key": page_line(key)} for key in dict.fromkeys(keys)],
    }


def telling_worth(frames: Mapping[str, pl.DataFrame], sources: Sequence[Source]) -> list[Source]:
    """Return the methods that tell what an answer is worth: those of pairs first."""
    pairs = {name for name, one in roles_in(frames).items() if one.pairs is not None}
    rated = [one for one in sources if one.scores and "model" in names_of(frames, one.frame)]
    compared = [one for one in sources if one.frame in pairs]
    return [*compared, *(one for one in rated if one not in compared)]
