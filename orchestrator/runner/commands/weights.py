"""`orchestrator list weights`: weights that packages carry, and those that were converted."""

import argparse
import hashlib
import importlib
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from orchestrator import weights as known
from orchestrator.errors import EXIT_COMPLETE, EXIT_FAILED, OrchestratorError, UsageError
from orchestrator.numbers import size
from orchestrator.report.text import agreed, confirm, safe_line, write_to
from orchestrator.weights import Published

_FLOAT_BYTES: Final = 4
_PIP: Final = ("-m", "pip", "--disable-pip-version-check", "--no-input")


class InstallError(OrchestratorError):
    """A package could not be installed."""

    exit_code = EXIT_FAILED


def weights(options: argparse.Namespace) -> int:
    """List the weights that can be installed, and those in the cache."""
    if options.json:
        write_to(sys.stdout, json.dumps(_listed()) + "\n")
        return EXIT_COMPLETE
    for one in known.PUBLISHED:
        _say(f"{one.name}: {one.about}, {one.licence}")
        path = one.path
        if path is None:
            _say(f"  not installed ({size(one.n_bytes)}); run: orchestrator get weights {one.name}")
        else:
            _say(f"  installed ({size(path.stat().st_size)}): {path}")
            _say(f'  in a recipe: weights: "{one.weights}"')
    made = known.converted()
    for folder, name, n_bytes in made:
        _say(f"converted from {name} ({size(n_bytes)}): {folder}")
    if made:
        _say("Converted folders can be deleted; they are made again when they are needed.")
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
    if (there := wanted.path) is not None and _is_tried(there, wanted):
        confirm(f"already installed: {there}")
        _how_to_use(wanted)
        return EXIT_COMPLETE
    # Who is asked has to know what for.
    say = confirm if options.yes else _say
    say(f"{wanted.name}: {wanted.about}")
    say(
        f"  package {wanted.package} {wanted.version}, licence {wanted.licence}; "
        f"{size(wanted.n_bytes)} to download, {size(wanted.file_bytes)} installed"
    )
    say(
        f"  the embedded server and vLLM need {size(_FLOAT_BYTES * wanted.n_parameters)} more in "
        f"the cache, where it is dequantised when first used"
    )
    if not options.yes and not agreed("Install it?", "install with --yes"):
        confirm("nothing was installed")
        return EXIT_COMPLETE
    _install(wanted)
    importlib.invalidate_caches()
    path = wanted.path
    if path is None or not _is_tried(path, wanted):
        raise InstallError(
            f"{wanted.package} was installed, but its file {wanted.file} is not the one that was "
            f"tried (SHA-256 {wanted.file_sha256})"
        )
    confirm(f"installed: {path}")
    _how_to_use(wanted)
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
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode == 0:
        return
    if "No module named pip" in done.stderr:
        raise InstallError(
            f"this Python environment has no pip; install the package {pin} into it by the tool "
            f"that made it, without dependencies"
        )
    if "DO NOT MATCH THE HASHES" in done.stderr:
        raise InstallError(
            f"{pin}: the file that pip was given differs from the one that was tried; nothing was "
            f"installed"
        )
    by_hand = shlex.join((sys.executable, "-m", "pip", "install", "--no-deps", pin))
    raise InstallError(
        f"pip could not install {pin}: the package index it is configured for can't be reached or "
        f"lacks it. To see its own words: {by_hand}. Without a network: run `pip download "
        f"--no-deps {pin}` on a machine that has one, and `pip install --no-deps FILE` here"
    )


def _is_tried(path: Path, wanted: Published) -> bool:
    if path.stat().st_size != wanted.file_bytes:
        return False
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == wanted.file_sha256


def _how_to_use(wanted: Published) -> None:
    confirm(f'in a recipe: {{server: embedded, weights: "{wanted.weights}"}}')


def _say(line: str) -> None:
    write_to(sys.stdout, safe_line(line) + "\n")
