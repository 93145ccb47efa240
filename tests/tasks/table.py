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
    return f"{before}{BEGIN}\n\n{_summary(taken)}\n{_details(taken)}\n{END}{after}"


def shown(text: str, task: Task) -> list[str]:
    """The commands that the page lists for a task."""
    section = re.search(
        rf"^## \d+\. {re.escape(task.title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    return re.findall(r"^\| `{1,2} ?(.*?) ?`{1,2} \| ", section[1], re.MULTILINE) if section else []


def _summary(taken: Mapping[str, Sequence[Timed]]) -> str:
    rows = ["| | task | page | commands | seconds |", "| ---: | --- | --- | ---: | ---: |"]
    for number, task in enumerate(TASKS, 1):
        timed = taken[task.name]
        link = f"[{task.title}](#{_anchor(number, task)})"
        seconds = sum(one.seconds for one in timed)
        rows.append(f"| {number} | {link} | {_pages(task)} | {len(timed)} | {seconds:.1f} |")
    n_commands = sum(map(len, taken.values()))
    total = sum(one.seconds for timed in taken.values() for one in timed)
    rows.append(f"| | all | | {n_commands} | {total:.0f} |")
    return "".join(f"{row}\n" for row in rows)


def _details(taken: Mapping[str, Sequence[Timed]]) -> str:
    parts = []
    for number, task in enumerate(TASKS, 1):
        rows = "".join(
            f"| {_code(one.command)} | {one.seconds:.1f} |\n" for one in taken[task.name]
        )
        head = f"## {number}. {task.title}\n\n| command | seconds |\n| --- | ---: |\n"
        parts.append(head + rows)
    return "\n".join(parts)


def _pages(task: Task) -> str:
    return ", ".join(f"[{_title(page)}]({page}.md)" for page in task.pages)


def _title(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _anchor(number: int, task: Task) -> str:
    """The anchor that MyST makes of a task's heading."""
    return re.sub(r"[^\w -]", "", f"{number}. {task.title}".lower()).replace(" ", "-")


def _code(command: str) -> str:
    escaped = command.replace("|", "\\|")
    return f"`` {escaped} ``" if "`" in command else f"`{escaped}`"


if __name__ == "__main__":
    sys.exit(main())
