"""A run from what its caller gave: the recipe, and options by keyword."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.disk.paths import RUNS
from orchestrator.report.display import Kind, make_display
from orchestrator.runner.interface.checking import loaded_recipe, prepared_recipe
from orchestrator.runner.interface.on_end import own_hook
from orchestrator.runner.interface.running import How, run_prepared
from orchestrator.runner.servers.slurm import On
from orchestrator.runner.session.event_loop import Stop

if TYPE_CHECKING:
    from orchestrator.runner.interface.recipe import Recipe
    from orchestrator.runner.interface.result import Result


def start(  # noqa: PLR0913 (options of one command, by keyword)
    recipe: "str | PathLike[str] | Recipe",
    stop: Stop,
    *,
    decide: "Callable[[Result, Callable[[str], None]], None]",
    run_dir: str | PathLike[str] | None,
    overrides: Sequence[str],
    limit: int | None,
    fresh: bool,
    display: Kind | None,
    accept_server_change: bool,
    keep_servers: bool,
    on_end: str | None,
    on: On,
    allow_code: bool,
) -> "Result":
    """Run a recipe, or continue where it stopped; `api.run` describes the options.

    Args:
        recipe: The path of a file, the name of a bundled recipe, or a `Recipe`.
        stop: Asked from another thread to stop the run.
        decide: Holds the run against the gates of its recipe; called with a function for notes.
        run_dir: As in `api.run`, as all below.
        overrides: Settings as `a.b=c`.
        limit: Of items.
        fresh: Begin in a new directory.
        display: Kind of display.
        accept_server_change: Continue even if another server answered before.
        keep_servers: Leave launched servers running.
        on_end: Command for the shell when the call ends.
        on: Machines that launched servers run on.
        allow_code: Run code and programs that the recipe names.

    Raises:
        RecipeError: With all faults of the recipe.
        OrchestratorError: If the run can't begin or continue.
    """
    loaded, base, given = loaded_recipe(recipe, overrides, limit, allow_code=allow_code)
    if on_end is not None:
        settings = loaded.settings.model_copy(update={"on_end": own_hook(on_end)})
        loaded = replace(loaded, settings=settings)
    prepared = prepared_recipe(loaded, base, given, allow_code=allow_code)
    how = How(
        where=directory_of(run_dir, loaded.name),
        fresh=fresh,
        accept_change=accept_server_change,
        keep_servers=keep_servers,
        on=on,
        stop=stop,
    )
    return run_prepared(prepared, given, make_display(display, sys.stderr), how, decide)


def directory_of(run_dir: str | PathLike[str] | None, name: str) -> Path:
    """Return the run directory that a caller names; that of the recipe's name if none."""
    return Path(RUNS) / name if run_dir is None else Path(run_dir)
