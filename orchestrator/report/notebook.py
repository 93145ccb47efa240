"""The display in a notebook: one cell output with a progress bar, replaced as the run goes on."""

import importlib
from html import escape
from typing import Any, Final, TextIO

from orchestrator import numbers
from orchestrator.report.display import ThreadedDisplay
from orchestrator.report.lines import unit_parts
from orchestrator.report.pace import Pace
from orchestrator.report.progress import Progress
from orchestrator.report.text import safe_line

_MIN_GAP_S: Final = 0.5
_MAX_NOTES: Final = 20
# Nothing of HTML but this: notebooks that are not trusted strip the rest.
_BAR: Final = '<progress value="{done}" max="{total}" style="width: 60%"></progress>'


class NotebookDisplay(ThreadedDisplay):
    """Shows a run in the output of the cell that started it."""

    def __init__(self, stream: TextIO) -> None:
        self._painter = NotebookPainter()
        super().__init__(lambda _: self._painter, stream)

    def start(self, title: str, total: int) -> None:
        """Begin: the output is made here, in the thread that belongs to the cell."""
        self._painter.open()
        super().start(title, total)


class NotebookPainter:
    """Replaces the output of a cell at most twice a second."""

    min_gap_s = _MIN_GAP_S

    def __init__(self) -> None:
        self._pace = Pace()
        self._title = ""
        self._total = 0
        self._progress: Progress | None = None
        self._notes: list[str] = []
        # Of IPython, which is there in a notebook and nowhere needed else.
        self._output: Any = None

    def open(self) -> None:
        """Make the output."""
        if self._output is None:
            display = importlib.import_module("IPython.display")
            self._output = display.display(self._bundle(), raw=True, display_id=True)

    def start(self, title: str, total: int) -> None:
        """An empty bar."""
        self._title, self._total = title, total
        self._show()

    def update(self, progress: Progress) -> None:
        """A new state."""
        self._progress = progress
        self._pace.add(progress)
        self._show()

    def note(self, text: str) -> None:
        """A message under the bar; before the bar it stands alone."""
        self._notes = [*self._notes, *map(safe_line, text.splitlines())][-_MAX_NOTES:]
        self.open()
        self._show()

    def stop(self) -> None:
        """The last state stays."""
        self._show()

    def _show(self) -> None:
        if self._output is not None:
            self._output.update(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, str]:
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
