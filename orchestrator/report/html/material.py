"""Material of a report, read from a run by the runner; nothing here reads files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from orchestrator.contracts.context import Context
from orchestrator.frames import columns_of
from orchestrator.probing.record import ProbeRecord
from orchestrator.report.brief import Brief
from orchestrator.statistics.ranking import RankingAnalysis
from orchestrator.tables import Table


@dataclass(frozen=True, slots=True)
class Lost:
    """Requests that failed: whose, why, how often, and what the server said last."""

    model: str
    cause: str
    n: int
    message: str


@dataclass(frozen=True, slots=True)
class Material:
    """A run as the report sees it.

    Attributes:
        name: Of the recipe.
        where: The run directory, as it was named.
        at: When something was last sent, in words; empty where that is not known.
        version: Of this program, as of the last call.
        settings: The resolved recipe.
        identities: What each model is, as fields in words, by model.
        servers: What answered, in words, by model.
        probes: What its server was found to do, by model.
        progress: What the last call that sent something counted.
        frames: By name.
        rankings: By method and judge.
        tables: Of summaries and analyses.
        context: The methods of the recipe, to read their scores.
        lost: Requests that failed, the most frequent first.
        exact_match: Share of answers equal to the reference, by model.
        notes: What a reader must know.
        n_left: Units without a row.
        brief: The run in brief.
        epochs: How many rows of each method rest on which epoch of servers; empty where there is
            only one.
    """

    name: str
    where: str
    at: str
    version: str
    settings: Mapping[str, Any]
    identities: Mapping[str, Mapping[str, str]]
    servers: Mapping[str, Sequence[str]]
    progress: Mapping[str, Any]
    frames: Mapping[str, pl.DataFrame]
    rankings: Sequence[RankingAnalysis]
    tables: Sequence[Table]
    context: Context
    lost: Sequence[Lost] = ()
    exact_match: Mapping[str, float | None] = field(default_factory=dict)
    notes: Sequence[str] = ()
    n_left: int = 0
    probes: Mapping[str, ProbeRecord] = field(default_factory=dict)
    brief: Brief = field(default_factory=Brief)
    epochs: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @property
    def models(self) -> list[str]:
        """Models that answer, in the order of their rows."""
        found: dict[str, None] = {}
        for frame in self.frames:
            for names in columns_of(self.frames, frame, ("model", "model_a", "model_b")):
                found.update(dict.fromkeys(names.drop_nulls().unique(maintain_order=True)))
        return list(found)
