"""Reports of a call: its plan, its work, and its failures, without the results."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator import numbers
from orchestrator.errors import OrchestratorError, RecipeError
from orchestrator.report.page import BAD, DOUBTFUL, FAINT, GOOD, HEADING, Column, Page, Paged, paged
from orchestrator.report.planned import Plan, StageCount
from orchestrator.report.progress import ModelProgress, Progress

_MAX_NAME: Final = 32
_MIN_NAME: Final = 8
_WIDE: Final = 80
_TOKENS_FROM: Final = 72
_GAP: Final = 2
# Columns of a terminal that a plan's numbers take, its tokens, and its methods.
_NUMBERS: Final = 40
_TOKENS: Final = 16
_MAX_METHOD: Final = 16
_TOTAL: Final = "total"


class _Shown(NamedTuple):
    """Layout of a plan's rows: most characters of a name, and which columns there are."""

    names: int
    methods: bool
    tokens: bool


@paged
def plan_table(page: Page, count: Plan) -> Iterator[RenderableType]:
    """Tabulate the requests of a run, stage by stage, with sums and the limits of the numbers."""
    yield page.heading("Plan")
    parts = [f"{numbers.count(count.n_items)} items", f"{numbers.count(count.n_units)} units"]
    yield from page.flow(parts)
    yield Text("")
    yield _stages(page, count.stages)
    yield Text("")
    if count.left == 0:
        who = "the store, or another run," if count.reused else "the store"
        yield page.words(f"Nothing to request: {who} holds every outcome.", GOOD)
    elif count.money is not None:
        yield page.words(f"Money: at most {numbers.money(count.money)}")
    else:
        yield page.words("Money: unknown because a queried model has no price", FAINT)
    if count.duration is not None and count.left:
        yield page.prose(count.duration.words(), "" if count.duration.low_s else FAINT)
    if count.at_least is not None and count.left:
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


def _stages(page: Page, stages: Sequence[StageCount]) -> Table:
    rows_of = Counter((stage.name, stage.model) for stage in stages)
    # Rows that are alike in both would not say which method they are of.
    methods = any(n > 1 for n in rows_of.values())
    tokens = page.width >= _TOKENS_FROM + methods * _MAX_METHOD
    columns = [Column("stage", "left"), Column("model", "left"), Column("requests")]
    columns += [Column("held"), Column("to request")]
    if methods:
        columns.insert(0, Column("method", "left"))
    if tokens:
        columns.append(Column("tokens to generate"))
    room = (page.width - (_NUMBERS + _TOKENS if tokens else _NUMBERS)) // (2 + methods)
    shown = _Shown(min(max(_MIN_NAME, room), _MAX_NAME), methods=methods, tokens=tokens)
    rows = [_stage(page, stage, shown) for stage in stages]
    if len(stages) > 1:
        rows.append([Text("")])
        total = StageCount(
            name="" if methods else _TOTAL,
            model="",
            total=sum(stage.total for stage in stages),
            held=sum(stage.held for stage in stages),
            left=sum(stage.left for stage in stages),
            exact=all(stage.exact for stage in stages),
            max_tokens=sum(stage.max_tokens for stage in stages),
            method=_TOTAL,
        )
        rows.append(_stage(page, total, shown))
    return page.table(columns, rows)


def _stage(page: Page, stage: StageCount, shown: _Shown) -> list[RenderableType]:
    row: list[RenderableType] = [
        page.name(stage.name, shown.names),
        page.name(stage.model, shown.names, HEADING),
        page.cell(numbers.at_most(stage.total, exact=stage.exact)),
        page.cell(numbers.count(stage.held), "" if stage.held else FAINT),
        page.cell(numbers.at_most(stage.left, exact=stage.exact), HEADING if stage.left else FAINT),
    ]
    if shown.methods:
        row.insert(0, page.name(stage.method, shown.names))
    if shown.tokens:
        tokens = numbers.at_most(stage.max_tokens, exact=False)
        row.append(page.cell(tokens, "" if stage.max_tokens else FAINT))
    return row


@paged
def run_summary(page: Page, progress: Progress | None, n_left: int) -> Iterator[RenderableType]:
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
    yield Text.assemble(ended, page.words(f" in {numbers.duration(progress.elapsed_s)}"))
    yield from page.flow(_unit_parts(page, progress, n_left))
    yield from page.flow(_request_parts(page, progress))
    if progress.failures:
        order = sorted(progress.failures.items(), key=lambda pair: (-pair[1], pair[0]))
        parts: list[Text | str] = [page.words("failed units", BAD)]
        parts += [page.data(f"{cause} {numbers.count(n)}", None, BAD) for cause, n in order]
        yield from page.flow(parts)
    yield Text("")
    yield _models(page, progress.models)
    yield from _limits(page, progress.models)
    if n_left:
        yield page.words("All answers are saved; resume with the same command.", FAINT)


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
    tokens_in = sum(model.prompt_tokens for model in progress.models)
    tokens_out = sum(model.completion_tokens for model in progress.models)
    parts: list[Text | str] = [
        f"{numbers.count(progress.requests_sent)} requests sent",
        f"{numbers.count(progress.asks_found)} found in the store",
        *(
            Text.assemble(f"{numbers.count(n)} copied from ", page.data(run, page.width // 2))
            for run, n in progress.asks_copied.items()
        ),
        f"{numbers.count(progress.asks_joined)} joined to requests in flight",
        f"{numbers.compact(tokens_in)} tokens in",
        f"{numbers.compact(tokens_out)} out",
    ]
    if progress.elapsed_s > 0 and ended and progress.requests_sent:
        parts.append(f"{numbers.speed(ended / progress.elapsed_s)} requests/s")
    if progress.money is not None:
        parts.append(f"{numbers.money(progress.money)} spent in all calls")
    return parts


def _limits(page: Page, models: Sequence[ModelProgress]) -> Iterator[RenderableType]:
    """Yield the limit on requests in flight of each model whose limit changed."""
    changed = [model for model in models if model.limits.n_changes]
    if not changed:
        return
    parts: list[Text | str] = [page.words("concurrent requests", FAINT)]
    for model in changed:
        n = model.limits.n_changes
        name = page.name(model.name, _MAX_NAME)
        way = f"{numbers.count(model.limits.first)} → {numbers.count(model.limit)}"
        times = "change" if n == 1 else "changes"
        parts.append(Text.assemble(name, page.words(f" {way} in {numbers.count(n)} {times}")))
    yield from page.flow(parts)


def _models(page: Page, models: Sequence[ModelProgress]) -> RenderableType:
    wide = page.width >= _WIDE
    columns = [Column("model", "left"), Column("answered"), Column("failed"), Column("retried")]
    if wide:
        columns += [Column("tokens in"), Column("tokens out"), Column("", "left")]
    names = max(_MIN_NAME, min(_MAX_NAME, page.width - (70 if wide else 30)))
    rows = []
    for model in models:
        row: list[RenderableType] = [
            page.name(model.name, names, HEADING),
            page.cell(numbers.count(model.done)),
            page.cell(numbers.count(model.failed), BAD if model.failed else FAINT),
            page.cell(numbers.count(model.retried), DOUBTFUL if model.retried else FAINT),
        ]
        if wide:
            row += [
                page.cell(numbers.count(model.prompt_tokens)),
                page.cell(numbers.count(model.completion_tokens)),
                page.cell(model.state if model.state in {"down", "dead"} else "", BAD),
            ]
        rows.append(row)
    return page.table(columns, rows)


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
            `units_total`, `units_failed` and `size` (bytes).
    """
    if not rows:
        yield page.words("no runs found", FAINT)
        return
    columns = [Column("run", "left"), Column("state", "left"), Column("units done")]
    columns += [Column("failed"), Column("size")]
    cells = []
    for row in rows:
        failed = row.get("units_failed")
        value = row.get("size")
        cells.append([
            page.data(str(row.get("state", "")), 12),
            page.cell(f"{_count(row.get('units_done'))} of {_count(row.get('units_total'))}"),
            page.cell(_count(failed), BAD if failed else FAINT),
            page.cell(numbers.UNDEFINED if value is None else numbers.size(value)),
        ])  # fmt: skip
    # The path has what the other columns leave.
    widths = [
        max(len(column.heading), *(row[index].cell_len for row in cells))
        for index, column in enumerate(columns[1:])
    ]
    names = max(_MIN_NAME, page.width - sum(widths) - _GAP * len(columns))
    cells = [
        [page.name(str(row["path"]), names, HEADING), *rest]
        for row, rest in zip(rows, cells, strict=True)
    ]
    yield page.table(columns, cells)


def _count(value: int | None) -> str:
    return numbers.UNDEFINED if value is None else numbers.count(value)


def status(values: Mapping[str, object]) -> RenderableType:
    """The last state a run wrote about itself.

    Args:
        values: The fields of `Progress`, and where known `is_alive` and `age_s` (since it was
            written, in seconds).

    Raises:
        msgspec.ValidationError: If fields of `Progress` are missing.
    """
    progress = msgspec.convert(dict(values), Progress)
    return Paged(lambda page: _status(page, progress, values))


def _status(page: Page, progress: Progress, values: Mapping[str, Any]) -> Iterator[RenderableType]:
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
    yield from _limits(page, progress.models)
