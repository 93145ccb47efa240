"""Confidence: the mean of each measure by model, and what the measures rest on."""

import polars as pl

from orchestrator.clusters import prompt_words
from orchestrator.methods.confidence import Confidence, Config
from orchestrator.plugin import Cell, Context, Summary, Table, make_table, table_columns
from orchestrator.ranking.cells import (
    METHODS,
    good_rows,
    groups,
    means_by_model,
    numbered,
    plain_mean,
)

_MEASURES = table_columns(
    "model | measure: score | better | mean: number 4 | answers: count | undefined: count"
)
_READ = table_columns(
    "model | answers: count | empty: count | failed: count | tokens: number 1",
    "short positions: percent | P(True) coverage: percent | meanings: number 1",
)

_READS = (
    "item", "model", "status", "n_tokens", "undefined", "n_short", "p_true_coverage", "n_meanings",
)  # fmt: skip


class ConfidenceSummary(Summary[Config]):
    """The mean of each measure by model, and what the measures rest on."""

    reads_alone = True
    reads = ("status",)
    section = "Confidence"
    section_order = 2

    def summarise(self, context: Context) -> list[Table]:
        """The measures, then the answers, lists and samples that they were read off."""
        config = self.config
        if context.rows.is_empty():
            return []
        scores = Confidence(config).scores
        rows = numbered(context, _READS)
        measures = means_by_model(context, rows, scores)
        read: list[list[Cell]] = []
        for (model,), group in groups(rows, "model"):
            good = good_rows(group)
            listed = good.filter(pl.col("n_short").is_not_null())
            n_tokens, n_short = (int(listed[name].sum()) for name in ("n_tokens", "n_short"))
            read.append(
                [
                    str(model),
                    len(good),
                    int((good["undefined"] == "empty answer").fill_null(value=False).sum()),
                    len(group) - len(good),
                    plain_mean(good["n_tokens"]),
                    n_short / n_tokens if n_tokens else None,
                    plain_mean(good["p_true_coverage"]),
                    plain_mean(good["n_meanings"]),
                ]
            )
        basis, notes = prompt_words(rows), _notes(config)
        return [
            make_table("confidence", "Confidence", _MEASURES, measures, basis=basis, notes=notes),
            make_table("confidence.read", "Confidence: what was read", _READ, read, basis=basis),
        ]


def _notes(config: Config) -> list[str]:
    notes = [
        "better: whether more (+) or less (-) should mean a better answer; the analysis "
        "meta_evaluation compares the measures with gold",
        METHODS,
        "each model reads its own answers: means of different models are not comparable",
    ]
    if config.alternatives:
        notes.append(
            f"confidence of a token: minus the mean log-probability of the {config.alternatives} "
            "most likely ones; a lower bound at short positions, which list fewer"
        )
    if config.alternatives and config.vocabulary_size is not None:
        notes.append("self-certainty is known by a lower bound, which is no estimate of it")
    if config.p_true is not None:
        notes.append(
            "P(True) coverage: probability of both letters together; below 50 % P(True) rests "
            "mostly on what the model did not want to say"
        )
    return notes
