"""Progress of a run for displays: units of each method, and rankings of the prompts finished.

Judges are held to the rule of the reports (`orchestrator.ranking.trust`), on the judgments so far.
A row is only kept when it comes; many are counted at once.
"""

import importlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.columns import PairColumns
from orchestrator.records import Row
from orchestrator.report.progress import ModelProgress, RankingProgress, StageProgress
from orchestrator.runner.servers.health import Loads
from orchestrator.scheduler.core import Core
from orchestrator.statistics.ratings import Forming
from orchestrator.statistics.results import Thresholds
from orchestrator.statistics.trust import DEFAULTS, SHORT
from orchestrator.units import Part, Plan

if TYPE_CHECKING:
    from orchestrator.ranking.trust import Tally

Ints = NDArray[np.int64]

_LEVEL: Final = 0.95
# How often the ratings are computed anew, seconds: the judgments of a moment change little.
_EVERY_S: Final = 5.0
# Rows that wait to be counted for the rule on judges.
_MAX_WAITING: Final = 1024
# Prompts of which some units have ended. Those that an earlier call began never get all of theirs.
_MAX_BEGUN: Final = 4096


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


class _Method:
    """One method's sums, the prompts of which some units are still to come, and its judges.

    Sizes are the prompts of each cluster; not used where each stands alone. Judges are held to the
    `rule`; their rows wait until many are counted at once.
    """

    def __init__(
        self, part: Part, pairs: PairColumns, sizes: Ints, rule: tuple[int, Thresholds]
    ) -> None:
        self.pairs = pairs
        self.forming = Forming(part.candidates)
        self.index = {name: i for i, name in enumerate(part.candidates)}
        self.n_units = len(part.combinations())
        self.begun: dict[int, tuple[int, list[tuple[int, int, float]]]] = {}
        self.sizes = sizes
        # How many prompts of each cluster have come; those of the first are given up first.
        self.clusters: dict[int, int] = {}
        self._rule = rule
        self._waiting: dict[str, list[tuple[int, Row]]] = {}
        self._tallies: dict[str, Tally] = {}

    def judgment(self, row: Row) -> tuple[int, int, float] | None:
        """Return a row as both models and the preference; None where there is none."""
        preference = row.get(self.pairs.preference)
        a, b = (
            self.index.get(row.get(side) or "") for side in (self.pairs.model_a, self.pairs.model_b)
        )
        if a is None or b is None or preference is None or not math.isfinite(preference):
            return None
        return a, b, preference

    def add(self, rows: Sequence[Row], item: int, cluster: int | None, *, is_new: bool) -> None:
        """Take the rows of a unit; what it says of its models waits until its prompt is whole."""
        for row in rows:
            self._judge(row, item if cluster is None else cluster)
        n_ended, judgments = self.begun.pop(item, (0, []))
        judgments += [one for row in rows if (one := self.judgment(row)) is not None]
        if n_ended + 1 == self.n_units:
            self._whole(judgments, cluster, is_new=is_new)
            return
        if len(self.begun) >= _MAX_BEGUN:
            del self.begun[next(iter(self.begun))]
        self.begun[item] = (n_ended + 1, judgments)

    def _whole(
        self, judgments: list[tuple[int, int, float]], cluster: int | None, *, is_new: bool
    ) -> None:
        """All of a prompt's units have ended."""
        self.forming.add(judgments, cluster, is_new=is_new)
        if cluster is None:
            return
        n = self.clusters.pop(cluster, 0) + 1
        if n == self.sizes[cluster]:
            self.forming.end_cluster(cluster)
            return
        if len(self.clusters) >= _MAX_BEGUN:
            oldest = next(iter(self.clusters))
            del self.clusters[oldest]
            self.forming.end_cluster(oldest)
        self.clusters[cluster] = n

    def _judge(self, row: Row, cluster: int) -> None:
        judge = row.get(self.pairs.judge) if self.pairs.judge else ""
        if judge is None:
            return
        waiting = self._waiting.setdefault(judge, [])
        waiting.append((cluster, row))
        if len(waiting) >= _MAX_WAITING:
            self._count(judge)

    def untrusted(self, confidence_level: float) -> dict[str, str]:
        """Return the judges with findings against them, and these in words."""
        for judge in list(self._waiting):
            self._count(judge)
        return {
            judge: " and ".join(SHORT[ground] for ground in grounds)
            for judge, tally in self._tallies.items()
            if (grounds := tally.grounds(confidence_level))
        }

    def _count(self, judge: str) -> None:
        if judge not in self._tallies:
            # It imports polars, which no request waits for.
            trust = importlib.import_module("orchestrator.ranking.trust")
            self._tallies[judge] = trust.Tally(*self._rule)
        columns = {"status": "status", **self.pairs.columns()}
        self._tallies[judge].add(judge, self._waiting.pop(judge), columns)


class LiveRankings:
    """Takes the rows of units as they end."""

    def __init__(
        self,
        plan: Plan,
        *,
        stops_early: bool = False,
        thresholds: Thresholds = DEFAULTS,
        confidence_level: float = 0.95,
    ) -> None:
        self._stops_early = stops_early
        self._confidence_level = confidence_level
        self._n_per_item = plan.n_per_item
        self._clusters, self._is_new = plan.clusters, plan.is_new
        sizes = np.bincount([] if plan.clusters is None else plan.clusters)
        rule = len(plan.items) if plan.clusters is None else len(sizes), thresholds
        self._methods = {
            part.name: _Method(part, part.method.pairs, sizes, rule)
            for part in plan.parts
            if part.method.pairs is not None and len(part.candidates) > 1
        }
        self._shown: tuple[RankingProgress, ...] = ()
        self._next_s = -math.inf

    def ended(self, position: int, part: Part, rows: Sequence[Row]) -> None:
        """A unit has ended."""
        method = self._methods.get(part.name)
        if method is None:
            return
        item = position // self._n_per_item
        cluster = None if self._clusters is None else int(self._clusters[item])
        is_new = self._is_new is None or bool(self._is_new[item])
        method.add(rows, item, cluster, is_new=is_new)

    def rankings(self, now: float) -> tuple[RankingProgress, ...]:
        """The rankings, at most five seconds old; none of a method without a whole prompt."""
        if now >= self._next_s:
            self._next_s = now + _EVERY_S
            self._shown = tuple(
                self._ranking(name, method)
                for name, method in self._methods.items()
                if method.forming.n_prompts
            )
        return self._shown

    def _ranking(self, name: str, method: _Method) -> RankingProgress:
        untrusted = method.untrusted(self._confidence_level)
        return RankingProgress(
            name,
            method.forming.n_prompts,
            tuple(method.forming.standings(_LEVEL)),
            self._stops_early,
            tuple(untrusted),
            None if self._clusters is None else method.forming.n_clusters,
            tuple(untrusted.values()),
        )


def models_progress(
    core: Core,
    states: Mapping[str, str],
    tokens: Mapping[str, list[int]],
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
            # That of the connection counts for a model that is not out of reach.
            state=(
                "dead"
                if state.dead is not None
                else "down"
                if state.down_since is not None
                else states.get(name, "idle")
            ),
            in_flight=state.in_flight,
            limit=state.most_in_flight,
            queued=state.n_queued,
            done=state.n_done,
            failed=state.n_failed,
            retried=state.n_retried,
            prompt_tokens=tokens[name][0] or (None if state.n_done else 0),
            completion_tokens=tokens[name][1]
            or (0 if tokens[name][0] or not state.n_done else None),
            waiting=loads.waiting(name),
            cache_hits=loads.cache_hits(name),
            units_done=units.get(name, (0, 0))[0],
            units_left=units.get(name, (0, 0))[1],
            fault="" if state.dead is None else state.dead.message,
        )
        for name, state in core.models.items()
    )
