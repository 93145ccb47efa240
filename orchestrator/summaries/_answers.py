"""Answers of models: how many, how good, how alike when asked again, and how they vary."""

import numpy as np
import polars as pl

from orchestrator.clusters import OVER, codes, prompt_words
from orchestrator.plugin import (
    Cell,
    Column,
    Context,
    Measured,
    MethodSettings,
    Summary,
    Table,
    make_table,
    table_columns,
)
from orchestrator.ranking.cells import (
    METHODS,
    basis_of,
    comparisons,
    good_rows,
    groups,
    mean_of,
    n_prompts,
    numbered,
    plain_mean,
    share_of,
)

_ANSWERS = table_columns(
    "model | answers: count | failed: count | exact match: percent",
    "mean log-prob: number | tokens: number 1 | cut off: percent",
)
_AGAIN = table_columns(
    "model | compared | exact match: percent | token F1: percent | similarity: percent",
    "prompts: count",
)
_PERCENTILES = (0, 10, 25, 50, 75, 90, 100)
_MODELS = table_columns(
    "model | mean ell: signed | variance: number | distinct: percent",
    "exact match: percent | samples: count | no ell: count",
)
_CURVES = (Column("model"), *(Column(f"{at} %", "number") for at in _PERCENTILES))

_READS = ("item", "model", "turn", "ell", "exact_match", "status")


class AnswersSummary(Summary[MethodSettings]):
    """Numbers of answers, of failures and of correct answers."""

    reads_alone = True
    reads = (
        "item", "model", "turn", "exact_match", "mean_logprob", "n_tokens", "finish_reason",
        "status",
    )  # fmt: skip

    def summarise(self, context: Context) -> list[Table]:
        """One line a model: answers, failures, exact match with its interval, log-probability."""
        rows: list[list[Cell]] = []
        for names, frame in groups(context.rows, "model"):
            good = good_rows(frame)
            right = None
            if good["exact_match"].count():
                right = share_of(good, pl.col("exact_match"), context.confidence_level, with_n=True)
            rows.append(
                [
                    *names,
                    len(good),
                    len(frame) - len(good),
                    right,
                    plain_mean(good["mean_logprob"]),
                    plain_mean(good["n_tokens"]),
                    plain_mean(good["finish_reason"] == "length"),
                ]
            )
        notes = [
            "intervals: Gaffke's test of a bounded mean, clustered by prompt; log-probabilities "
            "are means over answers"
        ]
        return [
            make_table(
                "answers",
                "Answers",
                _ANSWERS,
                rows,
                basis=prompt_words(context.rows),
                notes=notes,
                comparisons=comparisons(
                    good_rows(context.rows),
                    pl.col("exact_match"),
                    context.confidence_level,
                    ends=(0.0, 1.0),
                ),
            )
        ]


class ConsistencySummary(Summary[MethodSettings]):
    """Agreement of the answers that a model gives to one question asked several times."""

    reads_alone = True
    reads = (
        "item", "category", "model", "turn", "again", "exact_match", "token_f1", "similarity",
        "status", "cause",
    )  # fmt: skip

    def summarise(self, context: Context) -> list[Table]:
        """One line a model and further answer, as in Table 1."""
        rows = context.rows
        good, level = good_rows(rows), context.confidence_level
        lines: list[list[Cell]] = [
            [
                model,
                f"x, x{again}",
                share_of(part, pl.col("exact_match"), level),
                share_of(part, pl.col("token_f1"), level),
                # Not a share: similarities of embeddings may be below 0.
                mean_of(part, pl.col("similarity"), level),
                n_prompts(part),
            ]
            for (model, again), part in groups(good, "model", "again")
        ]
        notes = [
            "x: the answer; x1 and x2: answers to the same question, asked a second and a third "
            "time",
            METHODS,
        ]
        if not good["similarity"].count():
            notes.append("similarity: no encoder was named")
        return [
            make_table(
                "consistency", "Consistency", _AGAIN, lines, basis=basis_of(rows), notes=notes
            )
        ]


class SamplesSummary(Summary[MethodSettings]):
    """Variation of the mean log-probability of answers to one question, and its curve."""

    reads_alone = True
    reads = ("status",)

    def summarise(self, context: Context) -> list[Table]:
        """One line a model: level, variance within a question, repeated texts; then the curves."""
        # Different texts to a question are told apart by their hashes.
        rows = numbered(context, _READS, text=pl.col("text").hash())
        good, level = good_rows(rows), context.confidence_level
        lines: list[list[Cell]] = []
        curves: list[list[Cell]] = []
        for names, group in groups(good, "model"):
            of_question = group.group_by("item", *OVER, maintain_order=True).agg(
                variance=pl.col("ell").drop_nulls().var(ddof=1)
            )
            lines.append(
                [
                    *names,
                    mean_of(group, pl.col("ell"), level),
                    mean_of(of_question, pl.col("variance"), level),
                    group.select("item", "text").n_unique() / len(group),
                    share_of(group, pl.col("exact_match"), level).value,
                    len(group),
                    group["ell"].null_count(),
                ]
            )
            curves.append([*names, *_curve(group)])
        notes = [
            "ell: mean log-probability per token, in nats; variance: of ell within a question, "
            "mean over questions; expected to be smaller for better models",
            "distinct: share of samples whose text had not occurred before",
            METHODS,
        ]
        return [
            make_table(
                "samples",
                "Samples",
                _MODELS,
                lines,
                basis=basis_of(rows),
                notes=notes,
                comparisons=comparisons(good, pl.col("ell"), level),
            ),
            make_table(
                "samples.curve",
                "Curve of ell",
                _CURVES,
                curves,
                notes=[
                    "ell at each percentile of a question's samples (0 %: the least likely), mean "
                    "over questions; a flat curve is a small variance"
                ],
            ),
        ]


def _curve(rows: pl.DataFrame) -> list[Cell]:
    """Return percentiles of the samples of a question, mean over questions."""
    known = rows.select("item", "ell").drop_nulls("ell").sort("item", "ell")
    if known.is_empty():
        return [Measured(None, why="no ell")] * len(_PERCENTILES)
    values, counts = known["ell"].to_numpy(), np.bincount(codes(known["item"]))
    first = np.cumsum(counts) - counts
    found: list[Cell] = []
    for percentile in _PERCENTILES:
        place = percentile / 100.0 * (counts - 1)
        low = place.astype(np.int64)
        below, above = values[first + low], values[first + np.minimum(low + 1, counts - 1)]
        found.append(float((below + (above - below) * (place - low)).mean()))
    return found
