"""The Python interface. The command line calls the same functions.

Each function that takes time has a twin to be awaited, its name with an `a` in front, as in
Django and LangChain. A twin does its work in a thread with an event loop of its own: reading
datasets and writing frames blocks, and the caller's loop must not wait for it.
"""

import contextlib
from collections.abc import Callable, Coroutine, Sequence
from functools import partial, wraps
from inspect import cleandoc
from os import PathLike
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec

from orchestrator.disk.paths import RUNS as _RUNS
from orchestrator.disk.paths import STORE_NAME
from orchestrator.errors import MethodError
from orchestrator.interface.checking import check, directory_of, prepared_from
from orchestrator.interface.comparison import Comparison, compare
from orchestrator.interface.gating import gate
from orchestrator.interface.loading import load, read
from orchestrator.interface.merging import Merged, merge
from orchestrator.interface.recipe import Recipe
from orchestrator.interface.result import Result
from orchestrator.interface.run import run
from orchestrator.references import Citation
from orchestrator.report.gate import GateResult
from orchestrator.report.planned import Plan
from orchestrator.runner.event_loop import in_thread
from orchestrator.runner.planning.counts import count_prepared, duration_of, earlier_paces
from orchestrator.runner.planning.reuse import open_lenders
from orchestrator.runner.planning.revisions import revision_of
from orchestrator.runner.planning.similar_items import notes_on_items
from orchestrator.runner.servers.slurm import On, commands
from orchestrator.runner.session.opening import check_retry
from orchestrator.store import RunDirectory, Store, check_usable, newest

__all__ = [
    "RUNS", "Citation", "Comparison", "GateResult", "Merged", "Plan", "Recipe", "Result", "acheck",
    "acompare", "agate", "aload", "amerge", "aplan", "arun", "check", "compare", "gate", "load",
    "merge", "plan", "read", "run",
]  # fmt: skip

RUNS = Path(_RUNS)

P = ParamSpec("P")
T = TypeVar("T")


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
    retry: str = "",
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
        retry: As in `run`.

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
    prepared = prepared_from(recipe, overrides, limit, allow_code=allow_code)
    where = newest(directory_of(run_dir, prepared.recipe.run_name))
    check_usable(where)
    if retry:
        check_retry(where, retry)
    servers = commands(prepared, on)
    with contextlib.ExitStack() as stack:
        lenders = stack.enter_context(open_lenders(prepared.recipe.reuse, where))
        prepared = msgspec.structs.replace(prepared, lenders=lenders, retry=retry)
        store = None
        path = where / STORE_NAME
        # A run that is just beginning has an empty file for a moment.
        if path.exists() and path.stat().st_size:
            revision_of(RunDirectory.open(where), prepared.recipe.name)
            store = stack.enter_context(Store.open(path, read_only=True))
        counted = count_prepared(prepared, store, exact=exact, advance=advance)
    if counted.fault:
        raise MethodError(counted.fault)
    notes = (*counted.notes, *prepared.read_as, *notes_on_items(prepared))
    is_known = counted.is_known
    duration = duration_of(counted.stages, earlier_paces(prepared, where)) if is_known else None
    return msgspec.structs.replace(counted, servers=servers, notes=notes, duration=duration)


def _awaitable(call: Callable[P, T], more: str = "") -> Callable[P, Coroutine[Any, Any, T]]:
    """Return the twin of a function: a coroutine function that does the same in a thread.

    `more` is a paragraph of documentation about the twin alone.
    """

    @wraps(call)
    async def twin(*args: P.args, **options: P.kwargs) -> T:
        return await in_thread(partial(call, *args, **options))

    name = call.__name__
    does, _, rest = cleandoc(call.__doc__ or "").partition(".")
    # `python -OO` leaves docstrings out.
    sections = rest[rest.find("Args:") : rest.find("Example:")]
    twin.__name__ = twin.__qualname__ = f"a{name}"
    twin.__doc__ = (
        f"{does} without blocking the event loop; see `{name}`.\n\n{more}{sections}"
        f"Example:\n    >>> await orchestrator.a{name}(...)  # doctest: +SKIP\n"
    )
    return twin


arun = _awaitable(
    run,
    """Cancelling stops softly: what is in flight may end, every answer is recorded, and then
`asyncio.CancelledError` is raised. Cancelling again abandons what is in flight. Several runs may go
on at once, each in its own directory.

""",
)
aplan = _awaitable(plan)
acheck = _awaitable(check)
aload = _awaitable(load)
acompare = _awaitable(compare)
agate = _awaitable(gate)
amerge = _awaitable(merge)
