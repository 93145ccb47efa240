"""The Python interface. The command line calls the same functions.

Each function that takes time has a twin to be awaited, its name with an `a` in front, as in
Django and LangChain. A twin does its work in a thread with an event loop of its own: reading
datasets and writing frames blocks, and the caller's loop must not wait for it.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path

import msgspec

from orchestrator.disk.paths import RUNS as _RUNS
from orchestrator.disk.paths import STORE_NAME
from orchestrator.errors import MethodError
from orchestrator.report.display import Kind
from orchestrator.report.planned import Plan
from orchestrator.runner.comparing.comparison import Comparison, compare
from orchestrator.runner.comparing.gating import gate, hold
from orchestrator.runner.interface.checking import check, loaded_recipe, prepared_recipe
from orchestrator.runner.interface.citation import Citation
from orchestrator.runner.interface.merging import Merged, merge
from orchestrator.runner.interface.recipe import Recipe
from orchestrator.runner.interface.result import Result, load, read
from orchestrator.runner.interface.starting import directory_of, start
from orchestrator.runner.interface.verdict import GateResult
from orchestrator.runner.planning.counts import blocks_of, count_prepared
from orchestrator.runner.planning.durations import duration_of, earlier_paces
from orchestrator.runner.planning.reuse import open_lenders
from orchestrator.runner.planning.revisions import revision_of
from orchestrator.runner.planning.similar_items import notes_on_items
from orchestrator.runner.servers.placement import look_for_places
from orchestrator.runner.servers.slurm import On, commands
from orchestrator.runner.session.event_loop import Stop, in_thread
from orchestrator.store import RunDirectory, Store, check_usable, newest

__all__ = [
    "RUNS",
    "Citation",
    "Comparison",
    "GateResult",
    "Merged",
    "Plan",
    "Recipe",
    "Result",
    "acheck",
    "acompare",
    "agate",
    "aload",
    "amerge",
    "aplan",
    "arun",
    "check",
    "compare",
    "gate",
    "load",
    "merge",
    "plan",
    "read",
    "run",
]

RUNS = Path(_RUNS)


def run(  # noqa: PLR0913 (options of one command, all but one by keyword)
    recipe: str | PathLike[str] | Recipe,
    *,
    run_dir: str | PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    fresh: bool = False,
    display: Kind | None = "auto",
    accept_server_change: bool = False,
    keep_servers: bool = False,
    on_end: str | None = None,
    on: On = "local",
    allow_code: bool = False,
) -> Result:
    """Run a recipe, or continue where it stopped.

    Works in a notebook too. An interrupt while requests are sent (Ctrl-C, or the stop button) stops
    softly: no new requests are sent, those in flight may end, every answer is recorded, and the
    result says so (`result.ended.interrupted`). The same call continues.

    Args:
        recipe: The path of a file, the name of a bundled recipe, or a `Recipe`.
        run_dir: Where to keep the run; `runs/<recipe name>` if omitted.
        overrides: Settings as `a.b=c`.
        limit: Use only this many items from the start.
        fresh: Begin in a new directory.
        display: "live", "plain", "json", "notebook" or "none"; "auto" is "notebook" in a notebook
            and otherwise "none"; None is "live" at a terminal and otherwise "plain".
        accept_server_change: Continue even if another server answered before.
        keep_servers: Leave the servers that were launched running for a later run.
        on_end: Command for the shell when the call ends, with the result in its environment,
            instead of the recipe's `on_end`. It gets all environment variables, and needs no
            permission.
        on: Start servers on this machine ("local"), or on the nodes of a cluster of Slurm
            ("slurm") or Ray ("ray").
        allow_code: Run code and programs that the recipe names.

    Returns:
        The run, with its frames, rankings, tables and reports.

    Raises:
        RecipeError: With all faults of the recipe.
        OrchestratorError: If the run can't begin or continue.

    Example:
        >>> result = orchestrator.run("pairwise_ranking", limit=20)  # doctest: +SKIP
        >>> result.frames["judgments"]  # doctest: +SKIP
    """
    call = partial(
        start,
        recipe,
        decide=hold,
        run_dir=run_dir,
        overrides=overrides,
        limit=limit,
        fresh=fresh,
        display=display,
        accept_server_change=accept_server_change,
        keep_servers=keep_servers,
        on_end=on_end,
        on=on,
        allow_code=allow_code,
    )
    return call(Stop())


async def arun(  # noqa: PLR0913 (options of one command, all but one by keyword)
    recipe: str | PathLike[str] | Recipe,
    *,
    run_dir: str | PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    fresh: bool = False,
    display: Kind | None = "auto",
    accept_server_change: bool = False,
    keep_servers: bool = False,
    on_end: str | None = None,
    on: On = "local",
    allow_code: bool = False,
) -> Result:
    """Run a recipe without blocking the event loop; see `run`.

    Cancelling stops softly: what is in flight may end, every answer is recorded, and then
    `asyncio.CancelledError` is raised. Cancelling again abandons what is in flight. Several runs
    may go on at once, each in its own directory.

    Args:
        recipe: As in `run`.
        run_dir: As in `run`.
        overrides: As in `run`.
        limit: As in `run`.
        fresh: As in `run`.
        display: As in `run`.
        accept_server_change: As in `run`.
        keep_servers: As in `run`.
        on_end: As in `run`.
        on: As in `run`.
        allow_code: As in `run`.

    Returns:
        As `run`.

    Raises:
        RecipeError: With all faults of the recipe.
        OrchestratorError: If the run can't begin or continue.

    Example:
        >>> result = await orchestrator.arun("pairwise_ranking")  # doctest: +SKIP
    """
    call = partial(
        start,
        recipe,
        decide=hold,
        run_dir=run_dir,
        overrides=overrides,
        limit=limit,
        fresh=fresh,
        display=display,
        accept_server_change=accept_server_change,
        keep_servers=keep_servers,
        on_end=on_end,
        on=on,
        allow_code=allow_code,
    )
    return await in_thread(call)


def plan(  # noqa: PLR0913 (options, by keyword)
    recipe: str | PathLike[str] | Recipe,
    *,
    run_dir: str | PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    on: On = "local",
    allow_code: bool = False,
    exact: bool = False,
    advance: Callable[[int], None] = lambda _: None,
) -> Plan:
    """Count what a run would send. Sends nothing and writes nothing.

    Numbers of a plan of over 20,000 units are estimates, with a note, unless `exact`.

    Args:
        recipe: As in `run`.
        run_dir: As in `run`; what it holds already is not counted again.
        overrides: As in `run`.
        limit: As in `run`.
        on: As in `run`; but for "local" the plan has the command of each server.
        allow_code: As in `run`.
        exact: Count every unit of a large plan instead of some.
        advance: Called with the number of items counted since the last call.

    Returns:
        Requests, tokens and money by stage and model.

    Raises:
        RecipeError: With all faults of the recipe.
        MethodError: If a method raises on one of its units.
        OrchestratorError: If a dataset, a server or the run directory can't be used.

    Example:
        >>> import orchestrator
        >>> orchestrator.plan("pairwise_ranking", limit=3, run_dir="nowhere").n_items
        3
    """
    loaded, base, given = loaded_recipe(recipe, overrides, limit, allow_code=allow_code)
    prepared = prepared_recipe(loaded, base, given, allow_code=allow_code)
    where = newest(directory_of(run_dir, loaded.name))
    check_usable(where)
    servers = look_for_places(prepared).words() if on == "local" else commands(prepared, on)
    with contextlib.ExitStack() as stack:
        lenders = stack.enter_context(open_lenders(loaded.reuse, where))
        prepared = msgspec.structs.replace(prepared, lenders=lenders)
        store = None
        path = where / STORE_NAME
        # A run that is just beginning has an empty file for a moment.
        if path.exists() and path.stat().st_size:
            revision_of(RunDirectory.open(where), loaded.name)
            store = stack.enter_context(Store.open(path, read_only=True))
        counted = count_prepared(
            prepared, store, blocks_of(prepared, store), exact=exact, advance=advance
        )
    if counted.fault:
        raise MethodError(counted.fault)
    notes = (*counted.notes, *notes_on_items(prepared))
    is_known = counted.is_known
    duration = duration_of(counted.stages, earlier_paces(prepared, where)) if is_known else None
    return msgspec.structs.replace(counted, servers=servers, notes=notes, duration=duration)


async def aplan(  # noqa: PLR0913 (options, by keyword)
    recipe: str | PathLike[str] | Recipe,
    *,
    run_dir: str | PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    on: On = "local",
    allow_code: bool = False,
    exact: bool = False,
) -> Plan:
    """Count what a run would send, without blocking the event loop; see `plan`.

    Args:
        recipe: As in `run`.
        run_dir: As in `plan`.
        overrides: As in `run`.
        limit: As in `run`.
        on: As in `run`; but for "local" the plan has the command of each server.
        allow_code: As in `run`.
        exact: As in `plan`.

    Returns:
        As `plan`.

    Raises:
        OrchestratorError: As `plan`.

    Example:
        >>> counted = await orchestrator.aplan("pairwise_ranking")  # doctest: +SKIP
    """
    call = partial(
        plan,
        recipe,
        run_dir=run_dir,
        overrides=overrides,
        limit=limit,
        on=on,
        allow_code=allow_code,
        exact=exact,
    )
    return await in_thread(lambda _: call())


async def acheck(
    recipe: str | PathLike[str] | Recipe,
    *,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    allow_code: bool = False,
    online: bool = False,
) -> tuple[str, ...]:
    """Check a recipe without blocking the event loop; see `check`.

    Args:
        recipe: As in `run`.
        overrides: As in `run`.
        limit: As in `run`.
        allow_code: As in `run`.
        online: As in `check`.

    Returns:
        As `check`.

    Raises:
        UsageError: As `check`.

    Example:
        >>> notes = await orchestrator.acheck("pairwise_ranking")  # doctest: +SKIP
    """
    call = partial(
        check, recipe, overrides=overrides, limit=limit, allow_code=allow_code, online=online
    )
    return await in_thread(lambda _: call())


async def aload(
    run_dir: str | PathLike[str], *, allow_code: bool = False, untrusted: bool = False
) -> Result:
    """Read a run without blocking the event loop; see `load`.

    Args:
        run_dir: As in `load`.
        allow_code: As in `load`.
        untrusted: As in `load`.

    Returns:
        As `load`.

    Raises:
        OrchestratorError: As `load`.

    Example:
        >>> result = await orchestrator.aload("runs/pairwise_ranking")  # doctest: +SKIP
    """
    call = partial(load, run_dir, allow_code=allow_code, untrusted=untrusted)
    return await in_thread(lambda _: call())


async def acompare(
    *runs: Result | str | PathLike[str],
    by: str | None = None,
    match: Sequence[str] = (),
    scores: Sequence[str] = (),
    baseline: str = "",
    confidence_level: float = 0.95,
    allow_code: bool = False,
) -> Comparison:
    """Compare runs without blocking the event loop; see `compare`.

    Args:
        runs: As in `compare`.
        by: As in `compare`.
        match: As in `compare`.
        scores: As in `compare`.
        baseline: As in `compare`.
        confidence_level: As in `compare`.
        allow_code: As in `compare`.

    Returns:
        As `compare`.

    Raises:
        OrchestratorError: As `compare`.

    Example:
        >>> found = await orchestrator.acompare("runs/a", "runs/b")  # doctest: +SKIP
    """
    call = partial(
        compare,
        *runs,
        by=by,
        match=match,
        scores=scores,
        baseline=baseline,
        confidence_level=confidence_level,
        allow_code=allow_code,
    )
    return await in_thread(lambda _: call())


async def agate(
    run: Result | str | PathLike[str],
    requirements: Sequence[str] | None = None,
    *,
    against: Result | str | PathLike[str] | None = None,
    match: Sequence[str] = (),
    confidence_level: float | None = None,
    allow_code: bool = False,
) -> GateResult:
    """Hold a run against requirements without blocking the event loop; see `gate`.

    Args:
        run: As in `gate`.
        requirements: As in `gate`.
        against: As in `gate`.
        match: As in `gate`.
        confidence_level: As in `gate`.
        allow_code: As in `gate`.

    Returns:
        As `gate`.

    Raises:
        OrchestratorError: As `gate`.

    Example:
        >>> found = await orchestrator.agate("runs/new", ["large > medium"])  # doctest: +SKIP
    """
    call = partial(
        gate,
        run,
        requirements,
        against=against,
        match=match,
        confidence_level=confidence_level,
        allow_code=allow_code,
    )
    return await in_thread(lambda _: call())


async def amerge(
    *runs: str | PathLike[str],
    into: str | PathLike[str],
    accept_server_change: bool = False,
) -> Merged:
    """Put runs together without blocking the event loop; see `merge`.

    Args:
        runs: As in `merge`.
        into: As in `merge`.
        accept_server_change: As in `merge`.

    Returns:
        As `merge`.

    Raises:
        OrchestratorError: As `merge`.

    Example:
        >>> merged = await orchestrator.amerge("runs/a", into="runs/all")  # doctest: +SKIP
    """
    call = partial(merge, *runs, into=into, accept_server_change=accept_server_change)
    return await in_thread(lambda _: call())
