"""Pairwise judgments as a ranking needs them: which can be used, and what they are counted by.

A run may have a million of them. They are taken in slices of some rows, of which only numbers are
kept, a few dozen bytes a judgment: as a frame they take several times as much.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.clusters import CLUSTER, OVER, PROMPT, codes
from orchestrator.columns import PairColumns
from orchestrator.contracts.context import Frames, role_slices, there
from orchestrator.records import Floats, Ints
from orchestrator.statistics.judgments import decided, decisions
from orchestrator.statistics.prompt_sums import Pairs, PromptSums
from orchestrator.statistics.resampling import codes_of

_NAMED: Final = ("category", "model_a", "model_b", "judge")
_FLOATS: Final = (
    "coverage_ab", "coverage_ba", "prefer_a_ab", "prefer_a_ba", "prefer_a", "mean_pre", "mode_pre",
)  # fmt: skip
_FLAGS: Final = ("exact", "same_text")
_DISTRIBUTIONS: Final = {"p_ab": "decision_ab", "p_ba": "decision_ba"}
_OF_MISSING: Final = ("category", "model_a", "model_b", "judge", "status", "cause", "message")
_KEPT: Final = {
    "item": np.int64,
    **dict.fromkeys(_FLOATS, np.float64),
    **dict.fromkeys(_FLAGS, np.bool_),
    **dict.fromkeys(_DISTRIBUTIONS.values(), np.int8),
}
COLUMNS: Final = (
    "item", *_NAMED, *_FLOATS, *_FLAGS, "status", "cause", "message", *_DISTRIBUTIONS,
)  # fmt: skip
"""Columns read from the judgments."""
_OTHERS: Final = ("method", "item", "category", "status", "cause", "message")
_DTYPES: Final = {
    **dict.fromkeys(_FLOATS, pl.Float64()),
    **dict.fromkeys(_FLAGS, pl.Boolean()),
    **dict.fromkeys(_DISTRIBUTIONS, pl.List(pl.Float64())),
}


@dataclass(frozen=True, slots=True)
class Table:
    """The rows with a judgment and those without.

    Attributes:
        used: Of those with a judgment, by column: shape (n,) each. Items, clusters, categories,
            models and judges are numbers by the order of their names, -1 where there is none, and
            items that ask the same have one number;
            `decision_ab` and `decision_ba` are the likeliest verdicts, 1, 0 or -1, from A's view.
        missing: Those without one; their items are numbers too.
        models: Of both, in order.
        judges: Of both, in order.
        categories: Of both, in order.
        has_modes: Whether `mode_pre` is the likeliest verdict and not made of the preference.
    """

    used: Mapping[str, NDArray[Any]]
    missing: pl.DataFrame
    models: tuple[str, ...]
    judges: tuple[str, ...]
    categories: tuple[str, ...]
    has_modes: bool = True

    @property
    def n_judged(self) -> int:
        """Rows with a judgment."""
        return len(self.used["item"])

    @property
    def n_items(self) -> int:
        """Items of all rows."""
        return len(np.union1d(self.used["item"], self.missing["item"].to_numpy()))

    @property
    def n_items_used(self) -> int:
        """Items with a judgment."""
        return int((np.bincount(self.used["item"]) > 0).sum())

    @property
    def n_clusters(self) -> int:
        """Clusters of items with a judgment; as many as these items where each stands alone."""
        return self.clusters()[1]

    def clusters(self) -> tuple[Ints, int]:
        """The cluster of each used row, shape (n,), from 0 on without gaps; how many there are.

        It is what every interval and test is over: an item that stands alone is a cluster.
        """
        codes = codes_of(self.used[CLUSTER])
        return codes, int(codes.max(initial=-1)) + 1

    def by_item(self) -> PromptSums:
        """The judgments counted by item, instead of by cluster, and pair of models."""
        return self.sums(np.zeros(self.n_judged), self.used["item"])

    def sums(self, wins: Floats, prompts: Ints | None = None) -> PromptSums:
        """Wins of `model_a`, shape (n,) in [0, 1], summed by cluster and pair of models.

        Where they are given, `prompts`, shape (n,), stand for the clusters.
        """
        prompts = self.clusters()[0] if prompts is None else prompts
        sides = self.used["model_a"], self.used["model_b"]
        return Pairs(prompts, *sides, len(self.models)).summing()(wins)

    def floats(self, *columns: str) -> Floats:
        """Columns side by side: shape (n, columns)."""
        return np.stack([self.used[column] for column in columns], axis=1)

    def of_judge(self, judge: str) -> "Table":
        """The rows of a judge; models are those that it has met."""
        if self.judges == (judge,):
            return self
        found = self.where("judge", judge, self.judges)
        codes = np.concatenate([found.used["model_a"], found.used["model_b"]])
        named = {self.models[code] for code in np.unique(codes)}
        for side in ("model_a", "model_b"):
            named.update(found.missing[side].to_list())
        models = tuple(sorted(named))
        number = np.array([models.index(m) if m in named else -1 for m in self.models], np.int32)
        again = {side: number[found.used[side]] for side in ("model_a", "model_b")}
        judges = (judge,) if found.n_judged or len(found.missing) else ()
        return replace(found, used={**found.used, **again}, models=models, judges=judges)

    def where(self, column: str, name: str, names: tuple[str, ...]) -> "Table":
        """The rows with a name in a column; the names of all rows are numbered in this order."""
        code = names.index(name) if name in names else -2
        chosen = self.used[column] == code
        return replace(
            self,
            used={key: values[chosen] for key, values in self.used.items()},
            missing=self.missing.filter(pl.col(column) == name),
        )


def judgments(frames: Frames, frame: str, pairs: PairColumns) -> Iterator[pl.DataFrame]:
    """Yield slices of a frame of pairs, with the columns of `COLUMNS` and `method`.

    What its rows do not have is null; a verdict without estimators is that of its preference.
    """
    columns = there(frames, frame, pairs.columns())
    wanted = {name: column for name, column in columns.items() if name in COLUMNS}
    by_preference = 2.0 * pl.col("prefer_a").cast(pl.Float64) - 1.0
    for rows in role_slices(frames, frame, wanted, _OTHERS):
        filled = {
            name: by_preference
            if name in ("mean_pre", "mode_pre")
            else pl.lit(None, _DTYPES.get(name, pl.String()))
            for name in COLUMNS
            if name not in rows.columns
        }
        yield rows.with_columns(**filled)


def has_modes(frames: Frames, frame: str, pairs: PairColumns) -> bool:
    """Return True if the rows say which verdict is the likeliest."""
    return "mode_pre" in there(frames, frame, pairs.columns())


def tabulate(slices: Iterable[pl.DataFrame], n_most: int, *, has_modes: bool = True) -> Table:
    """Collect slices of a frame of judgments, which together are one row a unit.

    `n_most` bounds the rows of all slices; `has_modes` says that they name the likeliest verdict.
    """
    texts = {column: [pl.Series(column, [], pl.Categorical())] for column in _NAMED}
    used: dict[str, NDArray[Any]] = {
        column: np.empty(n_most, dtype) for column, dtype in _KEPT.items()
    }
    items = {column: [pl.Series(column, [], pl.Categorical())] for column in ("item", *OVER)}
    given = [pl.Series("given", [], pl.Boolean())]
    missing = [pl.DataFrame(schema=dict.fromkeys(_OF_MISSING, pl.String()))]
    n = 0
    for rows in slices:
        known = (pl.col("status") == "ok") & pl.col("prefer_a").is_finite().fill_null(value=False)
        known &= pl.col("mode_pre").is_finite().fill_null(value=False)
        is_given = rows.select(known.fill_null(value=False)).to_series()
        begin, n = n, n + int(is_given.sum())
        for column, values in _numbers(rows if is_given.all() else rows.filter(is_given)).items():
            used[column][begin:n] = values
        for column, parts in texts.items():
            parts.append(rows[column].cast(pl.Categorical))
        for column in items.keys() & set(rows.columns):
            items[column].append(rows[column].cast(pl.Categorical))
        given.append(is_given)
        missing.append(rows.filter(~is_given).select(_OF_MISSING))
    is_used = pl.concat(given).to_numpy()
    # Also models and judges of rows without a judgment are known.
    named = {column: pl.concat(parts) for column, parts in texts.items()}
    names = {
        column: tuple(sorted(pl.concat(named[one] for one in of).drop_nulls().unique().to_list()))
        for of in (("model_a", "model_b"), ("judge",), ("category",))
        for column in of
    }
    for column, text in named.items():
        number = text.cast(pl.Enum(names[column])).to_physical().cast(pl.Int32)
        used[column] = number.fill_null(-1).to_numpy()[is_used]
    # Of items there may be as many as judgments, unlike of other names.
    has_clusters = len(items[CLUSTER]) > 1
    # Items that ask the same are one.
    item = codes(pl.concat(items[PROMPT if has_clusters else "item"]))
    used["item"][:n] = item[is_used]
    used[CLUSTER] = used["item"]
    if has_clusters:
        used[CLUSTER] = np.empty(n_most, np.int64)
        used[CLUSTER][:n] = codes(pl.concat(items[CLUSTER]))[is_used]
    return Table(
        {column: values[:n] for column, values in used.items()},
        pl.concat(missing).with_columns(item=pl.Series(item[~is_used])),
        names["model_a"],
        names["judge"],
        names["category"],
        has_modes=has_modes,
    )


def _numbers(used: pl.DataFrame) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    for column in _FLOATS:
        values = used[column].cast(pl.Float64).fill_null(np.nan)
        found[column] = values.to_numpy()
    for column in _FLAGS:
        found[column] = used[column].fill_null(value=False).to_numpy()
    for column, name in _DISTRIBUTIONS.items():
        found[name] = order_decisions(used, column).astype(np.int8)
    return found


def order_decisions(rows: pl.DataFrame, order: str) -> Floats:
    """Return the decision of each row in one order: 1 for A, -1 for B, 0 for a tie.

    It is the likeliest verdict; of a row without a distribution, the side that it prefers. `order`
    is `p_ab` or `p_ba`; levels run from A to B, and an even number of them has none for a tie.
    """
    levels, name = pl.col(order), order.replace("p", "prefer_a", 1)
    half, is_odd = levels.list.len() // 2, levels.list.len() % 2 == 1
    side = pl.col(name) if name in rows.columns else pl.lit(None)
    masses = rows.select(
        levels.list.head(half).list.sum().alias("better"),
        pl.when(is_odd).then(levels.list.get(half, null_on_oob=True)).otherwise(0.0).alias("tie"),
        levels.list.tail(half).list.sum().alias("worse"),
        (side.cast(pl.Float64) - 0.5).alias("preferred"),
    )
    better, tie, worse, preferred = (
        masses[name].to_numpy().astype(np.float64) for name in masses.columns
    )
    return np.where(
        np.isnan(better) & ~np.isnan(preferred),
        decided(preferred),
        decisions(better, tie, worse),
    )
