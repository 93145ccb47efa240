"""Recipes as they were run: one YAML file a revision, with versions and identities of models."""

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import yaml
from pydantic import ValidationError

from orchestrator import __version__
from orchestrator.disk import files
from orchestrator.disk.paths import repair
from orchestrator.errors import RunDirectoryError, StoreError
from orchestrator.recipe.schema import RecipeFile
from orchestrator.recipe.source import dump_yaml
from orchestrator.store import RunDirectory, Store

_log = logging.getLogger(__name__)

REVISION: Final = "revision"
"""Key of the last text in a store."""

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SUM: Final = "# checksum "
# No recipe comes near these; a text made to take all memory does.
_MOST_BYTES: Final = 8 << 20
_MOST_VALUES: Final = 400_000
_MOST_DEPTH: Final = 100
_UNREADABLE: Final = (ValueError, yaml.YAMLError, RecursionError)
# What other versions may have or lack, and names, which are shown with care whatever they are.
_OF_OTHER_VERSIONS: Final = {
    "extra_forbidden", "missing", "too_short", "string_pattern_mismatch", "string_too_long",
}  # fmt: skip


def revision_text(record: dict[str, Any]) -> str:
    """Return the text of a revision, with its checksum in the first line."""
    text = dump_yaml({"orchestrator": __version__, **record})
    return f"{_SUM}{crc32(text.encode()):08x}\n{text}"


_RESTORES: Final = "restores it, or `orchestrator run` with the same recipe rewrites it"


def last_revision(run_dir: RunDirectory) -> dict[str, Any] | None:
    """Return what the last call wrote about its recipe; None before the first.

    Raises:
        StoreError: If it is damaged, or larger than any.
    """
    file = run_dir.last_revision
    if file is None:
        return None
    try:
        return parse(files.read(file, _MOST_BYTES))
    except (OSError, *_UNREADABLE) as error:
        why = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        said = f"{file} is damaged: {why}. {repair(file.parents[1], _RESTORES)}"
        raise StoreError(f"{said} without sending requests") from error


def stored_revision(store: Store, run_dir: RunDirectory) -> dict[str, Any]:
    """Return what the last call wrote about its recipe, as the store has it.

    The file is newer for a moment when a call begins. It is read where the store has
    none, or a damaged one.

    Raises:
        StoreError: If none can be read although there is a plan.
    """
    text = store.meta.get(REVISION)
    if text is not None and text.startswith(_SUM):
        with suppress(*_UNREADABLE):
            return parse(text.encode())
    found = last_revision(run_dir)
    if found is None and (text is not None or store.current_plan is not None):
        raise missing(run_dir.path)
    return found or {}


def missing(run: Path) -> StoreError:
    """Return the error for a run whose recipe is gone, with the remedy."""
    return StoreError(f"{run}: the recipe of this run is missing. {repair(run, _RESTORES)}")


def parse(content: bytes) -> dict[str, Any]:
    """Return the mapping that a revision is, with the mappings in it that all have.

    Its values are held to what a recipe may say, but for settings of other versions.

    Raises:
        ValueError: If it is another text, also one that is no UTF-8, or holds another value.
        yaml.YAMLError: If it is no YAML.
    """
    text = content.decode()
    head, _, rest = text.partition("\n")
    if head.startswith(_SUM) and head != f"{_SUM}{crc32(rest.encode()):08x}":
        raise ValueError("its checksum differs")
    _check_size(text)
    found = yaml.load(text, Loader=_Loader)  # noqa: S506 (the C twin of SafeLoader)
    if not isinstance(found, dict):
        raise ValueError("it is not a mapping")  # noqa: TRY004 (a fault of the text)
    if not all(isinstance(found.get(name), dict) for name in ("identities", "recipe")):
        raise ValueError("it has no recipe")
    json.dumps(found, default=str)  # no value holds itself
    _check_values(found)
    return found


def _check_values(found: Mapping[str, Any]) -> None:
    try:
        RecipeFile.model_validate(found["recipe"])
    except ValidationError as error:
        wrong = [one for one in error.errors() if one["type"] not in _OF_OTHER_VERSIONS]
        if wrong:
            where = ".".join(map(str, wrong[0]["loc"]))
            raise ValueError(f"recipe.{where}: {wrong[0]['msg']}") from error
    for name in ("methods", "analyses"):
        if not all(isinstance(one, dict) for one in found["recipe"].get(name, ())):
            raise ValueError(f"recipe.{name}: an entry is not a mapping")
    if not all(isinstance(one, dict) for one in found["identities"].values()):
        raise ValueError("identities: one is not a mapping")


def _check_size(text: str) -> None:
    """Refuse a text of more values, including aliases, or more levels than a recipe has."""
    sizes: dict[str, int] = {}
    opened: list[tuple[str | None, int]] = []
    n_values = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor is not None:
                sizes[anchor] = n_values - before
            continue
        if isinstance(event, yaml.AliasEvent):
            n_values += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, n_values))
            n_values += 1
        elif isinstance(event, yaml.ScalarEvent):
            n_values += 1
        if n_values > _MOST_VALUES or len(opened) > _MOST_DEPTH:
            raise ValueError("it has more values, or more levels, than a recipe")


def revision_of(run_dir: RunDirectory, name: str) -> dict[str, Any] | None:
    """As `last_revision`, for a recipe that is to run there; a damaged record counts as none.

    Raises:
        RunDirectoryError: If the last recipe had another name, so that a mistyped `--run-dir` does
            not turn one run into another.
    """
    try:
        found = last_revision(run_dir)
    except StoreError as error:
        _log.warning("%s; the recipe of a run replaces it", error)
        return None
    there = (found or {}).get("recipe", {}).get("name", name)
    if there != name:
        raise RunDirectoryError(
            f"{run_dir.path} holds a run of the recipe {there!r}, not of {name!r}; use another "
            f"--run-dir, or write 'name: {there}' into the recipe to go on with that run"
        )
    return found
