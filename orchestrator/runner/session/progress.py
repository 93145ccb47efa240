"""Progress of a run for displays: units of each method, and how far each model is."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from orchestrator.report.progress import ModelProgress, StageProgress, connection_state
from orchestrator.runner.servers.health import Loads
from orchestrator.runner.session.adaptive import Adaptive
from orchestrator.scheduler.core import Core
from orchestrator.units import Plan

Ints = NDArray[np.int64]


class Stages:
    """Counts units by the method they belong to.

    `done` has one byte a position, 1 where there is nothing to do any more; `not_needed`, shape
    (units of one item,), says how many have no row and need none.
    """

    def __init__(self, plan: Plan, done: bytearray, not_needed: Ints) -> None:
        self._n_items = len(plan.items)
        names = [plan.part(which).name for which in range(plan.n_per_item)]
        self._names = list(dict.fromkeys(names))
        # Which method each unit of an item belongs to.
        self._of = np.array([self._names.index(name) for name in names], dtype=np.int64)
        units = np.frombuffer(done, np.uint8).reshape(self._n_items, plan.n_per_item)
        self._stored = self._by_method(units.sum(axis=0, dtype=np.int64) - not_needed)
        self._gates = [plan.gate(which) for which in range(plan.n_per_item)]
        self._not_done = self._n_items - units.sum(axis=0, dtype=np.int64)
        self._not_needed = not_needed
        self._ended = np.zeros(plan.n_per_item, dtype=np.int64)
        self._done = [0] * len(self._names)
        self._failed = [0] * len(self._names)

    def ended(self, position: int, *, failed: bool) -> None:
        """A unit has ended."""
        which = position % len(self._of)
        stage = int(self._of[which])
        self._ended[which] += 1
        self._done[stage] += 1
        self._failed[stage] += failed

    def progress(self, not_needed: Ints) -> tuple[StageProgress, ...]:
        """The methods in the order of the plan."""
        totals = self._by_method(self._n_items - not_needed)
        return tuple(
            StageProgress(
                name, int(totals[i]), int(self._stored[i]), self._done[i], self._failed[i]
            )
            for i, name in enumerate(self._names)
        )

    def of_models(self, not_needed: Ints) -> dict[str, tuple[int, int]]:
        """Units by the model that they ask last: how many this call did, and how many are left."""
        # Those that were not needed at the beginning are marked as done.
        left = self._not_done - self._ended - (not_needed - self._not_needed)
        found: dict[str, tuple[int, int]] = {}
        for gate, n_ended, n_left in zip(self._gates, self._ended, left, strict=True):
            done, more = found.get(gate, (0, 0))
            found[gate] = done + int(n_ended), more + int(n_left)
        return found

    def _by_method(self, of_units: Ints) -> Ints:
        return np.bincount(self._of, of_units, minlength=len(self._names)).astype(np.int64)


def models_progress(
    core: Core,
    states: Mapping[str, str],
    tokens: Mapping[str, list[int]],
    limits: Adaptive,
    loads: Loads,
    units: Mapping[str, tuple[int, int]],
) -> tuple[ModelProgress, ...]:
    """Return how far each model is.

    Loads are the last figures of the servers; units are how many this call did, and how many are
    left.
    """
    return tuple(
        ModelProgress(
            name=name,
            state=connection_state(
                states.get(name, "idle"), down=state.down_since, dead=state.dead
            ),
            in_flight=state.in_flight,
            limit=state.most_in_flight,
            queued=state.n_queued,
            done=state.n_done,
            failed=state.n_failed,
            retried=state.n_retried,
            prompt_tokens=tokens[name][0],
            completion_tokens=tokens[name][1],
            limits=limits.progress(name),
            waiting=loads.waiting(name),
            cache_hits=loads.cache_hits(name),
            units_done=units.get(name, (0, 0))[0],
            units_left=units.get(name, (0, 0))[1],
            fault="" if state.dead is None else state.dead.message,
        )
        for name, state in core.models.items()
    )
