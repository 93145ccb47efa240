"""The commands and edits of the tutorials, in the order of the page."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"
BLOCK = re.compile(
    r"(?:<!-- exit code (?P<code>\d+) -->\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)


def run(command: str, folder: Path) -> tuple[int, str]:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    configuration = folder.parent / "configuration"
    ended = subprocess.run(
        ["bash", "-c", command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "PATH": path, "XDG_CONFIG_HOME": str(configuration), "COLUMNS": "200"},
        text=True, timeout=300, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stdout


def edit(text: str, folder: Path, file: str) -> None:
    lines = text.splitlines()
    before = "\n".join(line[1:] for line in lines if line.startswith("-"))
    after = "\n".join(line[1:] for line in lines if line.startswith("+"))
    path = folder / file
    source = path.read_text(encoding="utf-8")
    assert source.count(before) == 1, f"{before!r} is not once in {file}"
    path.write_text(source.replace(before, after), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize(("page", "file"), [("own_method", "brevity.py")])
def test_a_reader_who_follows_the_page_sees_what_it_says(tmp_path, page, file):
    folder = tmp_path / "folder of mine"
    folder.mkdir()
    blocks = list(BLOCK.finditer((TUTORIALS / f"{page}.md").read_text(encoding="utf-8")))
    assert blocks
    for block in blocks:
        if block["kind"] == "diff":
            edit(block["text"], folder, file)
            continue
        assert block["kind"] == "console"
        for call in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
            command, *said = call.splitlines()
            code, output = run(command, folder)
            assert code == int(block["code"] or 0), f"{command}:\n{output}"
            for line in said:
                assert line in output, f"{command}:\n{output}"
