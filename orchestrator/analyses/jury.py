"""A jury: what several judges say together, and how far each agrees with the others.

All judges have judged the same pairs. The jury's preference for a pair is the weighted mean of its
judges' soft preferences, P(A better) + P(tie)/2; pairs that one of them did not judge are left out,
since a jury that changes from pair to pair is none. Intervals are over prompts, for these judges:
that other judges could sit in the jury is not in them.
"""

from typing import Annotated, Final, NamedTuple

import numpy as np
import polars as pl
from pydantic import Field

from orchestrator import numbers
from orchestrator.clusters import prompt_words
from orchestrator.plugin import (
    Analysis,
    Cell,
    Column,
    Context,
    Settings,
    Table,
    UsageError,
    make_table,
    table_columns,
)
from orchestrator.ranking.preferences import (
    SOFT,
    Preferences,
    between,
    judged_rows,
    mass,
    preferences,
)
from orchestrator.ranking.winners import source_of_judges
from orchestrator.records import Floats
from orchestrator.statistics.agreement import raw_agreement
from orchestrator.statistics.judgments import decided
from orchestrator.statistics.trust import no_ranking_by_judge
from orchestrator.tables import measured, untrusted


class Config(Settings):
    """Settings of `jury`."""

    method: str | None = Field(
        None, description="Name of a judging method with several judges. Default: the first."
    )
    weights: dict[str, Annotated[float, Field(ge=0)]] = Field(
        {},
        description="Weight of each judge in the mean of the jury. Default: 1; 0 excludes a judge.",
    )


class _Jury(NamedTuple):
    """The pairs that all judges judged.

    Attributes:
        weights: Of each of J judges; their sum is 1.
        pairs: As of one judge, in the order of the arrays.
        soft: Shape (n, J), preferences for A in [0, 1].
        coverage: Shape (n, J).
        n_left_out: Pairs that some judge did not judge.
    """

    weights: dict[str, float]
    pairs: Preferences
    soft: Floats
    coverage: Floats
    n_left_out: int

    def together(self, *, without: str = "") -> Floats:
        """The preferences of the jury, or of the others without a judge, shape (n,)."""
        weights = np.array([w if judge != without else 0.0 for judge, w in self.weights.items()])
        found: Floats = self.soft @ weights if weights.any() else self.soft[:, 0]
        return found / weights.sum() if without and weights.any() else found


class Kind(Analysis[Config]):
    """Combined verdicts of several judges, and each against the others."""

    def summarise(self, context: Context) -> list[Table]:
        """Ratings by the jury, and each judge against the others."""
        jury = _judged(context, self.config)
        if not len(jury.soft):
            raise UsageError(f"{context.name}: no pair was judged by all judges")
        trusts = context.trust.get(source_of_judges(context, self.config.method).name, ())
        warnings = no_ranking_by_judge([one for one in trusts if one.judge in jury.weights])
        tables = (_ratings(jury, context), _by_judge(jury, context))
        return [untrusted(table, warnings) for table in tables]


def _judged(context: Context, config: Config) -> _Jury:
    source = source_of_judges(context, config.method)
    found = preferences(judged_rows(context, source))
    by_judge = dict(found.by_judge())
    judges = tuple(judge for judge in source.method.judges if judge in by_judge)
    if len(judges) < 2:
        raise UsageError(f"{context.name}: {source.name!r} has rows of fewer than two judges")
    if unknown := sorted(set(config.weights) - set(judges)):
        raise UsageError(f"{context.name}: {', '.join(unknown)} is not a judge of {source.name!r}")
    weights = np.array([config.weights.get(judge, 1.0) for judge in judges])
    if not weights.any():
        raise UsageError(f"{context.name}: weights must not all be 0")
    keys = ["item", "turn", "model_a", "model_b"]
    joined = by_judge[judges[0]].rows
    for at, judge in enumerate(judges):
        mine = by_judge[judge].rows.select(
            *keys,
            pl.col(SOFT).alias(f"soft_{at}"),
            pl.col("coverage").alias(f"coverage_{at}"),
        )
        joined = joined.join(mine, on=keys, maintain_order="left")
    n_units = found.rows.select(keys).n_unique()

    def columns(name: str) -> Floats:
        wanted = [f"{name}_{at}" for at in range(len(judges))]
        return joined.select(wanted).to_numpy().astype(np.float64)

    return _Jury(
        dict(zip(judges, (weights / weights.sum()).tolist(), strict=True)),
        Preferences(joined, found.estimators, found.mean, found.n_missing),
        columns("soft"),
        columns("coverage"),
        n_units - len(joined),
    )


def _ratings(jury: _Jury, context: Context) -> Table:
    """Bradley-Terry ratings by the jury, and by each judge alone."""
    models = jury.pairs.models()
    together = jury.pairs.rated(jury.together(), context.confidence_level)
    level = context.confidence_level
    alone = [jury.pairs.rated(jury.soft[:, at], level) for at in range(len(jury.weights))]
    alone_columns = (Column(judge, "rating") for judge in jury.weights)
    columns = (*table_columns("model | jury: rating | rank"), *alone_columns)
    order = np.argsort(-np.nan_to_num(together.values, nan=-np.inf), kind="stable")
    lines: list[list[Cell]] = []
    for at in order:
        ranks = numbers.rank(int(together.rank_low[at]), int(together.rank_high[at]))
        lines.append(
            [
                models[at],
                between(together.values[at], together.low[at], together.high[at]),
                ranks if together.rank[at] else None,
                *(float(one.values[at]) for one in alone),
            ]
        )
    weights = ", ".join(f"{judge} {weight:.2f}" for judge, weight in jury.weights.items())
    basis = f"{len(jury.soft):,} pairs of answers · {prompt_words(jury.pairs.rows)}"
    if jury.n_left_out:
        basis = f"{basis} · {jury.n_left_out:,} not judged by all"
    notes = [
        f"jury: weighted mean of the judges' preferences ({weights})",
        "ratings: Bradley-Terry, mean 1000; interval over prompts, for these judges",
        *together.notes,
    ]
    title = "Ratings by the jury"
    return make_table("jury.ratings", title, columns, lines, basis=basis, notes=notes)


_MEMBERS: Final = table_columns(
    "judge | weight: number 2 | agrees with the others: percent | ties: percent", "coverage"
)


def _by_judge(jury: _Jury, context: Context) -> Table:
    """Each judge against the jury of the others."""
    differ = ~jury.pairs.rows["same_text"].fill_null(value=False).to_numpy()
    prompts = jury.pairs.prompts()[differ]
    lines: list[list[Cell]] = []
    for at, (judge, weight) in enumerate(jury.weights.items()):
        rest = decided(jury.together(without=judge) - 0.5)[differ]
        own = decided(jury.soft[:, at] - 0.5)[differ]
        agreed = measured(raw_agreement(own, rest, prompts, context.confidence_level))
        lines.append(
            [
                judge,
                weight,
                agreed,
                float((own == 0).mean()) if own.size else None,
                mass(pl.Series(jury.coverage[:, at])),
            ]
        )
    notes = [
        "agrees: the same side of one half as the weighted mean of the other judges",
        "pairs of equal answers are excluded, as every judge ties on them",
    ]
    differing = prompt_words(jury.pairs.rows.filter(pl.Series(differ)))
    basis = f"{int(differ.sum()):,} pairs of different answers · {differing}"
    return make_table("jury.members", "Each judge", _MEMBERS, lines, basis=basis, notes=notes)
