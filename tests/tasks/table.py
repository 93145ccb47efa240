"""Does the fifteen tasks and writes the seconds that each took into docs/tasks.md.

`python -m tests.tasks.table`; `make tasks` does it after set-up.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.conftest import ROOT
from tests.docs.reader import DOCS, Step
from tests.tasks.tasks import TASKS, Task

NOTES: Final = "TASK_NOTES"
PAGE: Final = DOCS / "tasks.md"
BEGIN: Final = "<!-- tasks and seconds: make tasks -->"
END: Final = "<!-- end of tasks and seconds -->"


class Timed(msgspec.Struct, frozen=True):
    """A command and the seconds it took."""

    command: str
    seconds: float


def main() -> int:
    """Do all tasks, one after the other, then write; the exit code of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "tests/tasks", "-m", "slow", "-p", "no:xdist",
             *sys.argv[1:]],
            cwd=ROOT, check=False, env={**os.environ, NOTES: folder},
        )  # fmt: skip
        if ended.returncode == 0:
            taken = {
                task.name: msgspec.json.decode(
                    (Path(folder) / f"{task.name}.json").read_bytes(), type=list[Timed]
                )
                for task in TASKS
            }
            PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), taken), encoding="utf-8")
    return ended.returncode


def note(folder: Path, task: Task, steps: Sequence[Step]) -> None:
    """Keep what the commands of a task took."""
    timed = [Timed(line(step.command), step.seconds) for step in steps]
    (folder / f"{task.name}.json").write_bytes(msgspec.json.encode(timed))


def line(command: str) -> str:
    """A command in a line, without the text of a here-document."""
    return command.partition("\n")[0]


def replaced(text: str, taken: Mapping[str, Sequence[Timed]]) -> str:
    """The page with other measurements.

    Args:
        text: Of the page.
        taken: Commands and seconds, by name of the task.
    """
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{_summary(taken)}\n{END}{after}"


def shown(text: str) -> dict[str, int]:
    """Return the number of commands that the page tells of each task, by its title."""
    rows = re.findall(r"^\| \d+ \| (.+?) \| .* \| (\d+) \| [\d.]+ \|$", text, re.MULTILINE)
    return {title: int(count) for title, count in rows}


def _summary(taken: Mapping[str, Sequence[Timed]]) -> str:
    rows = ["| | task | page | commands | seconds |", "| ---: | --- | --- | ---: | ---: |"]
    for number, task in enumerate(TASKS, 1):
        timed = taken[task.name]
        seconds = sum(one.seconds for one in timed)
        rows.append(f"| {number} | {task.title} | {_pages(task)} | {len(timed)} | {seconds:.1f} |")
    n_commands = sum(map(len, taken.values()))
    total = sum(one.seconds for timed in taken.values() for one in timed)
    rows.append(f"| | all | | {n_commands} | {total:.0f} |")
    return "".join(f"{row}\n" for row in rows)


def _pages(task: Task) -> str:
    return ", ".join(f"[{_title(page)}]({page}.md)" for page in task.pages)


def _title(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


if __name__ == "__main__":
    sys.exit(main())
