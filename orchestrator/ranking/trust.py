"""Trust in the judges of a run, from their rows."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orchestrator.clusters import CLUSTER, Clusters, codes
from orchestrator.columns import RowRoles
from orchestrator.contracts.context import Frames, role_slices, roles_in, there
from orchestrator.frames import CATEGORIES, names_of
from orchestrator.ranking.judged import Table, order_decisions
from orchestrator.records import Ints, Row
from orchestrator.statistics.results import Thresholds
from orchestrator.statistics.trust import (
    Counts,
    Ground,
    Judgments,
    OfModel,
    Trust,
    assess,
    counted,
    grounds,
)

_MASSES: Final = ("coverage", "coverage_ab", "coverage_ba")
_DECISIONS: Final = {"A": 1.0, "tie": 0.0, "B": -1.0}
_READ: Final = (
    *_MASSES, "judge", "parsed", "same_text", "winner_ab", "winner_ba", "p_ab", "p_ba",
    "prefer_a_ab", "prefer_a_ba", "model", "model_a", "model_b",
)  # fmt: skip
_OTHERS: Final = ("method", "item", "status", "cause")
_MODELS: Final = ("model", "model_a", "model_b")
_LEVELS: Final = pl.List(pl.Float64())
# Columns of rows that come in, besides the judge.
_COMING: Final[Mapping[str, pl.DataType]] = {
    "status": pl.String(), "parsed": pl.Boolean(), "same_text": pl.Boolean(),
    "winner_ab": pl.String(), "winner_ba": pl.String(), "p_ab": _LEVELS, "p_ba": _LEVELS,
    "prefer_a_ab": pl.Float64(), "prefer_a_ba": pl.Float64(),
    "coverage_ab": pl.Float64(), "coverage_ba": pl.Float64(),
}  # fmt: skip


def thresholds_of(settings: Mapping[str, Any]) -> Thresholds:
    """Return the thresholds of a resolved recipe; the defaults where it names none."""
    return Thresholds(**settings.get("statistics", {}).get("trust", {}))


def level_of(settings: Mapping[str, Any]) -> float:
    """Return the level of confidence of a resolved recipe; the default where it names none."""
    return float(settings.get("statistics", {}).get("confidence_level", 0.95))


def of_table(table: Table, thresholds: Thresholds, confidence_level: float) -> tuple[Trust, ...]:
    """Return the verdict on each judge of pairwise judgments.

    Rows that name no judge are taken for those of one.
    """
    found = []
    judges = table.judges or ("",) * bool(table.n_judged or len(table.missing))
    for judge in judges:
        own = table.of_judge(judge) if judge else table
        orders = own.floats("prefer_a_ab", "prefer_a_ba")
        both = np.isfinite(orders).all(axis=1) & ~own.used["same_text"]
        n_missing = len(own.missing)
        judgments = Judgments(
            masses=own.floats("coverage_ab", "coverage_ba"),
            decision_ab=own.used["decision_ab"][both].astype(np.float64),
            decision_ba=own.used["decision_ba"][both].astype(np.float64),
            clusters=own.clusters()[0][both],
            n_units=own.n_judged + n_missing,
            n_missing=n_missing,
            of_models=_of_models(own),
            causes=_causes(own.missing),
        )
        found.append(assess(judge, judgments, thresholds, confidence_level))
    return tuple(found)


def _of_models(table: Table) -> tuple[OfModel, ...]:
    """Judgments and missing ones of each model of a table."""
    n_missing = Counter(
        name for side in ("model_a", "model_b") for name in table.missing[side].to_list()
    )
    codes_met = np.concatenate([table.used[side] for side in ("model_a", "model_b")])
    n_judged = np.bincount(codes_met, minlength=len(table.models)).tolist()
    return tuple(
        OfModel(model, n + n_missing[model], n_missing[model])
        for model, n in zip(table.models, n_judged, strict=True)
    )


def _causes(missing: pl.DataFrame) -> tuple[tuple[str, int], ...]:
    """Causes of failures and how many judgments they took, the most frequent first."""
    counts = Counter(cause or "undefined" for cause in missing["cause"].to_list())
    return tuple(counts.most_common())


def of_frames(
    frames: Frames,
    clusters: Clusters,
    thresholds: Thresholds,
    confidence_level: float,
    *,
    without: Sequence[str] = (),
) -> dict[str, tuple[Trust, ...]]:
    """Return the verdict on each judge, by method; methods without a judge are left out.

    A frame is read in slices, of which only numbers are kept. Frames `without` are not read.
    """
    roles = roles_in(frames)
    found: dict[str, tuple[Trust, ...]] = {}
    for frame in sorted(set(frames) - set(without)):
        columns = _columns(frames, frame, roles.get(frame, RowRoles()))
        if "judge" not in columns:
            continue
        parts = map(clusters.of, role_slices(frames, frame, columns, _OTHERS))
        for method, trusts in of_rows(parts, thresholds, confidence_level).items():
            found[method] = (*found.get(method, ()), *trusts)
    return found


def _columns(frames: Frames, frame: str, roles: RowRoles) -> dict[str, str]:
    """Return the columns of a frame that the rule reads, by the name that it knows them by.

    A method need not declare roles: rows with `judge` and `coverage` say enough.
    """
    named: dict[str, str] = {name: name for name in _MASSES if name in names_of(frames, frame)}
    if named:
        named |= there(frames, frame, {"judge": "judge"})
    for role in (roles.distribution, roles.pairs):
        if role is not None and role.judge:
            named |= there(frames, frame, role.columns())
    return {name: column for name, column in named.items() if name in _READ}


def of_rows(
    slices: Iterable[pl.DataFrame], thresholds: Thresholds, confidence_level: float
) -> dict[str, tuple[Trust, ...]]:
    """Return the verdict on each judge of some rows, by method.

    Rows have the columns `judge` and, where there are such, `method`, `item`, `cluster`, `status`,
    those of probability on labels, and those of both orders, by the names of `PairColumns` and
    `ScoreColumns`.
    """
    kept: dict[tuple[str, str], list[pl.DataFrame]] = {}
    for rows in slices:
        for (method, judge), own in _numbers(rows).group_by("method", "judge", maintain_order=True):
            # Texts would take several times the memory.
            own = own.drop("method", "judge").with_columns(CATEGORIES)
            kept.setdefault((str(method), str(judge)), []).append(own)
    found: dict[str, tuple[Trust, ...]] = {}
    for (method, judge), parts in kept.items():
        own = pl.concat(parts)
        parts.clear()
        judgments = _judgments(own, codes(own["cluster"].to_physical()))
        trust = assess(judge, judgments, thresholds, confidence_level)
        found[method] = (*found.get(method, ()), trust)
    return found


class Tally:
    """Counts of a judge's judgments while they come in, in memory that does not grow with them."""

    def __init__(self, n_clusters: int, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self._counts = Counts(0, 0, 0, np.zeros(n_clusters), np.zeros(n_clusters), 0, 0)

    def add(self, judge: str, rows: Sequence[tuple[int, Row]], columns: Mapping[str, str]) -> None:
        """Add rows of this judge as they come, each with the number of its cluster.

        `columns` are the names of the rows' columns, by the names that the rule knows them by.
        """
        series = [pl.Series("judge", [judge] * len(rows), pl.String())]
        for name, dtype in _COMING.items():
            if name not in columns:
                continue
            values = [row.get(columns[name]) for _, row in rows]
            widths = {len(value) if isinstance(value, list) else -1 for value in values}
            if dtype == _LEVELS and len(widths) == 1 and min(widths) > 0:
                # Lists of one length, as they are save where a unit failed, are read at once.
                series.append(pl.Series(name, np.array(values, np.float64)).arr.to_list())
            else:
                series.append(pl.Series(name, values, dtype))
        clusters = np.array([cluster for cluster, _ in rows], np.int64)
        judgments, kept = _judgments(_numbers(pl.DataFrame(series)), clusters), self._counts
        new = counted(judgments, self._thresholds, n_clusters=len(kept.decided))
        summed = (one.name for one in fields(Counts) if one.name != "of_models")
        self._counts = Counts(**{name: getattr(kept, name) + getattr(new, name) for name in summed})

    def grounds(self, confidence_level: float) -> tuple[Ground, ...]:
        """Return the findings against the judge so far, as reports would.

        Raises:
            StatisticsError: If the level is not in (0, 1).
        """
        decided, flipped = self._counts.decided, self._counts.flipped
        met = decided > 0
        counts = replace(self._counts, decided=decided[met], flipped=flipped[met])
        return grounds(counts, self._thresholds, confidence_level)


def _numbers(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with a judge as the rule counts them: no texts, no distributions."""
    absent = pl.Series([None] * len(rows), dtype=pl.Null)

    def column(name: str, dtype: pl.DataType) -> pl.Series:
        found = rows[name] if name in rows.columns else absent.alias(name)
        # A method from outside may mean something else by the name of a mass.
        is_number = found.dtype.is_numeric() or dtype != pl.Float64()
        return (found if is_number else absent.alias(name)).cast(dtype)

    masses: dict[str, pl.Series] = {
        name: column(name, pl.Float64()) for name in _MASSES if name in rows.columns
    }
    failed = column("status", pl.String()).fill_null("ok") != "ok"
    unread = ~column("parsed", pl.Boolean()).fill_null(value=True)
    numbers: dict[str, pl.Series] = {
        "method": column("method", pl.String()).fill_null(""),
        "judge": column("judge", pl.String()),
        "cluster": column(CLUSTER, pl.String()).fill_null(""),
        "missing": failed | unread,
        "cause": column("cause", pl.String()),
        **{name: column(name, pl.String()) for name in _MODELS if name in rows.columns},
        "ab": pl.Series(_decided(rows, "ab")),
        "ba": pl.Series(_decided(rows, "ba")),
        "same": column("same_text", pl.Boolean()).fill_null(value=False),
        **masses,
    }
    return pl.DataFrame(numbers).filter(pl.col("judge").is_not_null())


def _decided(rows: pl.DataFrame, order: str) -> NDArray[np.float64]:
    """Return 1 for A, -1 for B and 0 for a tie in one order, shape (rows,); nan for neither."""
    written, preference = f"winner_{order}", f"prefer_a_{order}"
    if written in rows.columns:
        signs = rows[written].replace_strict(_DECISIONS, default=None, return_dtype=pl.Float64())
        return signs.to_numpy().astype(np.float64)
    if preference not in rows.columns:
        return np.full(len(rows), np.nan)
    name = f"p_{order}"
    if name not in rows.columns:
        rows = rows.with_columns(pl.lit(None, pl.List(pl.Float64())).alias(name))
    is_known = rows[preference].cast(pl.Float64).is_finite().fill_null(value=False).to_numpy()
    return np.where(is_known, order_decisions(rows, name), np.nan)


def _judgments(rows: pl.DataFrame, clusters: Ints) -> Judgments:
    """Return the judgments of one judge, of rows in clusters of shape (rows,)."""
    decision_ab, decision_ba = rows["ab"].to_numpy(), rows["ba"].to_numpy()
    both = np.isfinite(decision_ab) & np.isfinite(decision_ba)
    both &= ~rows["same"].to_numpy() & ~rows["missing"].to_numpy()
    missing = rows["missing"]
    of_judged = rows.filter(~missing)
    about = [rows.select("missing", model=name) for name in _MODELS if name in rows.columns]
    of_models = (
        pl.concat(about)
        .drop_nulls("model")
        .group_by("model", maintain_order=True)
        .agg(n=pl.len(), n_missing=pl.col("missing").sum())
        if about
        else pl.DataFrame()
    )
    return Judgments(
        masses=of_judged.select(pl.col("^coverage.*$")).to_numpy().astype(np.float64),
        decision_ab=decision_ab[both],
        decision_ba=decision_ba[both],
        clusters=clusters[both],
        n_units=len(rows),
        n_missing=int(missing.sum()),
        of_models=tuple(OfModel(*row) for row in of_models.iter_rows()),
        causes=_causes(rows.filter(missing)),
    )
