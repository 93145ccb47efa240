"""Painters of a display that write lines for logs and programs, or the output of a notebook's cell.

`docs/display.md` describes what they write.
"""

import importlib
import json
from html import escape
from typing import Any, Final, TextIO

import msgspec

from orchestrator import numbers
from orchestrator.records import Standing
from orchestrator.report.progress import (
    ModelProgress,
    Pace,
    Progress,
    RankingProgress,
    Rates,
    foremost,
)
from orchestrator.report.text import isolated, own_words, safe_line, safe_name
from orchestrator.tables import counted_words

# A plain log gets a line this often while nothing changes its state, seconds.
_LINE_S: Final = 10.0
# And one for the ranking that forms.
_RANKING_S: Final = 60.0
_NAME_WIDTH: Final = 40
# Models in a line.
_MAX_MODELS: Final = 8
_SEPARATOR: Final = " · "


class Display:
    """A display of a run; this one shows nothing.

    All calls return at once and raise nothing; those of a painter, which runs in a thread of its
    own, may block and raise.

    Attributes:
        min_gap_s: Seconds between two updates at least.
    """

    min_gap_s = 0.0

    def start(self, title: str, total: int) -> None:
        """Begin: the run's title and its number of units."""

    def update(self, progress: Progress) -> None:
        """Show the run's state; only the latest one counts."""

    def note(self, text: str) -> None:
        """Show a message; it may come from outside."""

    def stop(self) -> None:
        """End, leaving the terminal as it was; may be called twice."""


class PlainPainter(Display):
    """A line each ten seconds and one for each change of state."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        encoding = getattr(stream, "encoding", None) or "utf-8"
        self._ascii_only = not encoding.lower().replace("-", "").startswith("utf")
        self._pace = Pace()
        self._last: Progress | None = None
        self._last_line_s = 0.0
        self._last_ranking_s = 0.0

    def start(self, title: str, total: int) -> None:
        """The heading."""
        self._write(f"{safe_line(title)}: {numbers.count(total)} units")

    def update(self, progress: Progress) -> None:
        """Print changes, and the numbers when they are due."""
        self._pace.add(progress)
        at = f"[{numbers.clock(progress.elapsed_s)}] "
        for line in self._changes(progress):
            self._write(at + line)
        if progress.elapsed_s - self._last_line_s >= _LINE_S:
            self._numbers(progress)
        self._last = progress

    def note(self, text: str) -> None:
        """A message, its lines one by one."""
        at = "" if self._last is None else f"[{numbers.clock(self._last.elapsed_s)}] "
        for line in text.splitlines():
            self._write(at + safe_line(line, ascii_only=self._ascii_only))

    def stop(self) -> None:
        """The last numbers, if they were not shown."""
        if self._last is not None and self._last.elapsed_s != self._last_line_s:
            self._numbers(self._last)

    def _changes(self, progress: Progress) -> list[str]:
        last = self._last
        states = {} if last is None else {model.name: model.state for model in last.models}
        lines = []
        for model in progress.models:
            before = states.get(model.name, "idle")
            if model.state != before:
                name = _name(model.name, ascii_only=self._ascii_only)
                lines.append(f"{name}: {before} → {model.state}")
        if progress.stopping and not (last is not None and last.stopping):
            n_in_flight = sum(model.in_flight for model in progress.models)
            lines.append(
                f"stopping: {safe_line(progress.stopping)}; "
                f"{numbers.count(n_in_flight)} requests in flight"
            )
        if progress.paused != (last is not None and last.paused):
            lines.append("paused" if progress.paused else "resumed")
        return lines

    def _numbers(self, progress: Progress) -> None:
        self._last_line_s = progress.elapsed_s
        parts = [*unit_parts(progress), *rate_parts(self._pace.rates())]
        if not (progress.stopping or progress.paused):
            parts.append(f"ETA {numbers.duration(self._pace.eta_s())}")
        parts += numbers.spent(progress.money, progress.bound)
        asked = [model for model in progress.models if model.state != "idle"]
        shown = foremost(asked, _MAX_MODELS)
        parts += map(self._model, shown)
        if left := len(asked) - len(shown):
            parts.append(f"and {numbers.counted(left, 'more model')}")
        at = f"[{numbers.clock(progress.elapsed_s)}] "
        self._write(at + _SEPARATOR.join(parts))
        if progress.elapsed_s - self._last_ranking_s >= _RANKING_S:
            self._last_ranking_s = progress.elapsed_s
            for ranking in progress.rankings:
                self._write(at + self._ranking(ranking))

    def _ranking(self, ranking: RankingProgress) -> str:
        names = (ranking.method, *(one.model for one in ranking.standings))
        method, *models = (_name(name, ascii_only=self._ascii_only) for name in names)
        parts = [f"{method} {ranking_words(ranking, ascii_only=self._ascii_only)}"]
        pairs = zip(models, ranking.standings, strict=True)
        return _SEPARATOR.join(parts + [f"{model} {standing(one)}" for model, one in pairs])

    def _model(self, model: ModelProgress) -> str:
        name = _name(model.name, ascii_only=self._ascii_only)
        text = f"{name} {numbers.count(model.in_flight)}/{numbers.count(model.limit)} in flight"
        if model.queued:
            text += f", {numbers.count(model.queued)} queued"
        if model.state != "ready":
            text += f", {model.state}"
        return text

    def _write(self, line: str) -> None:
        self._stream.write(own_words(line, ascii_only=self._ascii_only) + "\n")
        self._stream.flush()


def _name(name: str, *, ascii_only: bool) -> str:
    return isolated(safe_name(name, _NAME_WIDTH, ascii_only=ascii_only))


def unit_parts(progress: Progress) -> list[str]:
    """Return the counts of units by state, in words; zeros are left out."""
    finished = progress.units_stored + progress.units_done
    parts = [f"{numbers.count(finished)} of {numbers.count(progress.units_total)} units"]
    named = (
        (progress.units_stored, "stored"),
        (progress.units_failed, "failed"),
        (progress.units_not_needed, "not needed"),
        (progress.units_open, "open"),
        (progress.units_aside, "set aside"),
    )
    parts += [f"{numbers.count(number)} {what}" for number, what in named if number]
    return parts


def rate_parts(rates: Rates) -> list[str]:
    """Rates in words; those that are unknown are left out."""
    units = ("requests/s", "tokens/s in", "tokens/s out")
    known = zip(rates, units, strict=True)
    return [f"{numbers.speed(rate)} {unit}" for rate, unit in known if rate is not None]


def ranking_words(ranking: RankingProgress, *, ascii_only: bool) -> str:
    """Describe the basis of a forming ranking; first of all, judges that are not to be trusted."""
    words = f"after {counted_words(ranking.n_prompts, ranking.n_clusters)}"
    if ranking.untrusted:
        names = (
            _name(judge, ascii_only=ascii_only) if judge else "the judge"
            for judge in ranking.untrusted
        )
        pairs = zip(names, ranking.reasons, strict=True)
        said = "; ".join(map(" ".join, pairs))
        words = f"untrusted ({said}), {words}"
    return f"{words}, ± not adjusted for stopping" if ranking.stops_early else words


def standing(one: Standing) -> str:
    """A rating with its 95 % interval."""
    rating = numbers.UNDEFINED if one.rating is None else numbers.count(round(one.rating))
    return (
        rating if one.half_width is None else f"{rating} ± {numbers.count(round(one.half_width))}"
    )


class JsonPainter(Display):
    """One JSON object a line, ASCII only."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._pace = Pace()

    def start(self, title: str, total: int) -> None:
        """`{"event": "start"}`."""
        self._write("start", title=title, total=total)

    def update(self, progress: Progress) -> None:
        """`{"event": "progress"}`."""
        self._pace.add(progress)
        requests, tokens_in, tokens_out = self._pace.rates()
        self._write(
            "progress",
            **msgspec.to_builtins(progress),
            requests_per_s=_rounded(requests),
            prompt_tokens_per_s=_rounded(tokens_in),
            completion_tokens_per_s=_rounded(tokens_out),
            eta_s=_rounded(self._pace.eta_s()),
        )

    def note(self, text: str) -> None:
        """`{"event": "note"}`."""
        self._write("note", text=text)

    def stop(self) -> None:
        """`{"event": "stop"}`."""
        self._write("stop")

    def _write(self, event: str, **fields: object) -> None:
        self._stream.write(event_line(event, **fields))
        self._stream.flush()


def event_line(event: str, **fields: object) -> str:
    """Return an event as a line of JSON.

    It is ASCII: a terminal obeys nothing in it, and every encoding has it.
    """
    return json.dumps({"event": event, **fields}, allow_nan=False) + "\n"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


_MIN_GAP_S: Final = 0.5
_MAX_NOTES: Final = 20
# Nothing of HTML but this: notebooks that are not trusted strip the rest.
_BAR: Final = '<progress value="{done}" max="{total}" style="width: 60%"></progress>'


class NotebookPainter(Display):
    """Replaces an output of the cell that makes it, at most twice a second."""

    min_gap_s = _MIN_GAP_S

    def __init__(self) -> None:
        self._pace = Pace()
        self._title = ""
        self._total = 0
        self._progress: Progress | None = None
        self._notes: list[str] = []
        # Of IPython, which is there in a notebook and nowhere needed else.
        display: Any = importlib.import_module("IPython.display")
        self._output = display.display(self._shown(), raw=True, display_id=True)

    def start(self, title: str, total: int) -> None:
        """An empty bar."""
        self._title, self._total = title, total
        self.stop()

    def update(self, progress: Progress) -> None:
        """A new state."""
        self._progress = progress
        self._pace.add(progress)
        self.stop()

    def note(self, text: str) -> None:
        """A message under the bar; before the bar it stands alone."""
        self._notes = [*self._notes, *map(safe_line, text.splitlines())][-_MAX_NOTES:]
        self.stop()

    def stop(self) -> None:
        """The last state stays."""
        self._output.update(self._shown(), raw=True)

    def _shown(self) -> dict[str, str]:
        """The state as HTML, and as text for front ends without it."""
        bar = ""
        lines: list[str] = []
        if (progress := self._progress) is not None:
            total = max(1, progress.units_total - progress.units_not_needed)
            bar = _BAR.format(done=progress.units_stored + progress.units_done, total=total)
            parts = [*unit_parts(progress), numbers.clock(progress.elapsed_s)]
            eta_s = self._pace.eta_s()
            if progress.stopping:
                parts.append(f"stopping: {safe_line(progress.stopping)}")
            elif progress.units_left and eta_s is not None:
                parts.append(f"ETA {numbers.duration(eta_s)}")
            lines.append(" · ".join(parts))
            lines += [
                f"{safe_line(model.name)}: {model.state}, {numbers.count(model.done)} requests"
                for model in progress.models
            ]
        elif self._total:
            lines.append(f"{numbers.count(self._total)} units")
        lines += self._notes
        html = [f"<b>{escape(safe_line(self._title))}</b>", bar, *map(escape, lines)]
        return {
            "text/html": "<br>".join(part for part in html if part),
            "text/plain": "\n".join([safe_line(self._title), *lines]),
        }
