import importlib.util
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from tools import set_up

ROOT = Path(__file__).parents[2]
PROJECT = {
    "build-system": {"requires": ["hatchling"]},
    "project": {"dependencies": ["a"], "optional-dependencies": {"x": [], "y": []}},
    "dependency-groups": {"dev": ["ruff"]},
}


def test_what_is_installed_decides_the_stamp_and_tool_settings_do_not():
    stamp = set_up.stamp(PROJECT, b"a==1", "")
    assert stamp == set_up.stamp({**PROJECT, "tool": {"ruff": 1}}, b"a==1", "")
    assert stamp != set_up.stamp({**PROJECT, "dependency-groups": {}}, b"a==1", "")
    assert stamp != set_up.stamp(PROJECT, b"a==2", "")
    assert stamp != set_up.stamp(PROJECT, b"a==1", "http://127.0.0.1/cpu")


def test_an_index_for_torch_is_asked_for_torch_alone():
    commands = [command for _, command in set_up.steps(PROJECT, "http://127.0.0.1/cpu")]
    with_index = [command for command in commands if "--index-url" in command]
    assert len(with_index) == 1
    assert with_index[0][-1].startswith("torch==")
    assert "--no-deps" in with_index[0]


def test_everything_is_installed_with_the_pinned_versions():
    commands = [command for _, command in set_up.steps(PROJECT, "")]
    assert f"{ROOT}[x,y]" in commands[2]
    assert commands[2][-1] == "ruff"
    assert all(str(set_up.CONSTRAINTS) in command for command in commands[1:3])


def test_a_python_without_venv_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(set_up.SetupError, match=r"apt install python3\.\d+-venv"):
        set_up.check_machine("")


def test_a_full_disk_is_named_before_anything_is_downloaded(monkeypatch, tmp_path):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 1e9))
    monkeypatch.setattr(set_up, "PYTHON", tmp_path / "python")
    with pytest.raises(set_up.SetupError, match=r"3 GB of disk are needed in .*, 1\.0 free"):
        set_up.check_machine("")


def test_a_failed_pip_gets_a_hint_only_where_the_index_is_the_cause():
    assert "config list" in set_up.pip_failure("ERROR: Could not find a version that satisfies")
    assert "config list" not in set_up.pip_failure("SyntaxError in setup.py")


def test_available_memory_is_plausible():
    assert 1e7 < set_up.available_memory() < 1e14


def test_make_help_lists_every_target():
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    targets = {line.split()[1] for line in listed.stdout.splitlines()}
    assert {"demo", "test", "test-all", "lint", "types", "layers", "fmt"} <= targets
    assert {"schema", "bench", "clean", "setup"} <= targets


@pytest.mark.parametrize(
    ("content", "name", "fault"),
    [
        ("a: 1\n", "a.yaml", ""),
        ("a: [1\n", "a.yaml", "expected"),
        ("a = \n", "a.toml", "Invalid value"),
        ("{}", "a.json", "exactly one newline"),
        ("text\n\n", "a.md", "exactly one newline"),
    ],
)
def test_files_are_checked_before_a_commit(tmp_path, content, name, fault):
    path = tmp_path / name
    path.write_text(content)
    command = [sys.executable, str(ROOT / "tools" / "check_files.py"), str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == bool(fault)
    assert fault in result.stderr
