"""One client of a run that several share: a process that `interface.clients` starts.

`python -m orchestrator.runner.interface.client JOB NUMBER`
"""

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from orchestrator.errors import (
    EXIT_COMPLETE,
    EXIT_INTERRUPTED,
    OrchestratorError,
    RunDirectoryError,
)
from orchestrator.placement import Share
from orchestrator.recipe.load import loads
from orchestrator.report.display import make_display
from orchestrator.runner.logs import logged
from orchestrator.runner.planning.prepare import Prepared, prepare
from orchestrator.runner.planning.reuse import open_lenders
from orchestrator.runner.planning.spending import SPENT
from orchestrator.runner.planning.stopping import NOT_NEEDED
from orchestrator.runner.servers.launched import Places
from orchestrator.runner.servers.registry import ServerRegistry
from orchestrator.runner.session.event_loop import Stop, run_to_end
from orchestrator.runner.session.execute import Opened, execute
from orchestrator.runner.session.leases import Leases
from orchestrator.runner.session.sharing import Sharing
from orchestrator.store import RunDirectory, Store

_BEAT_S: Final = 1.0
RECIPE: Final = "recipe.yaml"
LEASES: Final = "leases.sqlite"
SERVERS: Final = "servers"


class Job(msgspec.Struct, frozen=True):
    """What all clients of a call do.

    Attributes:
        run_dir: Of the run.
        plan: Hash of its plan, in hexadecimal digits.
        parent: The process that started them, and without which they end.
        allow_code: Whether kinds from outside this project may be imported.
        accept_change: Continue even if the server has changed.
        n_servers: How many servers there are of each model that is launched.
        apart: Models that share a server with no other.
    """

    run_dir: str
    plan: str
    parent: int
    allow_code: bool
    accept_change: bool
    n_servers: dict[str, int]
    apart: list[str]


def main(arguments: list[str]) -> int:
    """Evaluate items as one client of a run; return the exit code."""
    path, number = Path(arguments[0]), int(arguments[1])
    job = msgspec.json.decode(path.read_bytes(), type=Job)
    try:
        return _client(job, path.parent, number)
    except OrchestratorError as error:
        # The parent reads it, and says it once.
        sys.stderr.write(f"{error}\n")
        return error.exit_code


def _client(job: Job, folder: Path, number: int) -> int:
    prepared = _prepared(job, folder)
    leases = Leases(folder / LEASES)
    with (
        open_lenders(prepared.recipe.reuse, Path(job.run_dir)) as lenders,
        RunDirectory.lock(folder / str(number)) as directory,
    ):
        held = directory.check_owned

        def check() -> None:
            held()
            leases.check(number)

        directory.check_owned = check
        prepared = msgspec.structs.replace(prepared, lenders=lenders)
        with (
            logged(directory.log_path, make_display("none", sys.stderr)),
            Store.open(directory.store_path, check_owned=check) as store,
        ):
            return _share(job, folder, number, prepared, directory, store, leases)


def _prepared(job: Job, folder: Path) -> Prepared:
    """The recipe of the run.

    Raises:
        RunDirectoryError: If it is another plan now.
    """
    file = folder / RECIPE
    loaded = loads(file.read_bytes(), file, allow_code=job.allow_code)
    prepared = prepare(loaded, folder, allow_code=job.allow_code)
    if prepared.plan.hash().hex() != job.plan:
        raise RunDirectoryError(
            f"{file}: its items or models changed while clients were started; run the same command "
            "again"
        )
    return prepared


def _share(  # noqa: PLR0913 (the parts of a client)
    job: Job,
    folder: Path,
    number: int,
    prepared: Prepared,
    directory: RunDirectory,
    store: Store,
    leases: Leases,
) -> int:
    plan = prepared.plan
    with Store.open(Path(job.run_dir) / directory.store_path.name, read_only=True) as base:
        before = base.current_plan
        done = bytearray(len(plan)) if before is None else base.done_bitmap(before, len(plan))
    shares = {name: (Share(),) * n for name, n in job.n_servers.items()}
    places = Places(shares, frozenset(job.apart))
    registry = ServerRegistry(folder / SERVERS)
    sharing = Sharing(
        number, leases, Path(job.run_dir), folder, done, plan.n_per_item, registry, places
    )
    stop, ended = Stop(), threading.Event()
    beat = threading.Thread(
        target=_beat, args=(job.parent, lambda: leases.beat(number), stop, ended), daemon=True
    )
    beat.start()
    try:
        sharing.begin(store, (SPENT, NOT_NEEDED))
        opened = Opened(store.open_plan(plan.hash(), len(plan)), done, [], 0)
        found = run_to_end(
            lambda asked: execute(
                prepared, opened, directory, store,
                accept_change=job.accept_change, stop=asked, sharing=sharing,
            ),
            stop,
        )  # fmt: skip
    finally:
        ended.set()
        beat.join()
        sharing.close()
    return EXIT_INTERRUPTED if found.interrupted else EXIT_COMPLETE


def _beat(parent: int, beat: Callable[[], None], stop: Stop, ended: threading.Event) -> None:
    """Say that this client lives, and stop it when its parent is gone."""
    while not ended.wait(_BEAT_S):
        if os.getppid() != parent and not stop.count:
            stop.request()
        try:
            beat()
        except OrchestratorError:
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
