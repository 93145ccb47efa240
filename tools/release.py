"""Rehearse a release: version, changelog, wheel, and a check of the wheel in a clean environment.

`python tools/release.py VERSION [--write]`, called by `make release`. Everything is done in a copy
of the commit; `--write` then keeps the changed files and the wheel. Nothing is committed, tagged,
pushed or uploaded: the last lines say what to type for that. The wheel is built by the hatchling
that `make setup` pins, so that no network is needed.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

ROOT: Final = Path(__file__).resolve().parents[1]
DIST: Final = ROOT / "dist"
HEADING: Final = "## Unreleased"
# What states the version, and how.
STATED: Final = {
    "pyproject.toml": r'(?m)^(version = ")([^"]+)(")$',
    "orchestrator/__init__.py": r'(?m)^(__version__ = ")([^"]+)(")$',
}
# From a wheel to the results of the demo, in a clean environment (docs/tutorials/install.md).
FIRST_RUN: Final = (
    "python3 -m venv env",
    "env/bin/pip install '{wheel}[embedded]'",
    "env/bin/orchestrator run pairwise_ranking",
)


class ReleaseError(Exception):
    """An obstacle to the release; its message says what to do."""


def main() -> None:
    """Rehearse the release and say what to type next; exit code 1 at the first obstacle."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version", help="the new version, such as 0.2.0")
    parser.add_argument("--write", action="store_true", help="keep the files and the wheel")
    options = parser.parse_args()
    try:
        _release(options.version, write=options.write)
    except ReleaseError as error:
        sys.exit(f"release: {error}")


def _release(version: str, *, write: bool) -> None:
    if _called("git", "status", "--porcelain").strip():
        raise ReleaseError("the working tree has changes; commit or stash them")
    if _called("git", "tag", "--list", f"v{version}").strip():
        raise ReleaseError(f"tag v{version} exists")
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in STATED}
    texts = {name: bumped(text, STATED[name], version) for name, text in texts.items()}
    today = dt.datetime.now(dt.UTC).date()
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    texts["CHANGELOG.md"] = dated(changes, version, today)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        _called("git", "archive", "--output", f"{copy}.tar", "HEAD")
        with tarfile.open(f"{copy}.tar") as members:
            members.extractall(copy, filter="data")
        for name, text in texts.items():
            (copy / name).write_text(text, encoding="utf-8")
        print("release: building the wheel")
        hatchling = (sys.executable, "-m", "hatchling", "build", "-t", "wheel")
        _called(*hatchling, "-d", folder, cwd=copy)
        (wheel,) = Path(folder).glob("*.whl")
        print(f"release: checking {wheel.name} in a clean environment")
        check(wheel, version, Path(folder, "clean"))
        if write:
            DIST.mkdir(exist_ok=True)
            shutil.copy(wheel, DIST)
            for name, text in texts.items():
                (ROOT / name).write_text(text, encoding="utf-8")
    print(_next(version, wheel.name, sorted(texts), write=write))


def bumped(text: str, pattern: str, version: str) -> str:
    """Return the text of a file that states the version with a new one, which must be larger."""
    match = re.search(pattern, text)
    if match is None:
        raise ReleaseError(f"no version found by {pattern}")
    try:
        is_larger = Version(version) > Version(match[2])
    except InvalidVersion as error:
        raise ReleaseError(f"invalid version {version!r}; expected something like 0.2.0") from error
    if not is_larger or version != str(Version(version)):
        raise ReleaseError(f"version {version} is not after {match[2]}")
    return text[: match.start(2)] + version + text[match.end(2) :]


def dated(changes: str, version: str, day: dt.date) -> str:
    """Return the changelog with its part Unreleased given to a version, and an empty one above."""
    head, found, rest = changes.partition(f"\n{HEADING}\n")
    if not found or not re.search(r"(?m)^- ", rest.partition("\n## ")[0]):
        raise ReleaseError(f"CHANGELOG.md has nothing below {HEADING!r}")
    return f"{head}\n{HEADING}\n\n## {version} - {day.isoformat()}\n{rest}"


def check(wheel: Path, version: str, place: Path) -> None:
    """Install the wheel in an environment of its own, and use it there as the page says.

    Its dependencies are those of this environment: pip is asked for none.

    Raises:
        ReleaseError: With the output of the command that failed.
    """
    place.mkdir()
    shutil.copy(wheel, place)
    for line in FIRST_RUN:
        _called(*shlex.split(line.format(wheel=f"./{wheel.name}")), cwd=place)
        # The dependencies by their folder: a .pth is not read in it, so this checkout stays out.
        for packages in place.glob("env/lib/python*/site-packages"):
            paths = "\n".join(site.getsitepackages())
            (packages / "dependencies.pth").write_text(paths, encoding="utf-8")
    command = place / "env" / "bin" / "orchestrator"
    _called(command, "new", "backend", "outside", cwd=place)
    if (said := _called(command, "--version", cwd=place).strip()) != f"orchestrator {version}":
        raise ReleaseError(f"the wheel calls itself {said!r}")


def _called(*command: str | Path, cwd: Path = ROOT) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    clean |= {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1"}
    clean["PATH"] = f"{Path(sys.executable).parent}:{clean['PATH']}"
    ended = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise ReleaseError(f"{' '.join(map(str, command))}:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def _next(version: str, wheel: str, names: list[str], *, write: bool) -> str:
    files = " ".join(names)
    first_run = "\n  ".join(FIRST_RUN).format(wheel=wheel)
    if not write:
        return f"""release: {wheel} is fine; nothing was kept. Next:
  make release VERSION={version} ARGS=--write"""
    return f"""release: dist/{wheel} is fine, and {files} are changed. Look at them, then:
  git commit -m "Release {version}" {files}
  git tag -a v{version} -m "Release {version}"
  git push origin HEAD v{version}
Attach the wheel to the release there; the classifier Private keeps it out of public indexes.
Who has it sees first results by:
  {first_run}"""


if __name__ == "__main__":
    main()
