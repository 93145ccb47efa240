"""The plan of a run for a terminal: requests by stage and model, and what limits the numbers."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from orchestrator import numbers
from orchestrator.report.page import FAINT, GOOD, HEADING, Column, Page, paged
from orchestrator.report.planned import Plan, StageCount

_MAX_NAME: Final = 32
_MIN_NAME: Final = 8
_GAP: Final = 2
# Columns of a terminal from which a plan shows tokens, and how many more its methods take.
_TOKENS_FROM: Final = 72
_MAX_METHOD: Final = 16
# Lines of a window that a plan takes beside its stages, and stages that are never put together.
_ABOUT: Final = 12
_LEAST_STAGES: Final = 8
_TOTAL: Final = "total"
_TITLES: Final = ("stage", "model", "method")


@paged
def plan_table(page: Page, count: Plan) -> Iterator[RenderableType]:
    """Tabulate the requests of a run, stage by stage, with sums and the limits of the numbers."""
    yield page.heading("Plan")
    parts = [f"{numbers.count(count.n_items)} items", f"{numbers.count(count.n_units)} units"]
    yield from page.flow(parts)
    yield Text("")
    yield from _stages(page, count.stages)
    yield Text("")
    if count.left == 0:
        who = "the store, or another run," if count.reused else "the store"
        yield page.words(f"Nothing to request: {who} holds every outcome.", GOOD)
    elif not count.is_known:
        yield page.words("Money: unknown because a method does not say what it requests", FAINT)
    elif count.money is not None:
        yield page.words(f"Money: at most {numbers.money(count.money)}")
    else:
        yield page.words("Money: unknown because a queried model has no price", FAINT)
    if count.duration is not None and count.left:
        yield page.prose(count.duration.words(), "" if count.duration.low_s else FAINT)
    if count.at_least is not None and count.left and count.is_known:
        least, most = numbers.count(min(count.at_least, count.left)), numbers.count(count.left)
        yield page.words(f"Requests: at least {least}, at most {most}, as the run may stop early")
        if count.expected:
            yield page.prose(count.expected_words())
    # A line for each other run that held outcomes come from
    for run, n in count.reused:
        said = f"{numbers.count(n)} of those held will be copied from "
        yield Text.assemble(page.words(said), page.data(run, page.width // 2))
    for line in count.servers:
        yield page.prose(line)
    for note in count.notes if count.left or count.is_estimate else ():
        yield page.prose(note, FAINT, bullet=True)


def _stages(page: Page, stages: Sequence[StageCount]) -> Iterator[RenderableType]:
    """The requests by stage and model; in a window that is too short for that, by stage."""
    shown = [[stage] for stage in stages]
    if page.height is not None and len(stages) > max(_LEAST_STAGES, page.height - _ABOUT):
        by_stage: dict[tuple[str, str], list[StageCount]] = {}
        for stage in stages:
            by_stage.setdefault((stage.method, stage.name), []).append(stage)
        shown = [*by_stage.values()]
    rows_of = Counter((stage.name, stage.model) for stage in stages)
    # Rows that are alike in both would not say which method they are of.
    methods = any(n > 1 for n in rows_of.values())
    rows = [(_label(group), _sum(group)) for group in shown]
    if len(rows) > 1:
        rows.append((("" if methods else _TOTAL, "", _TOTAL), _sum(stages)))
    numbers_of = [_counts(page, sums) for _, sums in rows]
    headings = ["requests", "held", "to request", "tokens to generate"]
    wide = page.width >= _TOKENS_FROM + methods * _MAX_METHOD
    columns = [Column(heading) for heading in (headings if wide else headings[:-1])]
    # Names have what the numbers leave; of three columns, the shorter ones need less than a third.
    others = (
        max(len(column.heading), *(row[place].cell_len for row in numbers_of)) + _GAP
        for place, column in enumerate(columns)
    )
    labels = [label for label, _ in rows]
    parts = (2, 0, 1) if methods else (0, 1)
    longest = {part: max(page.name(label[part]).cell_len for label in labels) for part in parts}
    room = page.width - sum(others) - _GAP * (len(parts) - 1)
    width = next(
        (most for most in range(_MAX_NAME, _MIN_NAME, -1) if _taken(longest, most) <= room),
        _MIN_NAME,
    )
    called = {part: page.names([label[part] for label in labels], width) for part in parts}
    cells: list[list[RenderableType]] = [
        [
            *(page.cell(called[part][label[part]], HEADING if part == 1 else "") for part in parts),
            *row[: len(columns)],
        ]
        for label, row in zip(labels, numbers_of, strict=True)
    ]
    if len(rows) > 1:
        cells.insert(-1, [Text("")])
    yield page.table([*(Column(_TITLES[part], "left") for part in parts), *columns], cells)
    if len(shown) < len(stages):
        yield page.words("Each model by itself: orchestrator plan RECIPE --json", FAINT)


def _taken(longest: Mapping[int, int], most: int) -> int:
    return sum(min(width, most) for width in longest.values())


def _label(group: Sequence[StageCount]) -> tuple[str, str, str]:
    """The stage, the model or the number of models, and the method of a row."""
    first = group[0]
    models = first.model if len(group) == 1 else numbers.counted(len(group), "model")
    return first.name, models, first.method


def _sum(stages: Sequence[StageCount]) -> StageCount:
    return StageCount(
        name="",
        model="",
        total=sum(stage.total for stage in stages),
        held=sum(stage.held for stage in stages),
        left=sum(stage.left for stage in stages),
        exact=all(stage.exact for stage in stages),
        max_tokens=sum(stage.max_tokens for stage in stages),
        known=all(stage.known for stage in stages),
    )


def _counts(page: Page, stage: StageCount) -> list[Text]:
    def bound(value: int) -> str:
        if not stage.known:
            return f"≥ {numbers.count(value)}"
        return numbers.at_most(value, exact=stage.exact)

    tokens = numbers.at_most(stage.max_tokens, exact=False) if stage.known else "unknown"
    return [
        page.cell(bound(stage.total)),
        page.cell(numbers.count(stage.held), "" if stage.held else FAINT),
        page.cell(bound(stage.left), HEADING if stage.left else FAINT),
        page.cell(tokens, "" if stage.max_tokens else FAINT),
    ]
