"""The rows that a judge scored, with the human labels that there are.

Input of the analyses `human_labels` and `selective`, and of the gates' measure `risk`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator

from orchestrator.clusters import CLUSTER, OVER, codes
from orchestrator.contracts.context import Context, Source
from orchestrator.contracts.method import is_judging
from orchestrator.contracts.settings import GivenFile
from orchestrator.errors import UsageError
from orchestrator.plugins.base import Settings
from orchestrator.ranking.human_labels import Label, read_human_labels, skipped_rows
from orchestrator.ranking.preferences import SOFT, judged_rows, preferences
from orchestrator.ranking.scores import score, source_of
from orchestrator.statistics.judgments import decided
from orchestrator.statistics.prediction_powered import Labelled
from orchestrator.statistics.selective import Kept, kept

_SHAPE: Final = {
    "item": pl.String(), **dict.fromkeys(OVER, pl.String()), "of": pl.String(),
    "score": pl.Float64(), "label": pl.Float64(),
}  # fmt: skip


class Config(Settings):
    """Settings of `human_labels`."""

    labels: GivenFile = Field(
        description="File of labels, relative to the recipe: columns item and model (or "
        "model_a and model_b), label, annotator."
    )
    method: str | None = Field(
        None, description="Method whose scores or preferences are corrected. Default: the first."
    )
    column: str | None = Field(
        None,
        description="Score of single answers: column of the method's rows. Default: its first.",
    )
    scale: tuple[float, float] | None = Field(
        None, description="Least and greatest label of a single answer, such as [1, 10]."
    )
    judge_scale: tuple[float, float] | None = Field(
        None, description="Least and greatest score of the judge, mapped to `scale`. Default: that."
    )

    @model_validator(mode="after")
    def _fits(self) -> "Config":
        for name in ("scale", "judge_scale"):
            given = getattr(self, name)
            if given is not None and not given[0] < given[1]:
                raise ValueError(f"'{name}' must be two numbers, the lesser first")
        if self.judge_scale is not None and self.scale is None:
            raise ValueError("'judge_scale' needs 'scale'")
        return self


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """The rows that were judged, with the labels that there are.

    Attributes:
        frame: Columns of `_SHAPE`, and prompt (a number from 0 on); of pairs also turn, first,
            second. `of` is the model, or the pair.
        is_pairs: Whether scores are preferences in [0, 1].
        source: Name of the method, with its column.
        notes: About labels that were left out, and what prompts count.
    """

    frame: pl.DataFrame
    is_pairs: bool
    source: str
    notes: tuple[str, ...]

    def data(self, of: str) -> Labelled:
        """The rows of one model or pair; prompts have the same numbers for all."""
        frame = self.frame.filter(pl.col("of") == of)
        score, label = (frame[name].fill_null(np.nan).to_numpy() for name in ("score", "label"))
        return Labelled(score, label, frame["prompt"].to_numpy())

    @property
    def n_prompts(self) -> int:
        """Prompts, or clusters of them, of all rows."""
        return self.frame[CLUSTER].n_unique()

    @property
    def names(self) -> list[str]:
        """Models or pairs, in their order."""
        return self.frame["of"].unique(maintain_order=True).to_list()


def labelled_rows(context: Context, config: Config, labels: Sequence[Label]) -> LabelledRows:
    """Join labels to what a judge scored: single answers or pairs, as the labels are.

    Raises:
        UsageError: If no method scores what the labels are of, or no label is of a judged row.
    """
    of = _of_pairs if len(labels[0].about.models) == 2 else _of_answers
    rows = of(context, config, labels)
    if rows.frame["label"].is_null().all():
        raise UsageError(f"{context.name}: no label is of an answer that {rows.source} judged")
    return rows


def _of_answers(context: Context, config: Config, labels: Sequence[Label]) -> LabelledRows:
    named = None if config.method is None else source_of(context, config.method)
    scoring = (one for one in context.sources if one.scores and one.method.pairs is None)
    sources = [named] if named else list(scoring)
    columns = [config.column] if config.column else [name for one in sources for name in one.scores]
    if not sources or not columns:
        raise UsageError(f"{context.name}: no method of this recipe scores single answers")
    found = score(context, sources[0], columns[0])
    if found.is_pairwise:
        raise UsageError(
            f"{context.name}: the labels are of single answers, but {sources[0].name!r} compares "
            "pairs; name a 'method' that scores answers"
        )
    points = found.means().with_columns(of=pl.col("model"), score=pl.col("value"))
    if config.judge_scale is not None and config.scale is not None:
        (low, high), (least, most) = config.judge_scale, config.scale
        points = points.with_columns(
            score=least + (pl.col("score") - low) * (most - least) / (high - low)
        )
    given = [(one.about.item, one.about.turn, one.about.models[0], one.value) for one in labels]
    return _joined(points, given, ("item", "turn", "model"), found.name, is_pairs=False)


def _of_pairs(
    context: Context, config: "Config | Selective", labels: Sequence[Label]
) -> LabelledRows:
    sources = [source for source in context.sources if is_judging(source.method)]
    if config.method is not None:
        sources = [source_of(context, config.method)]
    if not sources or not is_judging(sources[0].method):
        raise UsageError(f"{context.name}: the labels are of pairs, but no judge compares them")
    source = sources[0]
    judge = config.judge if isinstance(config, Selective) else None
    points = judged_pairs(context, source, judge).with_columns(
        of=pl.format("{} against {}", "first", "second")
    )
    given = []
    for one in labels:
        first, second = one.about.models
        value = one.value if first < second else 1.0 - one.value
        pair = (min(first, second), max(first, second))
        given.append((one.about.item, one.about.turn, *pair, value))
    keys = ("item", "turn", "first", "second")
    return _joined(points, given, keys, source.name, is_pairs=True)


def judged_pairs(context: Context, source: Source, judge: str | None = None) -> pl.DataFrame:
    """Return what a judging method says of each pair: one judge, or the mean over its judges.

    Columns: item, cluster, turn, first and second (models in alphabetical order), score (P(first is
    better) + P(tie) / 2), same_text, coverage and orders (1 minus the distance of the two orders'
    preferences); null what is not known.

    Raises:
        UsageError: If the method has no rows.
    """
    rows = judged_rows(context, source)
    if judge is not None:
        rows = rows.filter(pl.col("judge") == judge)
    if rows.is_empty():
        of = "" if judge is None else f" by {judge!r}"
        raise UsageError(f"{context.name}: {source.name!r} has no rows{of}")
    turned = pl.col("model_a") > pl.col("model_b")
    return (
        preferences(rows)
        .rows.select(
            "item",
            *OVER,
            "turn",
            "same_text",
            "coverage",
            "orders",
            first=pl.when(turned).then("model_b").otherwise("model_a"),
            second=pl.when(turned).then("model_a").otherwise("model_b"),
            score=pl.when(turned).then(1.0 - pl.col(SOFT)).otherwise(pl.col(SOFT)),
        )
        .group_by("item", *OVER, "turn", "first", "second", maintain_order=True)
        .agg(pl.col("score", "coverage", "orders").mean(), pl.col("same_text").any())
    )


def _joined(
    points: pl.DataFrame,
    given: Sequence[tuple[object, ...]],
    keys: Sequence[str],
    source: str,
    *,
    is_pairs: bool,
) -> LabelledRows:
    """Points with the mean label of each; several people's labels of a row are averaged."""
    schema = dict.fromkeys(keys, pl.String()) | {"turn": pl.Int64(), "label": pl.Float64()}
    told = pl.DataFrame(given, schema=[*keys, "label"], orient="row", schema_overrides=schema)
    mean = told.group_by(keys, maintain_order=True).agg(pl.col("label").mean())
    mean = mean.with_columns(pl.col(key).cast(points.schema[key]) for key in keys)
    joined = points.join(mean, on=list(keys), how="left", maintain_order="left")
    notes = []
    used = joined["label"].is_not_null().sum()
    if unused := len(mean) - used:
        notes.append(f"{unused:,} labels are of answers that were not judged: left out")
    sides = ("turn", "first", "second", "coverage", "orders") if is_pairs else ()
    frame = joined.select(*_SHAPE, *sides).sort("of", maintain_order=True)
    frame = frame.with_columns(prompt=pl.Series(codes(frame[CLUSTER])))
    return LabelledRows(frame, is_pairs, source, tuple(notes))


class Selective(Settings):
    """Settings of `selective`."""

    labels: GivenFile = Field(
        description="File of labels of pairs, relative to the recipe, of a random choice of the "
        "verdicts: a sheet of `orchestrator labels`, or columns item, model_a, model_b, label."
    )
    method: str | None = Field(
        None, description="Method whose verdicts are kept or sent to people. Default: the first."
    )
    judge: str | None = Field(
        None, description="One of its judges. Default: the mean preference of all."
    )
    risk: tuple[Annotated[float, Field(gt=0.0, lt=1.0)], ...] = Field(
        (0.05, 0.1, 0.2),
        min_length=1,
        description="Shares of the kept verdicts that may be wrong, each for itself.",
    )
    doubts: tuple[Literal["margin", "orders", "coverage"], ...] = Field(
        ("margin",),
        min_length=1,
        description="What makes a verdict unsure: a small margin over both orders, orders that "
        "disagree, little probability on the labels. Of several the one that keeps most is taken; "
        "each has its part of the error.",
    )
    about: Literal["prompts", "run"] = Field(
        "prompts",
        description="Whether the guarantee is for new prompts as well, whose verdicts may depend "
        "on each other, or for the verdicts of this run alone.",
    )


def kept_verdicts(context: Context, config: Selective) -> tuple[LabelledRows, list[Kept]]:
    """Return the verdicts with their margins and labels, and what each doubt keeps at thresholds.

    The margin |2 P(first is better) - 1|, over both orders, is how sure a verdict is. A verdict
    that names the other answer than people is wrong, one with a tie on one side half wrong. The
    rows have the columns margin and wrong besides.

    Raises:
        UsageError: If there are no labels of pairs, they are no random choice of them, or a doubt
            is not known of some verdict.
    """
    labels = read_human_labels(Path(config.labels))
    if not labels or len(labels[0].about.models) != 2:
        what = "labels of single answers; selective judging needs" if labels else "no label yet of"
        raise UsageError(f"{context.name}: {Path(config.labels).name} has {what} pairs")
    if skipped := skipped_rows(Path(config.labels), labels):
        raise UsageError(
            f"{context.name}: rows of {Path(config.labels).name} were passed over "
            f"({', '.join(skipped[:5])}); label them, by tie where people can't decide, since the "
            "others are no random choice"
        )
    rows = _of_pairs(context, config, labels)
    verdict, label = (decided(2.0 * rows.frame[of].to_numpy() - 1.0) for of in ("score", "label"))
    margin = margins(rows.frame["score"].to_numpy())
    wrong = 0.5 * np.abs(verdict - label)
    prompts = rows.frame["prompt"].to_numpy()
    own = prompts if config.about == "prompts" else np.arange(prompts.size)
    frame = rows.frame.with_columns(margin=pl.Series(margin), wrong=pl.Series(wrong))
    notes = rows.notes
    if np.unique(np.bincount(own)).size > 1:
        notes = (*notes, _UNEQUAL)
    found = []
    for doubt in dict.fromkeys(config.doubts):
        if frame[doubt].fill_nan(None).has_nulls():
            raise UsageError(
                f"{context.name}: {doubt!r} of some verdicts of {rows.source} is not known; take "
                "another of `doubts`"
            )
        found.append(kept(np.round(frame[doubt].to_numpy(), 6), wrong, own))
    return replace(rows, frame=frame, notes=notes), found


_UNEQUAL: Final = (
    "prompts have unequal numbers of verdicts, and those with a label count alike: it is no rate "
    "of all verdicts; with `about: run` it is one"
)


def margins(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return |2 P - 1| down to six digits: people copy thresholds as they are shown."""
    return np.floor(np.abs(2.0 * scores - 1.0) * 1e6) / 1e6
