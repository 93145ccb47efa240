"""Rows of peer evaluation as arrays of single votes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.clusters import CLUSTER, OVER, PROMPT
from orchestrator.statistics.elo import Battles
from orchestrator.statistics.prompt_sums import PromptSums, sum_by_prompt

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Votes:
    """n votes of M models on pairs of the others.

    Attributes:
        models: M names, sorted.
        pairs: The rows that have votes, one a pair of answers.
        prompts: Shape (n,), cluster of prompts of each vote, in [0, n_prompts).
        first: Shape (n,), in [0, M).
        second: Shape (n,), in [0, M).
        judge: Shape (n,), in [0, M).
        preference: Shape (n,): 1 for the first, 0 for the second, 0.5 a tie.
        row: Shape (n,), row of `pairs`.
        n_prompts: Clusters with a vote; where each item stands alone these are the items.
        n_items: Items with a vote.
        n_undefined: Votes that could not be given.
        n_missing: Answers that were left out, by model.
        n_failed: Items (or turns) on which nobody could vote.
        n_truncated: Answers that were longer than what compared them reads.
    """

    models: tuple[str, ...]
    pairs: pl.DataFrame
    prompts: Ints
    first: Ints
    second: Ints
    judge: Ints
    preference: Floats
    row: Ints
    n_prompts: int
    n_items: int
    n_undefined: int
    n_missing: dict[str, int]
    n_failed: int
    n_truncated: int

    @cached_property
    def sums(self) -> PromptSums:
        """The votes added up by cluster and pair."""
        shape = (self.n_prompts, len(self.models))
        return sum_by_prompt(self.prompts, self.first, self.second, self.preference, shape=shape)

    def win_matrix(self, kept: Bools) -> Floats:
        """Shape (M, M): wins of the row's model over the column's in the votes that are kept."""
        n = len(self.models)
        first, second, won = self.first[kept], self.second[kept], self.preference[kept]
        wins = np.bincount(first * n + second, won, minlength=n * n)
        wins += np.bincount(second * n + first, 1.0 - won, minlength=n * n)
        return wins.reshape(n, n).astype(np.float64)

    def battles(self) -> Battles:
        """The votes as battles of a sequential rating."""
        return Battles(self.prompts, self.first, self.second, self.preference, len(self.models))

    def by_prompt(self, values: Floats, kept: Bools) -> tuple[Floats, Floats]:
        """Sums and numbers of values of the votes kept, by cluster: two of (n_prompts,)."""
        sums = np.bincount(self.prompts[kept], values[kept], minlength=self.n_prompts)
        counts = np.bincount(self.prompts[kept], minlength=self.n_prompts)
        return sums.astype(np.float64), counts.astype(np.float64)


def read_votes(rows: pl.DataFrame) -> Votes | None:
    """The votes of a frame of `peer_votes`; None where there is none."""
    good = rows.filter(pl.col("status") == "ok") if rows.width else rows
    if good.is_empty():
        return None
    pairs = good.with_row_index("row")
    named = pl.concat([pairs["model_a"], pairs["model_b"], pairs["missing"].explode()])
    models = tuple(sorted(named.drop_nulls().unique().to_list()))
    single = (
        pairs.select("row", "item", *OVER, "turn", "model_a", "model_b", "judges", "votes")
        .explode("judges", "votes")
        .filter(pl.col("votes").is_not_nan() & pl.col("votes").is_not_null())
        # In which order units ended must not show in an Elo rating or a resample.
        .sort("item", "turn", "model_a", "model_b", "judges")
    )
    if single.is_empty():
        return None
    clusters = single[CLUSTER].unique(maintain_order=True)
    # Answers left out or cut off are counted once an item and turn.
    turns = pairs.unique(subset=["item", "turn"])
    return Votes(
        models=models,
        pairs=pairs,
        prompts=_codes(single[CLUSTER], clusters.to_list()),
        first=_codes(single["model_a"], models),
        second=_codes(single["model_b"], models),
        judge=_codes(single["judges"], models),
        preference=single["votes"].to_numpy().astype(np.float64),
        row=single["row"].to_numpy().astype(np.int64),
        n_prompts=len(clusters),
        n_items=single[PROMPT].n_unique(),
        n_undefined=int(pairs["undefined"].sum()),
        n_missing=dict(Counter(turns["missing"].explode().drop_nulls().to_list())),
        n_failed=len(rows) - len(good),
        n_truncated=int(turns["n_truncated"].sum()),
    )


def _codes(column: pl.Series, names: Sequence[str]) -> Ints:
    return column.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
