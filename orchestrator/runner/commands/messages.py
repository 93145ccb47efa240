"""Words to the user on stderr: text, or a JSON object a line where `--display json` is given."""

import sys
from pathlib import Path

import msgspec
from rich.text import Text

from orchestrator.errors import OrchestratorError, RecipeError
from orchestrator.gates.results import Decision
from orchestrator.report import tables
from orchestrator.report.gate import gate_value
from orchestrator.report.lines import event_line
from orchestrator.report.page import make_console, print_to
from orchestrator.report.progress import Progress
from orchestrator.report.text import is_quiet, safe_line, write_to


class Said(msgspec.Struct, frozen=True):
    """Says something on stderr.

    Attributes:
        as_json: Whether a program reads it: one JSON object a line (`docs/display.md`).
    """

    as_json: bool = False

    def note(self, message: str) -> None:
        """Print a line that the user may do without; `--quiet` leaves it out."""
        if not is_quiet():
            self.complain(message)

    def complain(self, message: str) -> None:
        """Print a warning or an error, on a line."""
        if self.as_json:
            self._event("note", text=safe_line(message))
        else:
            text = Text(safe_line(f"orchestrator: {message}"))
            print_to(sys.stderr, text, wrap=sys.stderr.isatty())

    def interrupted(self) -> None:
        """Print that Ctrl-C ended the command, over the `^C` that the terminal has shown."""
        if not self.as_json and sys.stderr.isatty():
            write_to(sys.stderr, "\r")
        self.complain("interrupted; resume with the same command")

    def faults(self, error: OrchestratorError) -> None:
        """Print what is wrong, where, and what to do."""
        if not self.as_json:
            print_to(sys.stderr, tables.faults(error), wrap=sys.stderr.isatty())
            return
        faults = error.faults if isinstance(error, RecipeError) else []
        places = [{"file": f.file, "line": f.line, "message": f.message} for f in faults]
        self._event("error", text=str(error), faults=places)

    def summary(self, progress: Progress, n_left: int) -> int:
        """Print what a call did; a program has it from the last event of its progress.

        Returns:
            The lines that it takes of the terminal; 0 where stderr is none.
        """
        if self.as_json or is_quiet():
            return 0
        shown = tables.run_summary(progress, n_left)
        print_to(sys.stderr, shown)
        if not sys.stderr.isatty():
            return 0
        # What follows stands apart from it.
        write_to(sys.stderr, "\n")
        return len(make_console(sys.stderr).render_lines(shown)) + 1

    def verdict(self, found: Decision) -> None:
        """Send the verdict on gates to a program; a person has it with the results."""
        if self.as_json:
            self._event("gate", **gate_value(found))

    def wrote(self, path: Path) -> None:
        """Print the path of a file that was written."""
        if self.as_json:
            self._event("file", path=str(path))
        elif not is_quiet():
            write_to(sys.stderr, f"{safe_line(str(path))}\n")

    def _event(self, event: str, **fields: object) -> None:
        write_to(sys.stderr, event_line(event, **fields))
