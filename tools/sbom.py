"""Write a software bill of materials (CycloneDX) of `.venv`, or list the licences in it.

`python tools/sbom.py [--licences]`, called by `make sbom` and `make licences`. The bill is made by
`cyclonedx-py`, in an environment of its own (`.venv-sbom`), so that the tool is no part of it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT: Final = "selfeval-orchestrator"
ROOT: Final = Path(__file__).resolve().parents[1]
TOOL: Final = "cyclonedx-bom==7.5.0"
VENV: Final = ROOT / ".venv-sbom"
STAMP: Final = VENV / ".setup-stamp"
SBOM: Final = ROOT / "dist" / "sbom.cdx.json"
UNSTATED: Final = "not stated"


def main() -> None:
    """Write the bill; print where it is, or the licences."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--licences", action="store_true", help="list the licence of each package")
    options = parser.parse_args()
    _set_up()
    SBOM.parent.mkdir(exist_ok=True)
    subprocess.run(
        [VENV / "bin" / "cyclonedx-py", "environment", "--pyproject", ROOT / "pyproject.toml",
         "--output-reproducible", "--output-file", SBOM, ROOT / ".venv" / "bin" / "python"],
        check=True,
    )  # fmt: skip
    bill = json.loads(SBOM.read_text(encoding="utf-8"))
    if options.licences:
        extras = importlib.metadata.metadata(PROJECT).get_all("Provides-Extra") or ()
        print("\n".join(listed(bill, dependencies(PROJECT, extras, requires))))
    else:
        print(f"{SBOM.relative_to(ROOT)}: {len(bill['components'])} packages")


def _set_up() -> None:
    if STAMP.exists() and STAMP.read_text(encoding="utf-8") == TOOL:
        return
    venv.create(VENV, with_pip=True, clear=True)
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q"]
    if subprocess.run([*pip, "install", TOOL], check=False).returncode:
        sys.exit(f"sbom: {TOOL} could not be installed, see above")
    STAMP.write_text(TOOL, encoding="utf-8")


def listed(bill: Mapping[str, Any], needed: Set[str]) -> Iterator[str]:
    """Yield a line for each package: name, version, licence; those of `needed` come first."""
    packages = sorted(bill["components"], key=lambda package: str(package["name"]).lower())
    for heading, wanted in (("Runtime, with all extras", True), ("Development only", False)):
        yield f"{heading}:"
        for package in packages:
            if (canonicalize_name(package["name"]) in needed) is wanted:
                name, version = package["name"], package.get("version", "")
                yield f"  {name:<28} {version:<16} {licence(package.get('licenses', ()))}"


def dependencies(
    name: str, extras: Iterable[str], requires: Callable[[str], Iterable[str]]
) -> set[str]:
    """Return the canonical names of all that a package depends on, directly or not.

    Args:
        name: The package.
        extras: Those of its extras that are installed.
        requires: From a name to its `Requires-Dist` lines, none where it is not installed. (The
            bill itself counts what any extra of any package would need.)
    """
    found: set[tuple[str, str]] = set()
    to_visit = {(canonicalize_name(name), extra) for extra in ("", *extras)}
    while to_visit:
        package, extra = to_visit.pop()
        found.add((package, extra))
        for line in requires(package):
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                to_visit |= {
                    (canonicalize_name(wanted.name), one) for one in ("", *wanted.extras)
                } - found
    return {package for package, _ in found} - {canonicalize_name(name)}


def requires(name: str) -> Iterable[str]:
    """Return the `Requires-Dist` lines of a package, none where it is not installed."""
    try:
        return importlib.metadata.requires(name) or ()
    except importlib.metadata.PackageNotFoundError:
        return ()


def licence(stated: Sequence[Mapping[str, Any]]) -> str:
    """Return the licences of a package as it states them: SPDX ids where it gives them."""
    expressions = [entry["expression"] for entry in stated if "expression" in entry]
    named = [entry["license"] for entry in stated if "license" in entry]
    ids = [one["id"] for one in named if "id" in one]
    names = [str(one.get("name", "")).removeprefix("License :: ") for one in named]
    spoken = [name.removeprefix("OSI Approved :: ").splitlines()[0] for name in names if name]
    return " OR ".join(dict.fromkeys(expressions or ids or spoken)) or UNSTATED


if __name__ == "__main__":
    main()
