"""`orchestrator recipes`: the recipes that come with the project, and copies of them."""

import argparse
import json
import re
import sys
from pathlib import Path

import yaml

from orchestrator.disk.paths import expanded
from orchestrator.errors import EXIT_COMPLETE, UsageError
from orchestrator.recipe.faults import nearest
from orchestrator.recipe.load import RECIPE_SUFFIXES, available
from orchestrator.recipe.schema import NAME_PATTERN
from orchestrator.report import tables
from orchestrator.report.page import print_to
from orchestrator.report.text import confirm, write_to


def recipes(options: argparse.Namespace) -> int:
    """List the recipes that come with the project."""
    rows = [(path, _description(path)) for path in available()]
    if options.json:
        found = [
            {"name": path.stem, "description": about, "file": str(path)} for path, about in rows
        ]
        write_to(sys.stdout, json.dumps(found) + "\n")
    else:
        print_to(sys.stdout, tables.listing([(path.stem, about) for path, about in rows]))
    return EXIT_COMPLETE


def _description(path: Path) -> str:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("description:"):
            return line.removeprefix("description:").strip()
    return ""


def copy(options: argparse.Namespace) -> int:
    """Copy a recipe to a file of the user's, under the name of that file, with its questions.

    Raises:
        UsageError: If there is no such recipe, the file can't be written or, without `--force`, it
            exists.
    """
    known = {path.stem: path for path in available()}
    name = options.name
    if name not in known and Path(name).suffix in RECIPE_SUFFIXES:
        name = Path(name).stem
    if name not in known:
        raise UsageError(f"unknown recipe {options.name!r}{nearest(name, known)}")
    to = _destination(options.to, name)
    text = known[name].read_text(encoding="utf-8")
    # The run of a copy is not the run of the original, and editors look for the schema beside it.
    text = text.replace(f"\nname: {name}\n", f"\nname: {to.stem}\n", 1)
    text = text.removeprefix("# yaml-language-server: $schema=schema.json\n")
    questions = _questions(known[name])
    if questions is None:
        write_new(to, text, force=options.force)
    else:
        beside, asked = to.parent / questions.name, questions.read_text(encoding="utf-8")
        check_free(to, force=options.force)
        if not (beside.is_file() and beside.read_text(encoding="utf-8") == asked):
            write_new(beside, asked, force=options.force)
        write_new(to, text, force=options.force)
        confirm(f"wrote {beside}")
    confirm(f"wrote {to}; run it with: orchestrator run {to}")
    return EXIT_COMPLETE


def _questions(recipe: Path) -> Path | None:
    """The file of questions that comes with a recipe; None where it has none."""
    dataset = yaml.safe_load(recipe.read_text(encoding="utf-8")).get("dataset", {})
    named = dataset.get("path") if isinstance(dataset, dict) else None
    file = recipe.parent / str(named)
    return file if named is not None and file.is_file() else None


def _destination(given: str | None, name: str) -> Path:
    to = expanded(f"{name}.yaml" if given is None else given)
    if given is not None and (to.is_dir() or given.endswith("/")):
        to /= f"{name}.yaml"
    check_name(to)
    return to


def check_name(file: Path) -> None:
    """Refuse a file whose name can't be that of a recipe.

    Raises:
        UsageError: If its suffix or its stem is wrong.
    """
    if file.suffix not in RECIPE_SUFFIXES:
        raise UsageError(f"{file}: the name of a recipe ends in {' or '.join(RECIPE_SUFFIXES)}")
    if not re.match(NAME_PATTERN, file.stem):
        raise UsageError(f"{file}: {file.stem!r} is not a valid name of a recipe")


def check_free(file: Path, *, force: bool) -> None:
    """Refuse a file that exists, unless with `force`.

    Raises:
        UsageError: If it does.
    """
    if (file.exists() or file.is_symlink()) and not force:
        raise UsageError(f"{file} already exists; overwrite it with --force")


def write_new(file: Path, text: str, *, force: bool) -> None:
    """Write a file that does not exist; with `force` also one that does.

    Raises:
        UsageError: If it can't be written.
    """
    if not file.parent.is_dir():
        raise UsageError(f"{file.parent}: there is no such folder")
    try:
        if force and (file.is_file() or file.is_symlink()):
            file.unlink()
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise UsageError(f"{file} already exists; overwrite it with --force") from None
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from error
