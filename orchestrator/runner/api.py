"""Running a recipe from start to finish, and reading a run back: the Python interface."""

import contextlib
import importlib
import logging
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from orchestrator.analysis import RankingAnalysis
from orchestrator.errors import RunDirectoryError, StoreError, UsageError
from orchestrator.foreign import distrust, is_foreign
from orchestrator.frames import ITEMS, FrameFiles
from orchestrator.paths import STORE_NAME
from orchestrator.permission import is_permitted
from orchestrator.recipe.load import find
from orchestrator.recipe.load import load as load_recipe
from orchestrator.report.completeness import Completeness
from orchestrator.report.display import Display, Kind, make_display
from orchestrator.report.progress import Progress
from orchestrator.runner.alike import notes_on_frame, notes_on_items
from orchestrator.runner.announced import announce
from orchestrator.runner.counts import blocks_of, count_prepared
from orchestrator.runner.execute import Ended, Opened, execute, open_plan
from orchestrator.runner.identity import identity_key
from orchestrator.runner.keeping import NAME as NUMBERS
from orchestrator.runner.keeping import Keeping
from orchestrator.runner.late import Late, late_interrupts
from orchestrator.runner.logs import logged
from orchestrator.runner.loop import run_to_end
from orchestrator.runner.opened import frames_of
from orchestrator.runner.options import RUNS as _RUNS
from orchestrator.runner.placing import look_for_places
from orchestrator.runner.prepare import Prepared, prepare
from orchestrator.runner.results import (
    analyse,
    answer_summary,
    completeness,
    export,
    export_items,
    missing_notes,
    notes_of,
    remember_schemas,
)
from orchestrator.runner.reuse import open_lenders
from orchestrator.runner.revisions import last_revision
from orchestrator.runner.spending import money_spent
from orchestrator.runner.stopping import Orders, declared_only, read_orders, tables_of
from orchestrator.runner.tables import summarise
from orchestrator.store import RunDirectory, Store, newest
from orchestrator.tables import Table
from orchestrator.units import PlanCount

RUNS = Path(_RUNS)

_log = logging.getLogger(__name__)


class _How(msgspec.Struct, frozen=True, kw_only=True):
    """Treatment of servers in a call."""

    accept_change: bool
    keep_servers: bool


class Result:
    """A run that can be read: its frames and what they say.

    Attributes:
        path: The run directory.
        ended: How the last call ended; None where the run was only loaded.
        notes: What a reader of the tables must know, e.g. that several servers answered.
        completeness: How far the run is, and how many units failed.
        frames: The frames of the current recipe by name, e.g. "answers", "judgments".
        orders: What a stopping rule declared; None where the recipe has none.
        allow_code: Whether kinds from outside this project may be imported.
    """

    def __init__(  # noqa: PLR0913 (what it shows, by keyword)
        self,
        path: Path,
        ended: Ended | None = None,
        notes: Sequence[str] = (),
        *,
        completeness: Completeness | None = None,
        allow_code: bool = False,
        frames: FrameFiles | None = None,
        orders: Orders | None = None,
    ) -> None:
        self.path = path
        self.frames = FrameFiles(path / "results") if frames is None else frames
        self.ended = ended
        self.notes = tuple(notes)
        self.completeness = completeness or Completeness()
        self.orders = orders
        self.allow_code = allow_code

    @property
    def n_left(self) -> int:
        """Units that have no row yet and need one."""
        return self.completeness.left

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The resolved recipe of the last call."""
        return dict((last_revision(RunDirectory.open(self.path)) or {}).get("recipe", {}))

    @cached_property
    def rankings(self) -> list[RankingAnalysis]:
        """The ranking of each judge, and over all judges where there are several."""
        statistics = self.settings.get("statistics", {})
        found = analyse(
            self.frames,
            confidence_level=statistics.get("confidence_level", 0.95),
            n_resamples=statistics.get("n_resamples", 2000),
            seed=self.settings.get("seed", 0),
        )
        orders = self.orders
        return found if orders is None else [declared_only(one, orders) for one in found]

    @cached_property
    def tables(self) -> list[Table]:
        """Declared orders, then what the methods' summaries and the recipe's analyses say."""
        declared = [] if self.orders is None else tables_of(self.orders, self.rankings)
        keeping = Keeping(self.frames.folder / NUMBERS)
        said = summarise(self.frames, self.settings, allow_code=self.allow_code, keeping=keeping)
        return [*declared, *said]

    @cached_property
    def exact_match(self) -> dict[str, float | None]:
        """Share of answers equal to the reference, by model."""
        return answer_summary(self.frames.columns("answers", ("model", "exact_match")))

    @property
    def charts(self) -> dict[str, Any]:
        """The charts of the HTML report as Altair objects, by key; needs the extra `[report]`."""
        found: dict[str, Any] = _document().charts(self)
        return found

    def _repr_html_(self) -> str:
        """The run in short, in a notebook."""
        said: str = _document().summary(self)
        return said


def _document() -> ModuleType:
    # It imports this module, and nothing else needs what it imports.
    return importlib.import_module("orchestrator.runner.document")


def load(run_dir: str | Path, *, allow_code: bool = False, untrusted: bool = False) -> Result:
    """Read a run, also one that is still running or was interrupted.

    Args:
        run_dir: Its folder.
        allow_code: Import kinds from outside this project for what they say about their rows.
        untrusted: Treat it as another user's run: write nothing into it, and bound what reading its
            store takes. `docs/security.md` says what that covers.

    Raises:
        RunDirectoryError: If there is no run.
        UsageError: If code is allowed for a run of another user.
    """
    path = newest(Path(run_dir))
    if untrusted:
        distrust(path)
    return read(path, allow_code=allow_code)


def read(path: Path, *, allow_code: bool = False, apart: Path | None = None) -> Result:
    """As `load`, of this very folder, also where a newer run stands beside it.

    Args:
        path: The folder.
        allow_code: Import kinds from outside this project.
        apart: Folder for the frames where nothing may be written into the run's; those that are
            there and up to date are read all the same.

    Raises:
        RunDirectoryError: If there is no run.
    """
    if not (path / STORE_NAME).exists():
        raise RunDirectoryError(f"{path}: no run is kept here; `orchestrator runs` lists them")
    if allow_code and is_foreign(path):
        raise UsageError(f"{path} is a run of another user, for which no code is imported")
    allow_code = is_permitted(path, allow_code=allow_code)
    directory = RunDirectory.open(path)
    with Store.open(directory.store_path, read_only=True) as store:
        frames = frames_of(store, directory, apart)
        revision = last_revision(directory)
        if revision is None and store.current_plan is not None:
            raise StoreError(
                f"{directory.revisions}: the recipe of this run is missing. `orchestrator repair "
                f"RUN` restores it, or the same `orchestrator run` writes it again"
            )
        revision = revision or {}
        identities = revision.get("identities", {})
        keys = {name: identity_key(identity) for name, identity in identities.items()}
        notes = [*missing_notes(store, directory), *notes_of(store, keys, frames)]
        if ITEMS in frames:
            notes += notes_on_frame(frames.scan(ITEMS), revision.get("recipe", {}))
        if store.current_plan is None:
            notes.append(
                "this run has no rows: it was repaired, or is beginning. The same `orchestrator "
                "run` makes them of what was answered, and asks only what is missing"
            )
        orders = read_orders(store)
        done = completeness(store, frames, None if orders is None else orders.n_not_needed)
    return Result(
        path, notes=notes, completeness=done, allow_code=allow_code, frames=frames, orders=orders
    )


def run(  # noqa: PLR0913 (options of one command, all but one by keyword)
    recipe: str | Path,
    *,
    run_dir: str | Path | None = None,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    fresh: bool = False,
    display: Kind | None = "none",
    accept_server_change: bool = False,
    keep_servers: bool = False,
    allow_code: bool = False,
) -> Result:
    """Run a recipe, or go on where it stopped.

    Args:
        recipe: Path or name.
        run_dir: Where to keep the run; `runs/<recipe name>` where left out.
        overrides: Settings as `a.b=c`.
        limit: Use the first so many items.
        fresh: Begin in a new directory.
        display: "live", "plain", "json", "none"; None chooses.
        accept_server_change: Go on although another server answered before.
        keep_servers: Leave the servers that were launched running for a later run.
        allow_code: Import kinds from outside this project.

    Raises:
        OrchestratorError: If the recipe is wrong or the run can't go on.
    """
    how = _How(accept_change=accept_server_change, keep_servers=keep_servers)
    path = find(str(recipe))
    loaded = load_recipe(path, overrides=overrides, limit=limit, allow_code=allow_code)
    prepared = prepare(loaded, path.parent, allow_code=allow_code)
    shown = make_display(display, sys.stderr)
    where = _where(run_dir, loaded.name)
    with (
        open_lenders(loaded.reuse, None if fresh else newest(where)) as lenders,
        late_interrupts() as late,
        RunDirectory.lock(where, fresh=fresh) as directory,
    ):
        prepared = msgspec.structs.replace(prepared, lenders=lenders)
        return _run(prepared, directory, shown, how, late)


def _run(
    prepared: Prepared, directory: RunDirectory, shown: Display, how: _How, late: Late
) -> Result:
    """Run the remaining units of a run in the directory that is held for it; return its frames."""
    with logged(directory.log_path, shown), Store.open(directory.store_path) as store:
        for line in missing_notes(store, directory):
            shown.note(line)
        opened = open_plan(prepared, directory, store)
        remember_schemas(prepared.plan, store)
        alike = notes_on_items(prepared)
        for line in (*announce(prepared, opened, store), *alike):
            shown.note(line)
        ended = _finish(prepared, opened, directory, store, shown, how)
        late.begin()
        export_items(prepared.dataset, directory, late)
        export(store, directory.results, late)
        frames = FrameFiles(directory.results)
        notes = notes_of(store, prepared.plan.identities, frames)
        for line in notes:
            shown.note(line)
        orders = read_orders(store)
        done = completeness(store, frames, opened.n_not_needed)
        money = money_spent(prepared, store)
        said = msgspec.to_builtins(_at_end(directory, ended, done, money))
        directory.write_status(said, last_outcome=store.last_outcome)
    return Result(
        directory.path,
        ended,
        [*notes, *alike],
        completeness=done,
        allow_code=prepared.allow_code,
        frames=frames,
        orders=orders,
    )


def _at_end(
    directory: RunDirectory, ended: Ended, done: Completeness, money: float | None
) -> Progress:
    """The last state of a call, with the units that failed in earlier calls."""
    progress = ended.progress or Progress(
        run_dir=str(directory.path),
        units_total=done.total,
        units_stored=done.ended,
        units_not_needed=done.not_needed,
        money=money,
    )
    before = max(0, done.failed - progress.units_failed)
    return msgspec.structs.replace(progress, units_failed_before=before)


def _finish(
    prepared: Prepared,
    opened: Opened,
    directory: RunDirectory,
    store: Store,
    shown: Display,
    how: _How,
) -> Ended:
    left = opened.done.count(0)
    if left == 0:
        n_stored = len(prepared.plan) - opened.n_not_needed
        shown.note(f"complete: nothing to send ({n_stored:,} units in the store)")
        return Ended(None, "", interrupted=False)
    shown.start(f"{prepared.recipe.name} → {directory.path}", len(prepared.plan))
    try:
        return run_to_end(
            lambda stop: execute(
                prepared,
                opened,
                directory,
                store,
                accept_change=how.accept_change,
                keep_servers=how.keep_servers,
                watch=shown.update,
                stop=stop,
            )
        )
    finally:
        shown.stop()


def plan(  # noqa: PLR0913 (options, by keyword)
    recipe: str | Path,
    *,
    run_dir: str | Path | None = None,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    allow_code: bool = False,
    exact: bool = False,
    advance: Callable[[int], None] = lambda _: None,
) -> PlanCount:
    """Count what a run would send; sends nothing, writes nothing.

    Numbers of a plan of over 20,000 units are estimates, with a note, unless `exact`.

    Raises:
        OrchestratorError: If the recipe is wrong.
    """
    path = find(str(recipe))
    loaded = load_recipe(path, overrides=overrides, limit=limit, allow_code=allow_code)
    prepared = prepare(loaded, path.parent, allow_code=allow_code)
    where = newest(_where(run_dir, loaded.name))
    servers = look_for_places(prepared).words()
    with contextlib.ExitStack() as stack:
        lenders = stack.enter_context(open_lenders(loaded.reuse, where))
        prepared = msgspec.structs.replace(prepared, lenders=lenders)
        store = None
        path = where / STORE_NAME
        # A run that is just beginning has an empty file for a moment.
        if path.exists() and path.stat().st_size:
            store = stack.enter_context(Store.open(path, read_only=True))
        counted = count_prepared(
            prepared, store, blocks_of(prepared, store), exact=exact, advance=advance
        )
    notes = (*counted.notes, *notes_on_items(prepared))
    return msgspec.structs.replace(counted, servers=servers, notes=notes)


def _where(run_dir: str | Path | None, name: str) -> Path:
    return RUNS / name if run_dir is None else Path(run_dir)
