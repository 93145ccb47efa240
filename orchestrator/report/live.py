"""The live display, redrawn in place, and the bar of a command that reads a whole run."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TextIO

from rich import progress as rich_progress
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from orchestrator import numbers
from orchestrator.report.lines import Display, ranking_words, rate_parts, standing, unit_parts
from orchestrator.report.page import (
    ACCENT,
    BAD,
    DOUBTFUL,
    FAINT,
    GOOD,
    HEADING,
    Column,
    Page,
    Paged,
    make_console,
    paged,
)
from orchestrator.report.progress import ModelProgress, Pace, Progress, foremost
from orchestrator.report.text import is_quiet, safe_line, write_to

# Between two lines, and between two looks of a bar, seconds.
_EVERY_S: Final = 10.0
_AT_ONCE_S: Final = 0.25

Advance = Callable[[int], None]
"""Called with how much more is done."""


@contextmanager
def progress(what: str, total: int | None, stream: TextIO | None = None) -> Iterator[Advance]:
    """Show how far a task is while the block runs, on stderr; nothing remains of a bar.

    Args:
        what: Task and unit, such as "counting items".
        total: How much there is; None where that is not known.
        stream: Instead of stderr.
    """
    stream = sys.stderr if stream is None else stream
    if is_quiet():
        yield lambda _: None
        return
    if not stream.isatty():
        of = "" if total is None else f" of {total:,}"
        yield _seldom(
            lambda done: write_to(stream, f"{what}: {done:,}{of}\n"), _EVERY_S, time.monotonic()
        )
        return
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
    )
    bar = rich_progress.Progress(
        *columns, rich_progress.TimeRemainingColumn(), console=Console(file=stream), transient=True
    )
    with bar:
        task = bar.add_task(what, total=total)
        yield _seldom(lambda done: bar.update(task, completed=done), _AT_ONCE_S)


def _seldom(show: Callable[[int], object], every_s: float, last: float = 0.0) -> Advance:
    """Add up what is done, and show it so often at most: drawing takes longer than counting."""
    done = 0

    def add(n: int) -> None:
        nonlocal done, last
        done += n
        if time.monotonic() - last >= every_s:
            last = time.monotonic()
            show(done)

    return add


_MIN_GAP_S: Final = 0.25
# Numbers in a model's line, and widths from which they fit.
_COLUMNS: Final = {
    "queued": 0, "done": 0, "failed": 72, "retried": 72, "req/s": 0, "tok/s in": 92,
    "tok/s out": 92, "at server": 112, "cached": 112,
}  # fmt: skip
_MIN_NAME: Final = 8
_MAX_NAME: Final = 32
_MAX_BAR: Final = 100
# What stands behind the bar, at its longest.
_SHARE: Final = "  100.0 %"
# Lines of one part of the frame where the window ends.
_MAX_LINES: Final = 4
# Figures under a heading, at most as a rule: a column does not change its width with them.
_FIGURES: Final = 5

_KEEP: Final = "Press Ctrl-C to stop; all answers are saved. Resume with the same command."
_STOPPING: Final = "Press Ctrl-C again to abandon requests in flight. Resume with the same command."

_PAUSED: Final = "Paused. Continue with `orchestrator resume`."

# Columns of the state: a mark, its longest word, and the gaps around it.
_STATE: Final = 14
_GAP: Final = 2
_STATE_STYLES: Final = {
    "idle": FAINT,
    "starting": DOUBTFUL,
    "ready": GOOD,
    "down": DOUBTFUL,
    "dead": BAD,
}


class LivePainter(Display):
    """Redraws a frame, at most four times a second."""

    min_gap_s = _MIN_GAP_S

    def __init__(self, stream: TextIO) -> None:
        self._console = make_console(stream)
        self._ascii_only = self._console.options.ascii_only
        # The frame goes when the run ends: a summary takes its place.
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._pace = Pace()
        self._title = ""

    def start(self, title: str, total: int) -> None:
        """An empty frame."""
        self._title = title
        self._live.start()
        units = f"{numbers.count(total)} units"
        begun = Paged(
            lambda page: (page.data(title, page.width, HEADING), page.words(units, FAINT))
        )
        self._live.update(begun, refresh=True)

    def update(self, progress: Progress) -> None:
        """A new frame."""
        self._pace.add(progress)
        self._live.update(frame(self._title, progress, self._pace), refresh=True)

    def note(self, text: str) -> None:
        """A message above the frame."""
        for line in text.splitlines():
            self._console.print(Text(safe_line(line, ascii_only=self._ascii_only)))

    def stop(self) -> None:
        """Take the frame away."""
        # rich draws the last frame whole, also what the window cuts off, and can't erase that.
        self._live.update(Text(""))
        self._live.stop()


@paged
def frame(page: Page, title: str, progress: Progress, pace: Pace) -> Iterator[RenderableType]:
    """The whole picture of a run at one moment; on a terminal never higher than its window."""
    above = [*_above(page, title, progress, pace), Text("")]
    below = [Text(""), *_below(page, progress)]
    # A frame that is higher than the window can't be redrawn: its lines would stay behind.
    taken = _length(page, above) + _length(page, below) + 1
    most = len(progress.models) if page.height is None else max(1, page.height - taken)
    yield from above
    yield from _models(page, progress.models, pace, most)
    yield from below


def _above(page: Page, title: str, progress: Progress, pace: Pace) -> Iterator[Text]:
    """The lines above the models: the clock, how far the run is, and what was sent."""
    clock = numbers.clock(progress.elapsed_s)
    is_ending = progress.stopping or progress.paused or progress.units_left <= 0
    eta_s = None if is_ending else pace.eta_s()
    right = clock if eta_s is None else f"{clock} · ETA {numbers.duration(eta_s)}"
    end = page.cell(right)
    left = page.data(title, max(0, page.width - end.cell_len - 2), HEADING)
    gap = max(1, page.width - left.cell_len - end.cell_len)
    yield Text.assemble(left, " " * gap, end, no_wrap=True, overflow="crop")
    yield _bar(page, progress)
    yield from page.flow(unit_parts(progress))
    sent = [
        *rate_parts(pace.rates()),
        f"{numbers.count(progress.requests_sent)} sent",
        f"{numbers.count(progress.asks_found)} from the store",
    ]
    if progress.asks_copied:
        sent.append(f"{numbers.count(sum(progress.asks_copied.values()))} copied")
    if progress.asks_joined:
        sent.append(f"{numbers.count(progress.asks_joined)} joined")
    sent += numbers.spent(progress.money, progress.bound)
    yield from page.flow(sent, style=FAINT)
    stages: list[Text | str] = []
    for stage in progress.stages if len(progress.stages) > 1 else ():
        ended = f" {numbers.count(stage.stored + stage.done)} of {numbers.count(stage.total)}"
        failed = f", {numbers.count(stage.failed)} failed" if stage.failed else ""
        name = page.name(stage.name, page.width // 2, FAINT)
        stages.append(Text.assemble(name, page.cell(ended, FAINT), page.cell(failed, BAD)))
    yield from _first(page, page.flow(stages, style=FAINT))


def _below(page: Page, progress: Progress) -> Iterator[Text]:
    """The lines below the models: rankings that form, failures, and what Ctrl-C does."""
    few = None if page.height is None else max(1, page.height // (2 * _MAX_LINES))
    names = page.width // 2
    for ranking in progress.rankings[:few]:
        style = f"{HEADING} {BAD}" if ranking.untrusted else FAINT
        after = page.words(f" {ranking_words(ranking, ascii_only=page.ascii_only)}", style)
        ranked = [
            Text.assemble(page.name(one.model, names), " ", page.cell(standing(one)))
            for one in ranking.standings
        ]
        method = Text.assemble(page.name(ranking.method, names, HEADING), after)
        yield from _first(page, page.flow([method, *ranked]))
    if progress.failures:
        order = sorted(progress.failures.items(), key=lambda pair: (-pair[1], pair[0]))
        causes = (f"{cause} {numbers.count(n)}" for cause, n in order)
        shown = (page.data(cause, page.width // 2, BAD) for cause in causes)
        yield from _first(page, page.flow([page.words("Failed units", BAD), *shown]))
    if progress.stopping:
        n_in_flight = sum(model.in_flight for model in progress.models)
        parts: list[Text | str] = [
            page.data(f"Stopping: {progress.stopping}", page.width, DOUBTFUL),
            page.words(f"{numbers.count(n_in_flight)} requests in flight", DOUBTFUL),
        ]
        yield from page.flow(parts)
    elif progress.paused:
        yield page.words(_PAUSED, DOUBTFUL)
    yield page.words(_STOPPING if progress.stopping else _KEEP, FAINT)


def _first(page: Page, lines: list[Text]) -> list[Text]:
    """The first lines, as many as one part of the frame may have in a window."""
    return lines if page.height is None else lines[:_MAX_LINES]


def _length(page: Page, lines: Sequence[Text]) -> int:
    """Lines of the terminal; what wraps at words takes at most one line more than its columns."""
    return sum(
        1 if line.cell_len <= page.width else 1 + -(-line.cell_len // page.width) for line in lines
    )


def _bar(page: Page, progress: Progress) -> Text:
    """Stored, done and failed units as shares of all; nothing that exists has no cell."""
    width = min(page.width - len(_SHARE), _MAX_BAR)
    total = max(1, progress.units_total - progress.units_not_needed)
    done = progress.units_done - progress.units_failed
    cells: list[int] = []
    sum_before = 0
    left = total - progress.units_stored - progress.units_done
    parts = (progress.units_stored, done, progress.units_failed, left)
    for part in parts[:-1]:
        end = (sum_before + part) * width // total
        room = width - sum(cells) - sum(later > 0 for later in parts[len(cells) + 1 :])
        cells.append(max(0, min(max(end - sum(cells), int(part > 0)), room)))
        sum_before += part
    share = (progress.units_stored + progress.units_done) / total
    drawn = [*zip("╍━┅", cells, (ACCENT, GOOD, BAD), strict=True), ("─", width - sum(cells), FAINT)]
    return Text.assemble(
        *(page.cell(sign * n, style) for sign, n, style in drawn),
        # Rounded down: 100 % is said when all is done, not before.
        page.cell(f"  {int(1000 * share) / 10:.1f} %", HEADING),
        no_wrap=True,
        overflow="crop",
    )


def _models(
    page: Page, models: Sequence[ModelProgress], pace: Pace, most: int
) -> Iterator[RenderableType]:
    """The models that fit, and a line about the others."""
    columns = [Column("model", "left"), Column("state", "left"), Column("in flight")]
    fitting = (heading for heading, least in _COLUMNS.items() if page.width >= least)
    columns += [Column(heading.rjust(_FIGURES)) for heading in fitting]
    shown = models if len(models) <= most else foremost(models, max(1, most - 1))
    others = _STATE + sum(len(column.heading) + _GAP for column in columns[2:])
    longest = max((page.name(model.name).cell_len for model in models), default=0)
    width = max(_MIN_NAME, min(longest, _MAX_NAME, page.width - others))
    names = page.names((model.name for model in models), width)
    rows = [_row(page, names[model.name], model, pace) for model in shown]
    yield page.table(columns, rows)
    if left := [model for model in models if model not in shown]:
        states = Counter(model.state for model in left)
        counts = ", ".join(f"{n} {state}" for state, n in states.items())
        words = f"and {numbers.counted(len(left), 'more model')}: {counts}"
        yield page.data(words, page.width, FAINT)


def _row(page: Page, name: str, model: ModelProgress, pace: Pace) -> list[RenderableType]:
    mark = {"idle": "○", "dead": "✕"}.get(model.state, "●")
    waiting = numbers.UNDEFINED if model.waiting is None else numbers.compact(model.waiting)
    cached = numbers.UNDEFINED if model.cache_hits is None else f"{model.cache_hits:.0%}"
    cells = [
        _count(page, model.queued),
        _count(page, model.done),
        _count(page, model.failed, BAD),
        _count(page, model.retried, DOUBTFUL),
        *(page.cell(numbers.speed(rate)) for rate in pace.rates(model.name)),
        page.cell(waiting, FAINT),
        page.cell(cached, FAINT),
    ]
    return [
        page.cell(name, HEADING),
        page.cell(f"{mark} {model.state}", _STATE_STYLES.get(model.state, "")),
        page.cell(f"{numbers.compact(model.in_flight)}/{numbers.compact(model.limit)}"),
        *(one for one, least in zip(cells, _COLUMNS.values(), strict=True) if page.width >= least),
    ]


def _count(page: Page, number: int, style: str = "") -> Text:
    """A count; zeros step back."""
    return page.cell(numbers.compact(number), style if number else FAINT)
