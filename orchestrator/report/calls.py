"""Reports of a call for a terminal: its plan, its work, its failures, and what probes found."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator import numbers
from orchestrator.errors import OrchestratorError, RecipeError
from orchestrator.probing import record
from orchestrator.probing.abilities import BOUNDED, EXACT, IMPOSSIBLE, NOT_KNOWN, Verdict
from orchestrator.probing.record import Finding
from orchestrator.report.page import BAD, DOUBTFUL, FAINT, GOOD, HEADING, Column, Page, paged
from orchestrator.report.planned import Plan, StageCount
from orchestrator.report.progress import TROUBLED, ModelProgress, Progress, faults_of, tokens_of
from orchestrator.report.text import safe_line

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
def plan(page: Page, count: Plan) -> Iterator[RenderableType]:
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
        said = f"Money: at most {numbers.money(count.money)}"
        for words, other in (
            ("one by one", count.one_by_one),
            ("with `batch: true`, where the endpoint has batches,", count.in_batches),
        ):
            if other is not None and other != count.money:
                said += f" ({words} {numbers.money(other)})"
        yield page.words(said)
    else:
        yield page.words("Money: unknown because a queried model has no price", FAINT)
    if count.duration is not None and count.left:
        yield page.prose(count.duration.words(), "" if count.duration.low_s else FAINT)
    if count.at_least is not None and count.left and count.is_known:
        least, most = numbers.count(min(count.at_least, count.left)), numbers.count(count.left)
        yield page.words(f"Requests: at least {least}, at most {most}, as the run may stop early")
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
    rows = []
    for group in shown:
        one, n = group[0], len(group)
        models = one.model if n == 1 else numbers.counted(n, "model")
        rows.append(((one.name, models, one.method), _counts(page, _sum(group))))
    if len(rows) > 1:
        total = ("" if methods else _TOTAL, "", _TOTAL)
        blank = [Text("") for _ in rows[0][1]]
        rows += [(("", "", ""), blank), (total, _counts(page, _sum(stages)))]
    headings = ["requests", "held", "to request", "tokens to generate"]
    wide = page.width >= _TOKENS_FROM + methods * _MAX_METHOD
    columns = [Column(heading) for heading in (headings if wide else headings[:-1])]
    parts = (2, 0, 1) if methods else (0, 1)
    named = [[label[part] for part in parts] for label, _ in rows]
    titles = [_TITLES[part] for part in parts]
    yield _named(page, titles, named, columns, [row[: len(columns)] for _, row in rows])
    if len(shown) < len(stages):
        yield page.words("Each model by itself: orchestrator plan RECIPE --json", FAINT)


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


_WIDE: Final = 80
# Lines of a window that what stands beside the models of a call takes: the results, above all.
_BESIDE: Final = 36


@paged
def summary(page: Page, progress: Progress | None, n_left: int) -> Iterator[RenderableType]:
    """Summarise a call.

    Args:
        page: Where it is laid out.
        progress: At its end; None where nothing was left to do.
        n_left: Units that are not done.
    """
    if progress is None:
        yield page.words("Complete: nothing left to do", GOOD)
        return
    if n_left:
        why = progress.stopping or "stopped"
        left = f"{numbers.counted(n_left, 'unit')} left"
        is_bound = why.startswith("budget.")
        text = f"Stopped: {why}; {left}" if is_bound else f"{why[:1].upper()}{why[1:]}, {left}"
        ended = page.data(text, None, f"{HEADING} {DOUBTFUL}")
    elif failed := progress.units_failed + progress.units_failed_before:
        text = f"Finished, {numbers.counted(failed, 'unit')} failed"
        ended = page.words(text, f"{HEADING} {DOUBTFUL}")
    else:
        ended = page.words("Complete", f"{HEADING} {GOOD}")
    whole = Text.assemble(ended, page.words(f" in {numbers.duration(progress.elapsed_s)}"))
    # What is left has just been said.
    yield from page.flow([whole, *_unit_parts(page, progress, 0)])
    # Why nothing came of a model is no news of who judged it.
    for fault in faults_of(progress):
        yield from page.flow([page.data(fault, None, BAD)])
    yield from page.flow(_request_parts(page, progress))
    if progress.failures:
        order = sorted(progress.failures.items(), key=lambda pair: (-pair[1], pair[0]))
        parts: list[Text | str] = [page.words("failed units", BAD)]
        parts += [page.data(f"{cause} {numbers.count(n)}", None, BAD) for cause, n in order]
        yield from page.flow(parts)
    shown: Sequence[ModelProgress] = progress.models
    if page.height is not None and len(shown) > page.height - _BESIDE:
        # Where there is no room for all, those that had trouble.
        troubled = [one for one in shown if one.failed or one.retried or one.state in TROUBLED]
        shown = troubled[: max(1, page.height // 4)]
    if shown:
        yield Text("")
        yield _models(page, shown)
    if shown and (n_more := len(progress.models) - len(shown)):
        words = f"and {numbers.counted(n_more, 'more model')}: orchestrator status"
        yield Text.assemble(
            page.words(f"{words} ", FAINT), page.data(progress.run_dir, None, FAINT)
        )


def _unit_parts(page: Page, progress: Progress, n_left: int) -> list[Text | str]:
    good = progress.units_done - progress.units_failed
    parts: list[Text | str] = [f"{numbers.count(progress.units_total)} units"]
    if progress.units_stored:
        parts.append(f"{numbers.count(progress.units_stored)} stored before")
    parts.append(f"{numbers.count(good)} done now")
    failed, before = progress.units_failed, progress.units_failed_before
    if failed or before:
        now = f" ({numbers.count(failed)} in this call)" if before else ""
        parts.append(page.words(f"{numbers.count(failed + before)} failed{now}", BAD))
    if progress.units_not_needed:
        parts.append(f"{numbers.count(progress.units_not_needed)} not needed")
    if n_left:
        parts.append(page.words(f"{numbers.count(n_left)} left", DOUBTFUL))
    return parts


def _request_parts(page: Page, progress: Progress) -> list[Text | str]:
    ended = sum(model.done + model.failed for model in progress.models)
    bound = progress.bound * (ended > 0)
    tokens = zip(tokens_of(progress.models), ("tokens in", "out"), strict=True)
    named = (
        (progress.asks_found, "found in the store"),
        (progress.asks_joined, "joined to requests in flight"),
    )
    found, joined = ([f"{numbers.count(n)} {what}"] if n else [] for n, what in named)
    parts: list[Text | str] = [
        f"{numbers.count(progress.requests_sent)} requests sent",
        *found,
        *(
            Text.assemble(f"{numbers.count(n)} copied from ", page.data(run, page.width // 2))
            for run, n in progress.asks_copied.items()
        ),
        *joined,
        *(f"{numbers.known(n, bound)} {what}" for n, what in tokens if n is not None),
    ]
    if progress.elapsed_s > 0 and ended and progress.requests_sent:
        parts.append(f"{numbers.speed(ended / progress.elapsed_s)} requests/s")
    spent = numbers.spent(progress.money, progress.bound)
    return [*parts, *(f"{said} in all calls" for said in spent)]


def _models(page: Page, models: Sequence[ModelProgress]) -> RenderableType:
    wide = page.width >= _WIDE
    columns = [Column("answered"), Column("failed"), Column("retried")]
    if wide:
        columns += [Column("tokens in"), Column("tokens out")]
    if wide and any(model.state in TROUBLED for model in models):
        columns.append(Column("", "left"))
    rows = []
    for model in models:
        row: list[Text] = [
            page.cell(numbers.count(model.done)),
            page.cell(numbers.count(model.failed), BAD if model.failed else FAINT),
            page.cell(numbers.count(model.retried), DOUBTFUL if model.retried else FAINT),
            page.cell(_count(model.prompt_tokens)),
            page.cell(_count(model.completion_tokens)),
            page.cell(model.state if model.state in TROUBLED else "", BAD),
        ]
        rows.append(row[: len(columns)])
    return _named(page, ["model"], [[model.name] for model in models], columns, rows)


def _named(
    page: Page,
    titles: Sequence[str],
    named: Sequence[Sequence[str]],
    columns: Sequence[Column],
    rows: Sequence[Sequence[Text]],
) -> Table:
    """A table whose first columns have what the others leave, names cut to tell them apart."""
    others = (
        max(cell_len(column.heading), *(row[place].cell_len for row in rows)) + _GAP
        for place, column in enumerate(columns)
    )
    room = page.width - sum(others) - _GAP * (len(titles) - 1) if rows else 0
    parts = [*zip(*named, strict=True)]
    longest = [max(page.name(name).cell_len for name in part) for part in parts]
    fitting = (
        most
        for most in range(_MAX_NAME, _MIN_NAME, -1)
        if sum(min(wide, most) for wide in longest) <= room
    )
    width = next(fitting, _MIN_NAME)
    called = [page.names(part, width) for part in parts]
    cells = [
        [*(page.cell(of[name]) for of, name in zip(called, names, strict=True)), *row]
        for names, row in zip(named, rows, strict=True)
    ]
    for row in cells:
        row[len(titles) - 1].stylize(HEADING)
    return page.table([*(Column(title, "left") for title in titles), *columns], cells)


@paged
def faults(
    page: Page, error: OrchestratorError, *, summary: bool = True
) -> Iterator[RenderableType]:
    """An error as the user is to read it; a recipe's faults one by one, with file and line.

    Args:
        page: Where it is laid out.
        error: Of any kind.
        summary: Whether to say first how many faults of a recipe there are.
    """
    if not isinstance(error, RecipeError):
        yield page.block(str(error), BAD)
        return
    n = len(error.faults)
    if summary:
        yield page.words(f"{numbers.count(n)} error{'s' if n != 1 else ''} in the recipe", BAD)
    for fault in error.faults:
        line = f"{fault.line}:" if fault.line else ""
        place = page.data(f"{fault.file}:{line}", None, HEADING)
        yield Text.assemble(place, " ", page.block(fault.message), overflow="fold")


@paged
def listing(page: Page, rows: Sequence[tuple[str, str]]) -> Iterator[RenderableType]:
    """Names with one line each, such as the methods there are."""
    names = max((page.name(name).cell_len for name, _ in rows), default=0)
    names = min(names, _MAX_NAME, page.width // 2)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for name, text in rows:
        grid.add_row(page.name(name, names, HEADING), page.prose(text))
    yield grid


@paged
def runs(page: Page, rows: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Runs in a folder.

    Args:
        page: Where they are laid out.
        rows: One mapping a run with `path`, and where known `state` (a word), `units_done`,
            `units_total`, `units_failed`, `size` (bytes) and `age_s` (seconds).
    """
    if not rows:
        yield page.words("no runs found", FAINT)
        return
    columns = [
        Column("state", "left"), Column("units done"), Column("failed"), Column("size"),
        Column("written"),
    ]  # fmt: skip
    cells = []
    for row in rows:
        failed = row.get("units_failed")
        value = row.get("size")
        age = numbers.duration(row.get("age_s"))
        cells.append([
            page.data(str(row.get("state", "")), 12),
            page.cell(f"{_count(row.get('units_done'))} of {_count(row.get('units_total'))}"),
            page.cell(_count(failed), BAD if failed else FAINT),
            page.cell(numbers.UNDEFINED if value is None else numbers.size(value)),
            page.cell("" if age == numbers.UNDEFINED else f"{age} ago"),
        ])  # fmt: skip
    yield _named(page, ["run"], [[str(row["path"])] for row in rows], columns, cells)


def _count(value: int | None) -> str:
    return numbers.UNDEFINED if value is None else numbers.count(value)


@paged
def status(page: Page, values: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The last state a run wrote about itself.

    Args:
        page: Where it is laid out.
        values: The fields of `Progress`, and where known `is_alive` and `age_s` (since it was
            written, in seconds).

    Raises:
        msgspec.ValidationError: If fields of `Progress` are missing.
    """
    progress = msgspec.convert(dict(values), Progress)
    left = progress.units_left
    age = numbers.duration(values.get("age_s"))
    if values.get("is_alive", True):
        going = "paused" if progress.paused else "running"
        state = page.words("stopping" if progress.stopping else going, f"{HEADING} {GOOD}")
    elif left:
        state = page.words(f"stopped {age} ago", f"{HEADING} {DOUBTFUL}")
    else:
        state = page.words(f"finished {age} ago", HEADING)
    yield Text.assemble(page.data(progress.run_dir, page.width // 2, HEADING), ": ", state)
    yield from page.flow(_unit_parts(page, progress, left))
    yield from page.flow(_request_parts(page, progress))
    yield Text("")
    yield _models(page, progress.models)


# What a probe of a model found.


_STYLES: Final = {
    record.GOOD: GOOD,
    record.WARNING: DOUBTFUL,
    record.BAD: BAD,
    record.UNKNOWN: FAINT,
    EXACT: GOOD,
    BOUNDED: DOUBTFUL,
    NOT_KNOWN: FAINT,
    IMPOSSIBLE: BAD,
}
_SHORT: Final = frozenset({"question", "answer", "numbers"})


def probe(title: str, findings: Sequence[Finding], verdicts: Sequence[Verdict]) -> RenderableType:
    """Both tables of one model.

    Args:
        title: Model and server.
        findings: What the server does.
        verdicts: What methods can do with it.
    """
    found = _table("question", "answer", "observed")
    for one in findings:
        seen = Text(safe_line(one.said))
        if one.remedy:
            seen.append(f"\n→ {safe_line(one.remedy)}", FAINT)
        name = Text(safe_line(one.name.replace("_", " ")))
        found.add_row(name, Text(safe_line(one.value), _STYLES[one.state]), seen)
    can = _table("numbers", "methods", "why")
    alike: dict[tuple[str, str, str], list[str]] = {}
    order = (EXACT, BOUNDED, NOT_KNOWN, IMPOSSIBLE)
    for judged in sorted(verdicts, key=lambda one: order.index(one.verdict)):
        why = judged.why if judged.verdict != EXACT else ""
        alike.setdefault((judged.verdict, why, judged.remedy), []).append(judged.method)
    for (word, why, remedy), methods in alike.items():
        said = Text(safe_line(why))
        if remedy:
            said.append(f"\n→ {safe_line(remedy)}", FAINT)
        can.add_row(Text(word, _STYLES[word]), Text(safe_line(", ".join(methods))), said)
    return Group(Text(safe_line(title), HEADING), found, Text(""), can, Text(""))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style=FAINT)
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name in _SHORT)
    return table
