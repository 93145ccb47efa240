"""Real processes at real streams: terminals of several widths, other encodings, gone readers, full
disks; and that a key is nowhere."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.cells import cell_len

from orchestrator.cli import main
from tests.e2e.runs import fake_server

pytestmark = pytest.mark.slow

ENTRY = [sys.executable, "-m", "orchestrator"]
STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a recipe of long names and its run."""
    folder = tmp_path_factory.mktemp("streams")
    names = ["tiny", "small-instruct-v2-with-a-long-name", "\u6a21\u578b" * 8, "d" * 60]
    models = {
        name: {"server": "scripted", "weights": f"{n}:0.{2 * n + 1}"}
        for n, name in enumerate(names)
    }
    models["judge"] = {"server": "scripted", "weights": "j:1.0"}
    recipe = {
        "models": models,
        "dataset": {"kind": "demo", "n": 24},
        "methods": [{"kind": "pairwise_ranking", "judges": ["judge"], "answer": {"max_tokens": 4}}],
        "statistics": {"n_resamples": 50},
    }
    (folder / "wide.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    run = [str(folder / "wide.yaml"), "--run-dir", str(folder / "run"), "--display", "none"]
    assert main(["run", *run]) == 0
    return folder


def environment(**changes: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "NO_COLOR"}}
    return {**kept, "TERM": "xterm-256color", "PYTHONPATH": os.environ["PYTHONPATH"], **changes}


def at_terminal(folder: Path, width: int, *arguments: str, height: int = 40, **changes: str) -> str:
    """Return the output of the command at a terminal so many columns wide and lines high."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    process = subprocess.Popen(
        [*ENTRY, *arguments], cwd=folder, env=environment(**changes),
        stdin=follower, stdout=follower, stderr=follower,
    )  # fmt: skip
    os.close(follower)
    parts = []
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:
            break  # Linux says so when the other end is closed
        if not part:
            break
        parts.append(part)
    os.close(leader)
    assert process.wait(30) == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize(
    "arguments", [("report", "run"), ("plan", "wide.yaml"), ("status", "run"),
                  ("runs", "list", "."), ("list", "methods"), ("list", "recipes")],
)  # fmt: skip
def test_nothing_is_wider_than_the_terminal(made, width, arguments):
    for line in STYLE.sub("", at_terminal(made, width, *arguments)).split("\n"):
        assert cell_len(line) <= width, line


@pytest.mark.parametrize("height", [24, 30])
@pytest.mark.parametrize("arguments", [("report", "run"), ("plan", "wide.yaml")])
def test_the_first_screen_and_the_plan_leave_a_line_for_the_prompt(made, height, arguments):
    shown = at_terminal(made, 80, *arguments, height=height)
    assert len(shown.removesuffix("\n").split("\n")) < height, shown


def test_no_colour_where_none_is_wished(made):
    assert "\x1b[" in at_terminal(made, 80, "report", "run")
    coloured = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
    assert not coloured.search(at_terminal(made, 80, "report", "run", NO_COLOR="1"))
    assert "\x1b" not in at_terminal(made, 80, "report", "run", TERM="dumb")


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("form", ["table", "markdown", "json"])
def test_an_ascii_stream_gets_ascii(made, form):
    done = subprocess.run(
        [*ENTRY, "report", "run", "--format", form],
        cwd=made, env=environment(**ASCII), capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout.isascii()
    assert done.stderr == b""


@pytest.mark.parametrize("form", ["table", "markdown", "json"])
def test_a_reader_that_is_gone_is_no_error(made, form):
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [*ENTRY, "report", "run", "--format", form],
        cwd=made, env=environment(), stdout=write_end, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_is_said_in_words(made):
    with Path("/dev/full").open("wb", buffering=0) as full:
        done = subprocess.run(
            [*ENTRY, "report", "run"],
            cwd=made, env=environment(), stdout=full, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == b"orchestrator: No space left on device\n"


def test_a_key_is_nowhere(tmp_path, monkeypatch):
    key = "sk-made-up-0123456789abcdef"
    monkeypatch.setenv("ORCHESTRATOR_SERVER_KEY", key)
    rules = [{"fault": "echo_key", "every": 4, "route": "chat"}]
    with fake_server(rules, models=("a", "b")) as url:
        monkeypatch.delenv("ORCHESTRATOR_SERVER_KEY")
        added = {
            "headers": {"X-Token": {"env": "A_TOKEN"}, "Cookie": {"env": "A_COOKIE"}},
            "query": {"sig": {"env": "A_SIGNATURE"}},
        }
        models = {name: {"base_url": url, "api_key_env": "A_KEY", **added} for name in ("a", "b")}
        hidden = {
            "A_TOKEN": "Bearer 9876543210fedcba",
            "A_COOKIE": "s=9876543210fedcba; t=9876543210fedcbb\n",
            "A_SIGNATURE": "9876543210fedcba/+= &",
        }
        recipe = {
            "models": models,
            "dataset": {"kind": "demo", "n": 10},
            "methods": [{"kind": "answers", "answer": {"max_tokens": 4}}],
            "limits": {"max_attempts": 2},
        }
        path = tmp_path / "r.yaml"
        path.write_text(json.dumps(recipe), encoding="utf-8")
        outputs = []
        for given in ("sk-wrong-0123456789abcdef", key):
            done = subprocess.run(
                [*ENTRY, "run", str(path), "--run-dir", str(tmp_path / "run")],
                cwd=tmp_path, env=environment(A_KEY=given, **hidden), capture_output=True,
                check=False,
            )  # fmt: skip
            assert done.returncode in {0, 2, 3}, done.stderr
            outputs += [done.stdout, done.stderr]
        for command in (["check", "r.yaml"], ["plan", "r.yaml"], ["report", "run"],
                        ["runs", "status", "run"], ["servers", "probe", "r.yaml"]):  # fmt: skip
            done = subprocess.run(
                [*ENTRY, *command],
                cwd=tmp_path, env=environment(A_KEY=key, **hidden), capture_output=True,
                check=False,
            )  # fmt: skip
            assert done.returncode in {0, 1, 2, 3}, done.stderr
            outputs += [done.stdout, done.stderr]
    files = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    for content in (*outputs, *files):
        assert b"0123456789abcdef" not in content
        assert b"9876543210fedcb" not in content
