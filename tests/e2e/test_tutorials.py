"""The commands, files and edits of tutorials and how-to pages, in the order of the page."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(
    r"(?:<!-- (?P<note>[^\n]+) -->\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
# A command with the lines that a here-document gives it, then lines of its output.
CALL = re.compile(
    r"^\$ (?P<command>[^\n]*<<'(?P<end>\w+)'\n.*?^(?P=end)|[^\n]*)\n(?P<said>(?:(?!\$ )[^\n]*\n)*)",
    re.MULTILINE | re.DOTALL,
)
PAGES = sorted(
    str(path.relative_to(DOCS).with_suffix(""))
    for folder in ("tutorials", "how_to")
    for path in (DOCS / folder).glob("*.md")
)
NEEDED = {"how_to/gguf": pytest.mark.smollm2}
EDITED = {"tutorials/own_method": "brevity.py"}


class Reader:
    """Follows a page in a folder; ends what its commands left running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._groups: list[int] = []

    def run(self, command: str) -> tuple[int, str]:
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        configuration = self.folder.parent / "configuration"
        with subprocess.Popen(
            ["bash", "-c", command], cwd=self.folder,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, text=True,
            env={**os.environ, "PATH": path, "XDG_CONFIG_HOME": str(configuration),
                 "COLUMNS": "200"},
        ) as process:  # fmt: skip
            self._groups.append(process.pid)
            output, _ = process.communicate(timeout=300)
        return process.returncode, output

    def end(self) -> None:
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGTERM)

    def edit(self, text: str, file: str) -> None:
        lines = text.splitlines()
        before = "\n".join(line[1:] for line in lines if line.startswith("-"))
        after = "\n".join(line[1:] for line in lines if line.startswith("+"))
        path = self.folder / file
        source = path.read_text(encoding="utf-8")
        assert source.count(before) == 1, f"{before!r} is not once in {file}"
        path.write_text(source.replace(before, after), encoding="utf-8")

    def write(self, text: str) -> None:
        """Write a file whose first line is a comment with its name; others are only read."""
        if found := re.match(r"(?:#|\{#) (\S+\.\w+)(?: #\})?\n", text):
            (self.folder / found[1]).write_text(text, encoding="utf-8")

    def call(self, block: re.Match[str]) -> None:
        note = block["note"] or ""
        expected = int(note.removeprefix("exit code ")) if note.startswith("exit code ") else 0
        more = note.removeprefix("without a GPU:") if note.startswith("without a GPU:") else ""
        calls = list(CALL.finditer(block["text"]))
        assert calls, block["text"]
        for call in calls:
            command = call["command"] + more
            code, output = self.run(command)
            assert code == expected, f"{command}:\n{output}"
            for line in call["said"].splitlines():
                assert line in output, f"{command}:\n{output}"


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", [pytest.param(page, marks=NEEDED.get(page, ())) for page in PAGES])
def test_a_reader_who_follows_the_page_sees_what_it_says(tmp_path, page):
    folder = tmp_path / "folder of mine"
    folder.mkdir()
    blocks = list(BLOCK.finditer((DOCS / f"{page}.md").read_text(encoding="utf-8")))
    assert any(block["kind"] == "console" for block in blocks)
    reader = Reader(folder)
    try:
        for block in blocks:
            if block["kind"] == "diff":
                reader.edit(block["text"], EDITED[page])
            elif block["kind"] == "console":
                reader.call(block)
            elif block["kind"] in {"yaml", "python", "jinja"}:
                reader.write(block["text"])
            else:
                # Shown, not run: what needs another machine.
                assert block["kind"] in {"sh", "text", "toml"}
    finally:
        reader.end()
