"""The time that a plan takes, from the pace of the same models in earlier runs.

Models work side by side and a run ends with the slowest, so the time is that of the model with most
to do at its pace. A pace is seconds of a call for each request that it ended, which holds waiting
for servers and for other models too. It differs between runs, so the time is a range.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from orchestrator.disk.paths import STORE_NAME, is_foreign
from orchestrator.errors import OrchestratorError
from orchestrator.report.planned import Duration, StageCount
from orchestrator.report.progress import ModelProgress
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.runner.planning.revisions import last_revision
from orchestrator.store import RunDirectory

_MOST_RUNS: Final = 50
# A call with fewer requests of a model is mostly waiting for its server to start.
_LEAST_REQUESTS: Final = 20
# Calls of one recipe differ by this factor: other lengths of answers, other load of the servers.
_FACTOR: Final = 2.0


class Pace(msgspec.Struct, frozen=True):
    """Seconds of a call for each request to a model that ended, by model, in an earlier run."""

    run: str
    seconds: dict[str, float]


def earlier_paces(prepared: Prepared, where: Path) -> list[Pace]:
    """Return the paces of this run and of its neighbours, the newest first.

    Args:
        prepared: The plan; its models count as the same where identity, server and address are.
        where: The run directory; the others in its folder are read too.
    """
    found = []
    for run in _newest(where.parent):
        try:
            pace = _pace_of(prepared, run)
        except (OrchestratorError, OSError, msgspec.MsgspecError, TypeError, ValueError):
            # A run that can't be read tells nothing.
            continue
        if pace.seconds:
            found.append(pace)
    return found


def _newest(folder: Path) -> list[Path]:
    dated = []
    for store in folder.glob("*/" + STORE_NAME):
        try:
            if not is_foreign(store.parent):
                dated.append((store.stat().st_mtime_ns, store.parent))
        except OSError:
            continue
    return [run for _, run in sorted(dated, reverse=True)[:_MOST_RUNS]]


def _pace_of(prepared: Prepared, run: Path) -> Pace:
    directory = RunDirectory.open(run)
    status, revision = directory.read_status(), last_revision(directory)
    if status is None or revision is None or not status.values.get("requests_sent"):
        # The last call sent nothing, so its seconds are not those of its requests.
        return Pace(run.name, {})
    models = msgspec.convert(status.values.get("models", ()), tuple[ModelProgress, ...])
    elapsed = msgspec.convert(status.values.get("elapsed_s"), float)
    by_name = {one.name: one for one in models}
    seconds = {}
    for name, same in _same(prepared, revision).items():
        one = by_name.get(same)
        if one is not None and one.done >= _LEAST_REQUESTS and elapsed > 0:
            seconds[name] = elapsed / one.done
    return Pace(run.name, seconds)


def _same(prepared: Prepared, revision: Mapping[str, Any]) -> dict[str, str]:
    """Names of this plan's models, by which the other recipe has the same on the same server."""
    mine = prepared.recipe.resolved()["models"]
    theirs = revision["recipe"].get("models", {})
    found = {}
    for name, identity in prepared.identities.items():
        for other, of_other in revision["identities"].items():
            is_same = of_other == identity and all(
                mine.get(name, {}).get(key) == theirs.get(other, {}).get(key)
                for key in ("server", "base_url", "replicas")
            )
            if is_same:
                found[name] = other
                break
    return found


def duration_of(stages: Sequence[StageCount], paces: Iterable[Pace]) -> Duration:
    """Return the time that the requests of a plan take.

    Args:
        stages: What is left to request.
        paces: Of earlier runs.
    """
    left: dict[str, int] = {}
    for stage in stages:
        if stage.left:
            left[stage.model] = left.get(stage.model, 0) + stage.left
    if not left:
        return Duration(0.0, 0.0)
    known: dict[str, list[float]] = {name: [] for name in left}
    runs = []
    for pace in paces:
        if known.keys() & pace.seconds.keys():
            runs.append(pace.run)
        for name in known.keys() & pace.seconds.keys():
            known[name].append(pace.seconds[name])
    missing = tuple(name for name, seconds in known.items() if not seconds)
    if missing:
        return Duration(missing=missing)
    fastest = max(n * min(known[name]) for name, n in left.items())
    slowest = max(n * max(known[name]) for name, n in left.items())
    return Duration(fastest / _FACTOR, slowest * _FACTOR, runs=tuple(runs))
