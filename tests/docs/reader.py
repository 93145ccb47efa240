"""A reader of the documentation: writes the files that a page shows and runs its commands.

A comment before a block, which the rendered page does not show, says more about it: `exit code 3`;
`until Ctrl-C` for a command that goes on while the page does; `after Ctrl-C` for a block before
which it is interrupted; `without a GPU: OPTIONS` for options to add here; `edit FILE` for a diff.
"""

import contextlib
import dataclasses
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.conftest import ROOT

DOCS: Final = ROOT / "docs"
BLOCK: Final = re.compile(
    r"(?:<!-- (?P<note>[^\n]+) -->\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
# A command with the lines that a here-document gives it, then lines of its output.
CALL: Final = re.compile(
    r"^\$ (?P<command>[^\n]*<<'(?P<end>\w+)'\n.*?^(?P=end)|[^\n]*)\n(?P<said>(?:(?!\$ )[^\n]*\n)*)",
    re.MULTILINE | re.DOTALL,
)
FOLLOWED: Final = tuple(
    sorted(
        str(path.relative_to(DOCS).with_suffix(""))
        for folder in ("tutorials", "how_to")
        for path in (DOCS / folder).glob("*.md")
    )
)
"""Pages whose commands are run, as `folder/name`."""
# Shown, not run: what needs another machine or another program.
_ONLY_READ: Final = frozenset({"sh", "text", "toml"})
_UNTIL: Final = "until Ctrl-C"
_AFTER: Final = "after Ctrl-C"
_EDIT: Final = "edit "
_NO_GPU: Final = "without a GPU:"
_LONGEST_S: Final = 300
_PORT: Final = "8151"
"""The port that pages show. A free one takes its place: several readers may work at a time."""


def blocks(page: str) -> list[re.Match[str]]:
    """The fenced blocks of a page, in order."""
    return list(BLOCK.finditer((DOCS / f"{page}.md").read_text(encoding="utf-8")))


def commands(page: str) -> list[str]:
    """The commands of a page as it shows them, in order."""
    return [
        call["command"]
        for block in blocks(page)
        if block["kind"] == "console"
        for call in CALL.finditer(block["text"])
    ]


@dataclass(frozen=True, slots=True)
class Step:
    """A command that the reader ran.

    Attributes:
        page: That shows it.
        command: As shown.
        seconds: Until it ended; of one that goes on, until it had said what the page quotes.
        output: Both streams; of one that goes on, until it ended or until now.
    """

    page: str
    command: str
    seconds: float
    output: str


class _GoesOn(NamedTuple):
    """A command that goes on while the page does: its place among the steps, and its streams."""

    process: subprocess.Popen[bytes]
    step: int
    code: int
    said: Path


class Reader:
    """Follows pages in a folder, and ends what their commands left running.

    Attributes:
        folder: Where commands run.
        instead: What takes the place of a text that pages show, such as an address.
        steps: What was run so far.
        port: Takes the place of the port that pages show.
    """

    def __init__(self, folder: Path, instead: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.instead = instead or {}
        self.steps: list[Step] = []
        self.port = _free_port()
        self._groups: list[int] = []
        self._running: _GoesOn | None = None

    def follow(self, page: str, *, under: Collection[str] = ()) -> None:
        """Do what the page says, in its order; only under some of its headings where named."""
        found = [one for one in blocks(page) if not under or _heading(one) in under]
        assert any(block["kind"] == "console" for block in found), f"{page} shows no command"
        for block in found:
            if block["kind"] == "diff":
                assert (block["note"] or "").startswith(_EDIT), f"{page}: no file for a diff"
                self._edit(block["text"], block["note"].removeprefix(_EDIT))
            elif block["kind"] == "console":
                self._call(page, block)
            elif block["kind"] in {"yaml", "python", "jinja"}:
                self._write(block["text"])
            else:
                assert block["kind"] in _ONLY_READ, f"{page}: a block of {block['kind']}"

    def run(self, command: str) -> tuple[int, str]:
        """Run a command in the shell; its exit code, and what it wrote."""
        with self._started(command, subprocess.PIPE) as process:
            output, _ = process.communicate(timeout=_LONGEST_S)
        # A page quotes its own port.
        return process.returncode, output.decode().replace(f":{self.port}", f":{_PORT}")

    def interrupt(self) -> None:
        """Press Ctrl-C if a command goes on, and see that it ends as the page says."""
        if self._running is not None:
            process, step, code, _ = self._running
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            ended = process.wait(timeout=120)
            said = self.said_last()
            self._running = None
            self.steps[step] = dataclasses.replace(self.steps[step], output=said)
            command = self.steps[step].command
            assert ended == code, f"$ {command}\nexit code {ended}, not {code}:\n{said}"

    def said_last(self) -> str:
        """Return the output so far of the command that goes on."""
        assert self._running is not None, "no command goes on"
        return self._running.said.read_text(encoding="utf-8")

    def end(self) -> None:
        """End what is left."""
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGTERM)
        if self._running is not None:
            self._running.process.wait(timeout=60)

    def _started(self, command: str, to: int) -> subprocess.Popen[bytes]:
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        configuration = self.folder.parent / "configuration"
        process = subprocess.Popen(
            ["bash", "-c", self._mine(command.replace(_PORT, str(self.port)))], cwd=self.folder,
            stdout=to, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "PATH": path, "XDG_CONFIG_HOME": str(configuration),
                 "COLUMNS": "200"},
        )  # fmt: skip
        self._groups.append(process.pid)
        return process

    def _call(self, page: str, block: re.Match[str]) -> None:
        note = block["note"] or ""
        if note == _AFTER:
            self.interrupt()
        found = re.search(r"exit code (\d+)", note)
        expected = int(found[1]) if found else 0
        more = note.removeprefix(_NO_GPU) if note.startswith(_NO_GPU) else ""
        calls = list(CALL.finditer(block["text"]))
        assert calls, f"{page}: a block without a command:\n{block['text']}"
        for call in calls:
            began = time.perf_counter()
            if note.startswith(_UNTIL):
                output = self._begin(page, call, expected)
            else:
                code, output = self.run(call["command"] + more)
                where = f"docs/{page}.md\n$ {call['command']}{more}"
                assert code == expected, f"{where}\nexit code {code}, not {expected}:\n{output}"
                for line in call["said"].splitlines():
                    assert line in output, f"{where}\nhas not said {line!r}:\n{output}"
            seconds = time.perf_counter() - began
            self.steps.append(Step(page, call["command"], seconds, output))

    def _begin(self, page: str, call: re.Match[str], expected: int) -> str:
        """Start a command that goes on, and wait for what the page quotes of it."""
        self.interrupt()
        path = self.folder.parent / f"output{len(self.steps)}.txt"
        with path.open("wb") as file:
            process = self._started(call["command"], file.fileno())
        self._running = _GoesOn(process, len(self.steps), expected, path)
        for line in call["said"].splitlines():
            if not any(line in said for said in _growing(path, process)):
                where = f"docs/{page}.md\n$ {call['command']}"
                raise AssertionError(f"{where}\nhas not said {line!r}:\n{self.said_last()}")
        return self.said_last()

    def _edit(self, text: str, file: str) -> None:
        lines = text.splitlines()
        before = "\n".join(line[1:] for line in lines if line.startswith("-"))
        after = "\n".join(line[1:] for line in lines if line.startswith("+"))
        path = self.folder / file
        source = path.read_text(encoding="utf-8")
        assert source.count(before) == 1, f"{before!r} is not once in {file}"
        path.write_text(source.replace(before, after), encoding="utf-8")

    def _write(self, text: str) -> None:
        """Write a file whose first line is a comment with its name; others are only read."""
        if found := re.match(r"(?:#|\{#) (\S+\.\w+)(?: #\})?\n", text):
            (self.folder / found[1]).write_text(self._mine(text), encoding="utf-8")

    def _mine(self, text: str) -> str:
        for shown, mine in self.instead.items():
            text = text.replace(shown, mine)
        return text


def _heading(block: re.Match[str]) -> str:
    """The heading of second rank above a block; empty where there is none."""
    found = re.findall(r"^## (.+)$", block.string[: block.start()], re.MULTILINE)
    return found[-1] if found else ""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _growing(path: Path, process: subprocess.Popen[bytes]) -> Iterator[str]:
    """The text of a file while a process writes it, and once more when it has ended."""
    latest = time.monotonic() + _LONGEST_S
    while True:
        has_ended = process.poll() is not None
        yield path.read_text(encoding="utf-8")
        if has_ended or time.monotonic() > latest:
            return
        time.sleep(0.05)
