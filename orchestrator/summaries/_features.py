"""What answers tell of themselves: the mean of each measure by model, and what it rests on."""

from collections.abc import Callable
from typing import Final

import polars as pl

from orchestrator.clusters import prompt_words
from orchestrator.columns import score_words
from orchestrator.methods import confidence, glass_box
from orchestrator.plugin import Cell, Context, Summary, Table, make_table, table_columns
from orchestrator.ranking.cells import (
    METHODS,
    good_rows,
    groups,
    means_by_model,
    numbered,
    plain_mean,
)

_MEANS: Final = "score | better | mean: number 4 | answers: count | undefined: count"
_FEATURES = table_columns(f"model | feature: {_MEANS}")
_MEASURES = table_columns(f"model | measure: {_MEANS}")
_ANSWERS = "model | answers: count | empty: count | failed: count | tokens: number 1"
_OF_FEATURES = table_columns(_ANSWERS, "cut off: count")
_OF_MEASURES = table_columns(
    _ANSWERS, "short positions: percent | P(True) coverage: percent | meanings: number 1"
)
_BOUNDS = ("softmax_entropy_low", "softmax_entropy_high")

_READS = ("item", "model", "status", "n_tokens", "undefined")


def _read(rows: pl.DataFrame, more: Callable[[pl.DataFrame], list[Cell]]) -> list[list[Cell]]:
    """Return a line a model on the answers that its measures were read off.

    `more` says more of those that did not fail.
    """
    lines: list[list[Cell]] = []
    for names, group in groups(rows, "model"):
        good = good_rows(group)
        n_empty = int((good["undefined"] == "empty answer").fill_null(value=False).sum())
        known: list[Cell] = [*names, len(good), n_empty, len(group) - len(good)]
        lines.append([*known, plain_mean(good["n_tokens"]), *more(good)])
    return lines


_BETTER: Final = (
    "better: whether more (+) or less (-) should mean a better answer; the analysis "
    "meta_evaluation compares the {} with gold"
)


class GlassBoxSummary(Summary[glass_box.Config]):
    """Glass-box features, with which way is better."""

    reads_alone = True
    reads = ("status",)

    def summarise(self, context: Context) -> list[Table]:
        """The features, then the answers that they were read off."""
        config = self.config
        oriented = glass_box.Kind(config).scores
        bounds = [name for name in _BOUNDS if "bounds" in config.groups]
        if config.vocabulary_size is None:
            bounds = bounds[:1]
        # Over the answers of one model the mean of `combo_of_model` is 0 by construction.
        wanted = [name for name in (*oriented, *bounds) if name != "combo_of_model"]
        rows = numbered(context, (*_READS, "truncated"))
        features = means_by_model(context, rows, {name: oriented.get(name, 0) for name in wanted})
        read = _read(rows, lambda good: [int(good["truncated"].fill_null(value=False).sum())])
        basis, notes, title = prompt_words(rows), _notes(config), "Glass-box features"
        return [
            make_table("glass_box", title, _FEATURES, features, basis=basis, notes=notes),
            make_table("glass_box.answers", "Features read", _OF_FEATURES, read, basis=basis),
        ]


def _notes(config: glass_box.Config) -> list[str]:
    own = "each model scores its own answers: means of different models are not comparable"
    who = own if config.scorer is None else f"scored by {config.scorer}"
    notes = [_BETTER.format("features"), METHODS, who]
    if "combo" in config.groups:
        notes.append(
            f"combo: sum of the z-scores of {', '.join(map(score_words, config.combo))} over all "
            "answers of this table, with signs such that more is better"
        )
    return notes


class ConfidenceSummary(Summary[confidence.Config]):
    """Confidence, and the lists and samples that it was read off."""

    reads_alone = True
    reads = ("status",)

    def summarise(self, context: Context) -> list[Table]:
        """The measures, then the answers, lists and samples that they were read off."""
        config = self.config
        more = ("n_short", "p_true_coverage", "n_meanings")
        rows = numbered(context, (*_READS, *more))
        measures = means_by_model(context, rows, confidence.Kind(config).scores)

        def listed(good: pl.DataFrame) -> list[Cell]:
            known = good.filter(pl.col("n_short").is_not_null())
            n_tokens, n_short = (int(known[name].sum()) for name in ("n_tokens", "n_short"))
            share = n_short / n_tokens if n_tokens else None
            return [share, *(plain_mean(good[name]) for name in more[1:])]

        basis, notes, read = prompt_words(rows), _words(config), _read(rows, listed)
        title = "Confidence: what was read"
        return [
            make_table("confidence", "Confidence", _MEASURES, measures, basis=basis, notes=notes),
            make_table("confidence.read", title, _OF_MEASURES, read, basis=basis),
        ]


def _words(config: confidence.Config) -> list[str]:
    who = "each model reads its own answers: means of different models are not comparable"
    notes = [_BETTER.format("measures"), METHODS, who]
    if config.alternatives:
        notes.append(
            f"confidence of a token: minus the mean log-probability of the {config.alternatives} "
            "most likely ones; a lower bound at short positions, which list fewer"
        )
    if config.p_true is not None:
        notes.append(
            "P(True) coverage: probability of both letters together; below 50 % P(True) rests "
            "mostly on what the model did not want to say"
        )
    return notes
