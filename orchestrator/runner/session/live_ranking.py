"""The rankings of a run while it runs, for displays: each method's over the prompts it finished."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.records import Row
from orchestrator.report.progress import RankingProgress, StandingProgress
from orchestrator.roles import PairColumns
from orchestrator.statistics.forming import Forming, Standing
from orchestrator.statistics.trust import DEFAULTS
from orchestrator.units import Part, Plan

_LEVEL: Final = 0.95
# How often the ratings are computed anew, seconds: the judgments of a moment change little.
_EVERY_S: Final = 5.0
# Prompts of which some units have ended. Those that an earlier call began never get all of theirs.
_MAX_BEGUN: Final = 4096


class _Method:
    """One method's sums, and the prompts of which some units are still to come.

    Args:
        part: The method.
        pairs: Its columns.
        sizes: Prompts of each cluster, shape (clusters,); not used where each stands alone.
    """

    def __init__(self, part: Part, pairs: PairColumns, sizes: NDArray[np.int64]) -> None:
        self.pairs = pairs
        self.forming = Forming(part.candidates)
        self.index = {name: i for i, name in enumerate(part.candidates)}
        self.n_units = len(part.combinations())
        self.begun: dict[int, tuple[int, list[tuple[int, int, float]]]] = {}
        self.sizes = sizes
        # How many prompts of each cluster have come; those of the first are given up first.
        self.clusters: dict[int, int] = {}
        # Readings with little of the judge's probability on the labels, and all, by judge.
        self.read: dict[str, list[int]] = {}

    def add_reading(self, row: Row) -> None:
        pairs = self.pairs
        n = self.read.setdefault(row.get(pairs.judge) or "", [0, 0])
        for mass in (row.get(pairs.coverage_ab), row.get(pairs.coverage_ba)):
            if mass is not None and not math.isnan(mass):
                n[0] += mass < DEFAULTS.mass
                n[1] += 1

    def judgment(self, row: Row) -> tuple[int, int, float] | None:
        """Return a row as both models and the preference; None where there is none."""
        preference = row.get(self.pairs.preference)
        a, b = (
            self.index.get(row.get(side) or "") for side in (self.pairs.model_a, self.pairs.model_b)
        )
        if a is None or b is None or preference is None or not math.isfinite(preference):
            return None
        return a, b, preference

    def untrusted(self) -> tuple[str, ...]:
        """Judges that do not answer in the requested form."""
        most = DEFAULTS.low_readings
        return tuple(judge for judge, (n_low, n) in self.read.items() if n and n_low >= most * n)

    def add(self, item: int, judgments: list[tuple[int, int, float]], cluster: int | None) -> None:
        n_ended, before = self.begun.pop(item, (0, []))
        before += judgments
        if n_ended + 1 == self.n_units:
            self._whole(before, cluster)
            return
        if len(self.begun) >= _MAX_BEGUN:
            del self.begun[next(iter(self.begun))]
        self.begun[item] = (n_ended + 1, before)

    def _whole(self, judgments: list[tuple[int, int, float]], cluster: int | None) -> None:
        """All of a prompt's units have ended."""
        self.forming.add_prompt(judgments, cluster)
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


class LiveRankings:
    """Takes the rows of units as they end.

    Args:
        plan: Of the run.
        stops_early: Whether a stopping rule chooses what is asked.
    """

    def __init__(self, plan: Plan, *, stops_early: bool = False) -> None:
        self._stops_early = stops_early
        self._n_per_item = plan.n_per_item
        self._clusters = plan.clusters
        sizes = np.bincount([] if plan.clusters is None else plan.clusters)
        self._methods = {
            part.name: _Method(part, part.method.pairs, sizes)
            for part in plan.parts
            if part.method.pairs is not None and len(part.candidates) > 1
        }
        self._shown: tuple[RankingProgress, ...] = ()
        self._next_s = -math.inf

    def ended(self, position: int, part: Part, rows: Sequence[Row]) -> None:
        """A unit has ended; what it says of its models is kept until its prompt is whole."""
        method = self._methods.get(part.name)
        if method is None:
            return
        for row in rows:
            method.add_reading(row)
        judgments = [one for row in rows if (one := method.judgment(row)) is not None]
        item = position // self._n_per_item
        cluster = None if self._clusters is None else int(self._clusters[item])
        method.add(item, judgments, cluster)

    def rankings(self, now: float) -> tuple[RankingProgress, ...]:
        """The rankings, at most five seconds old; none of a method without a whole prompt."""
        if now >= self._next_s:
            self._next_s = now + _EVERY_S
            self._shown = tuple(
                self._ranking(name, n, method)
                for name, method in self._methods.items()
                if (n := method.forming.n_prompts)
            )
        return self._shown

    def _ranking(self, name: str, n_prompts: int, method: _Method) -> RankingProgress:
        standings = tuple(map(_shown, method.forming.standings(_LEVEL)))
        return RankingProgress(
            name,
            n_prompts,
            standings,
            self._stops_early,
            method.untrusted(),
            None if self._clusters is None else method.forming.n_clusters,
        )


def _shown(one: Standing) -> StandingProgress:
    rating = one.rating if math.isfinite(one.rating) else None
    width = one.half_width if math.isfinite(one.half_width) and rating is not None else None
    return StandingProgress(one.model, rating, width, one.n_prompts)
