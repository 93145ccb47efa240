"""Conflict degree: how often ProbDiff and a judge (or people) disagree on what a rewriting did.

A rewriting conflicts where d > 0 but it was judged worse, or d < 0 but it was judged better; the
degree is the share of such texts among those that have a d and a judgment. The paper gives no
formula; this is what its section 5.2 describes. Over several people it is the mean over them.

Source: Xia et al. (Findings of ACL 2024), Table 6.
"""

from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from pydantic import Field

from orchestrator.clusters import CLUSTER, OVER, codes
from orchestrator.contracts.settings import GivenFile
from orchestrator.plugin import (
    Analysis,
    Cell,
    Context,
    Settings,
    Table,
    UsageError,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import METHODS, n_prompts, share_of
from orchestrator.ranking.human_labels import read_labels
from orchestrator.statistics.agreement import cohen_kappa, krippendorff_alpha
from orchestrator.tables import measured

_KEYS: Final = ("item", "model", "turn")
_OF_GAPS: Final = (*_KEYS, "d", "rewriting")
_OF_JUDGMENTS: Final = (*_KEYS, "judge", "status", "verdict", "rewriting")
_GAPS: Final = {
    "item": pl.String(), "model": pl.String(), "turn": pl.Int64(),
    **dict.fromkeys(OVER, pl.String()), "d": pl.Float64(), "rewriting": pl.UInt64(),
}  # fmt: skip
_JUDGMENTS: Final = {
    "item": pl.String(), "model": pl.String(), "turn": pl.Int64(), "rater": pl.String(),
    "judged": pl.UInt64(), "label": pl.Float64(),
}  # fmt: skip
# Rewritings are compared with one another on one item only, so 64 bits are enough.
_HASH: Final = pl.when(pl.col("rewriting").is_not_null()).then(pl.col("rewriting").hash())
_CONFLICTS: Final = table_columns(
    "judged by | model | conflict degree: percent | d > 0, worse: count",
    "d < 0, better: count | texts: count | prompts: count",
)
_AGREEMENT: Final = table_columns("of | statistic | kappa or alpha: signed 2 | texts: count")


class Config(Settings):
    """Settings of `conflict`."""

    method: str | None = Field(None, description="Name of the probdiff method. Default: the first.")
    judged: tuple[str, ...] | None = Field(
        None, description="Names of the judged_rewrites methods. Default: all."
    )
    labels: GivenFile | None = Field(
        None,
        description="A file of people's labels, relative to the recipe: item, label (-1 worse, 0 "
        "the same, 1 better), and where there are several: model, turn, annotator.",
    )


class Kind(Analysis[Config]):
    """Disagreement of ProbDiff and judges (or people) on the effect of a rewriting."""

    def summarise(self, context: Context) -> list[Table]:
        """Conflicts by who judged and model, then how far those who judged agree."""
        config = self.config
        gaps = _gaps(context, config.method)
        # Verdicts of judges: item, model, turn, rater, label, and hash of what was judged.
        found = [pl.DataFrame(schema=_JUDGMENTS)]
        label = pl.col("verdict").sign()
        for source in context.sources:
            is_named = config.judged is None or source.name in config.judged
            if source.kind == "judged_rewrites" and is_named:
                rater = pl.format("{} ({})", pl.col("judge"), pl.lit(source.name))
                for part in context.slices_of(source, _OF_JUDGMENTS):
                    rows = part.filter(pl.col("status") == "ok")
                    found.append(rows.select(*_KEYS, rater=rater, judged=_HASH, label=label))
        labels = pl.concat([*found, *_labels(context, config.labels, gaps)], how="diagonal")
        if labels.is_empty():
            raise UsageError(
                f"{context.name}: the rewritings have no judgments: add a method of kind "
                "judged_rewrites with the settings of the probdiff method, or a file of 'labels'"
            )
        # A judge of other rewritings, drawn by other settings, says nothing about these.
        same = pl.col("judged").is_null() | (pl.col("judged") == pl.col("rewriting"))
        both = labels.join(gaps, on=_KEYS, how="inner").filter(same).drop_nulls(["d", "label"])
        return [_by_judge(context, labels, both), *_agreement(context, labels)]


def _gaps(context: Context, name: str | None) -> pl.DataFrame:
    sources = [one for one in context.sources if one.kind == "probdiff"]
    sources = [one for one in sources if name in (None, one.name)]
    if not sources:
        what = "" if name is None else f" called {name!r}"
        raise UsageError(f"{context.name}: the recipe has no method of kind probdiff{what}")
    if getattr(sources[0].method.config, "rewritings", 1) > 1:
        raise UsageError(
            f"{context.name}: d of {sources[0].name!r} is a mean over several rewritings, of which "
            "judges and people see one; name a probdiff method with 'rewritings: 1'"
        )
    found = [pl.DataFrame(schema=_GAPS)]
    for rows in context.slices_of(sources[0], _OF_GAPS):
        gaps = rows.filter(pl.col("turn").is_not_null())
        found.append(gaps.select(*_KEYS, *OVER, "d", rewriting=_HASH))
    return pl.concat(found)


def _labels(context: Context, path: str | None, gaps: pl.DataFrame) -> list[pl.DataFrame]:
    """Labels of people; a file without a model or turn means the only one there is."""
    if path is None:
        return []
    given = read_labels(Path(path))
    name = Path(path).name
    if not given["value"].is_in([-1.0, 0.0, 1.0]).all() or given["value"].null_count():
        raise UsageError(f"{context.name}: {name}: labels are -1, 0 or 1")
    models = gaps["model"].unique().to_list()
    if given["model"].null_count() and len(models) > 1:
        raise UsageError(f"{context.name}: {name} lacks the model of each label")
    return [
        given.select(
            "item",
            pl.col("model").fill_null(models[0] if models else ""),
            pl.col("turn").fill_null(1),
            rater=pl.col("annotator").fill_null("people"),
            label="value",
        )
    ]


def _by_judge(context: Context, labels: pl.DataFrame, both: pl.DataFrame) -> Table:
    level = context.confidence_level
    up = (pl.col("d") > 0) & (pl.col("label") < 0)
    down = (pl.col("d") < 0) & (pl.col("label") > 0)
    lines: list[list[Cell]] = []
    for (rater,), judged in both.group_by("rater", maintain_order=True):
        parts = [
            (str(name), part) for (name,), part in judged.group_by("model", maintain_order=True)
        ]
        for model, part in [*parts, *([("all", judged)] if len(parts) > 1 else [])]:
            counts = part.select(up=up.sum(), down=down.sum()).row(0)
            degree = share_of(part, up | down, level)
            lines.append([str(rater), model, degree, *counts, len(part), n_prompts(part)])
    people = both.filter(pl.col("judged").is_null())
    if people["rater"].n_unique() > 1:
        shares = people.group_by("rater").agg(share=(up | down).mean())["share"].to_numpy()
        lines.append(["mean of people", "all", float(shares.mean()), None, None, None, None])
    notes = [
        "conflict: d > 0 but judged worse, or d < 0 but judged better; over the texts that have "
        "both a d and a judgment",
        METHODS,
    ]
    if n_left := len(labels) - len(both):
        notes.append(f"{n_left:,} judgments are of texts without a d, or of other rewritings")
    title = "Conflict of ProbDiff with judgments"
    return make_table("conflict", title, _CONFLICTS, lines, notes=notes)


def _agreement(context: Context, labels: pl.DataFrame) -> list[Table]:
    """Tabulate kappas of every two who judged the same texts, and agreement of three or more."""
    wide = labels.drop_nulls("label").pivot(
        "rater", index=list(_KEYS), values="label", aggregate_function="first"
    )
    raters = [name for name in wide.columns if name not in _KEYS]
    prompts = codes(context.clusters.of(wide.select("item"))[CLUSTER])
    if len(raters) < 2:
        return []
    level = context.confidence_level
    given = {name: wide[name].fill_null(np.nan).to_numpy() for name in raters}
    lines: list[list[Cell]] = []
    kappas = {}
    for one, two in combinations(raters, 2):
        found = cohen_kappa(given[one], given[two], prompts, level)
        kappas[one, two] = found.value
        n = int((~np.isnan(given[one]) & ~np.isnan(given[two])).sum())
        lines.append([f"{one}, {two}", "Cohen", measured(found), n])
    people = [str(name) for name in labels.filter(pl.col("judged").is_null())["rater"].unique()]
    if len(people) > 2:
        known = [k for pair, k in kappas.items() if set(pair) <= set(people) and not np.isnan(k)]
        lines.append(["people", "mean Cohen", float(np.mean(known)) if known else None, None])
        ratings = np.stack([given[name] for name in people], axis=1)
        n_rated = int(((~np.isnan(ratings)).sum(axis=1) >= 2).sum())
        alpha = krippendorff_alpha(ratings, prompts, level)
        lines.append(["people", "Krippendorff's alpha", measured(alpha), n_rated])
    return [make_table("conflict.agreement", "Agreement of those who judged", _AGREEMENT, lines)]
