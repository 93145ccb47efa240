"""`check`: all faults of a recipe. Imports neither statistics nor polars, for editors and hooks."""

import contextlib
import importlib
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.disk.paths import RUNS
from orchestrator.errors import LaunchError, UsageError
from orchestrator.plugins.permission import is_allowed
from orchestrator.recipe import schema
from orchestrator.recipe.load import find
from orchestrator.recipe.load import load as load_recipe
from orchestrator.runner.models.identity import launch_of
from orchestrator.runner.planning.prepare import Prepared, prepare
from orchestrator.runner.planning.similar_items import notes_on_items

if TYPE_CHECKING:
    from orchestrator.interface.recipe import Recipe


def check(
    recipe: "str | PathLike[str] | Recipe",
    *,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    allow_code: bool = False,
    online: bool = False,
) -> tuple[str, ...]:
    """Check a recipe as a run would before it sends anything. Starts and sends nothing.

    Args:
        recipe: The path of a file, the name of a bundled recipe, or a `Recipe`.
        overrides: Settings as `a.b=c`.
        limit: Use only this many items from the start.
        allow_code: Run code and programs that the recipe names.
        online: Ask servers that run already, by a few small requests, for what the recipe needs of
            them, and whether they take the key and have the model.

    Returns:
        Notes on what is no fault, such as near-duplicate items or weights that are not on this
        machine; a sentence each.

    Raises:
        RecipeError: With all faults of the recipe.
        UsageError: If a dataset is malformed, a server can't do what is asked, or an extra that the
            recipe needs is not installed.

    Example:
        >>> import orchestrator
        >>> orchestrator.check("pairwise_ranking")
        ()
    """
    loaded = loaded_recipe(recipe, overrides, limit, allow_code=allow_code)
    if trackers := loaded.settings.log_to:
        importlib.import_module("orchestrator.interface.tracking").needed(trackers)
    # Elsewhere another Python may run the servers.
    cluster = loaded.settings.cluster
    for spec in () if cluster.python or cluster.container else loaded.models.values():
        if spec.server is not None:
            allowed = _allowed(recipe, allow_code=allow_code) or is_allowed(Path(loaded.file))
            launch_of(spec, allow_code=allowed).check_installed()
    if loaded.reuse:
        with importlib.import_module("orchestrator.runner.planning.reuse").open_lenders(
            loaded.reuse, None
        ):
            pass
    try:
        prepared = prepared_from(recipe, allow_code=allow_code, loaded=loaded)
    except LaunchError as error:
        # Weights that are on another machine are no fault of the recipe.
        return (f"not on this machine: {error}",)
    notes = (*prepared.read_as, *notes_on_items(prepared))
    if not online:
        return notes
    # What asks servers is imported for that only: editors check without.
    look = importlib.import_module("orchestrator.interface.online").look
    return (*notes, *look(prepared))


def loaded_recipe(
    recipe: "str | PathLike[str] | Recipe",
    overrides: Sequence[str],
    limit: int | None,
    *,
    allow_code: bool,
) -> schema.Recipe:
    """Return the validated recipe.

    Raises:
        UsageError: If there is no such recipe, or with all its faults.
    """
    if not isinstance(recipe, str | PathLike):
        if not hasattr(recipe, "load"):
            raise UsageError("a recipe is a path, a name or an orchestrator.Recipe(**settings)")
        return recipe.load(overrides, limit, allow_code=allow_code)
    return load_recipe(find(recipe), overrides=overrides, limit=limit, allow_code=allow_code)


def _allowed(recipe: "str | PathLike[str] | Recipe", *, allow_code: bool) -> bool:
    return allow_code or (not isinstance(recipe, str | PathLike) and recipe.allow_code)


def prepared_from(
    recipe: "str | PathLike[str] | Recipe",
    overrides: Sequence[str] = (),
    limit: int | None = None,
    *,
    allow_code: bool,
    loaded: schema.Recipe | None = None,
) -> Prepared:
    """Return a recipe with its dataset opened and its units counted.

    It is read as by `loaded_recipe`, unless it was `loaded` before.

    Raises:
        OrchestratorError: If there is no such recipe, or it can't be run.
    """
    if loaded is None:
        loaded = loaded_recipe(recipe, overrides, limit, allow_code=allow_code)
    blaming = contextlib.nullcontext() if isinstance(recipe, str | PathLike) else recipe.blaming()
    with blaming:
        return prepare(loaded, allow_code=_allowed(recipe, allow_code=allow_code))


def directory_of(run_dir: str | PathLike[str] | None, name: str) -> Path:
    """Return the run directory that a caller names; that of the recipe's name if none."""
    return Path(RUNS) / name if run_dir is None else Path(run_dir)
