"""A terminal's window in memory: what stands in it, and what has scrolled out of it."""

import re

from rich.cells import cell_len
from rich.console import Console

from tests.report.samples import Stream

_CONTROL = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])")
SIZES = ((80, 24), (100, 30), (120, 40))


def in_window(renderable, width, height):
    """The lines that are printed on a terminal of this size, without colours."""
    stream = Stream(tty=True)
    console = Console(
        file=stream, width=width, height=height, color_system=None, legacy_windows=False
    )
    console.print(renderable)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


class Window:
    """Lines by what a program wrote: no colours, and the few controls that rich uses."""

    def __init__(self, written, width, height):
        self.scrolled = []
        self.lines = [""]
        self.is_hidden = False
        self._row = 0
        self._width, self._height = width, height
        place = 0
        while place < len(written):
            control = _CONTROL.match(written, place)
            if control:
                self._obey(control[1], control[2])
                place = control.end()
                continue
            self._write(written[place])
            place += 1

    def _obey(self, number, letter):
        if letter == "A":
            self._row = max(0, self._row - int(number or 1))
        elif letter == "K":
            self.lines[self._row] = ""
        elif number == "?25":
            self.is_hidden = letter == "l"
        else:
            assert letter == "m", f"unknown control {number}{letter}"

    def _write(self, character):
        if character == "\n":
            self._row += 1
            if self._row == len(self.lines):
                self.lines.append("")
            if len(self.lines) > self._height:
                self.scrolled.append(self.lines.pop(0))
                self._row -= 1
        elif character == "\r":
            # All that rich writes after it erases the line, or writes all of it.
            self.lines[self._row] = ""
        else:
            self.lines[self._row] += character
            assert cell_len(self.lines[self._row]) <= self._width, self.lines[self._row]
