"""Glass-box features: the mean of each by model, with what it rests on and which way is better."""

import polars as pl

from orchestrator.clusters import prompt_words
from orchestrator.contracts.context import Context
from orchestrator.contracts.summary import Summary
from orchestrator.methods.glass_box import Config, GlassBox
from orchestrator.summaries._clusters import METHODS, mean_of
from orchestrator.tables import Cell, Column, Table, make_table

_FEATURES = (
    Column("model"),
    Column("feature"),
    Column("better"),
    Column("mean", "number", 4),
    Column("answers", "count"),
    Column("undefined", "count"),
)
_ANSWERS = (
    Column("model"),
    Column("answers", "count"),
    Column("empty", "count"),
    Column("cut off", "count"),
    Column("failed", "count"),
    Column("tokens", "number", 1),
)
_BOUNDS = ("softmax_entropy_low", "softmax_entropy_high")


class GlassBoxSummary(Summary[Config]):
    """The mean of each by model, with what it rests on and which way is better."""

    def summarise(self, context: Context) -> list[Table]:
        """The features, then the answers that they were read off."""
        config = self.config
        if context.rows.is_empty():
            return []
        rows = GlassBox(config).derive(context.rows)
        basis = prompt_words(rows)
        return [_features(context, rows, basis, config), _answers(rows, basis)]


def _features(context: Context, rows: pl.DataFrame, basis: str, config: Config) -> Table:
    oriented = GlassBox(config).scores
    bounds = [name for name in _BOUNDS if "bounds" in config.groups]
    if config.vocabulary_size is None:
        bounds = bounds[:1]
    lines: list[list[Cell]] = []
    for (model,), group in rows.group_by("model", maintain_order=True):
        good = group.filter(pl.col("status") == "ok")
        for name in (*oriented, *bounds):
            # Over the answers of one model its mean is 0 by construction.
            if name == "combo_of_model":
                continue
            mean = mean_of(good, pl.col(name), context.confidence_level)
            better = {1: "+", -1: "-"}.get(oriented.get(name, 0), "")
            lines.append(
                [
                    str(model),
                    name,
                    better,
                    mean,
                    len(good) - good[name].null_count(),
                    good[name].null_count(),
                ]
            )
    return make_table(
        "glass_box", "Glass-box features", _FEATURES, lines, basis=basis, notes=_notes(config)
    )


def _notes(config: Config) -> list[str]:
    notes = [
        "better: whether more (+) or less (-) of it should mean a better answer; what it does mean "
        "is shown by the analysis meta_evaluation, which holds the features to gold",
        METHODS,
    ]
    if config.scorer is None:
        who = "each model reads its own answers: means of different models are not measured alike"
    else:
        who = f"read by {config.scorer}"
    notes.append(who)
    if "combo" in config.groups:
        notes.append(
            f"combo: sum of the z-scores of {', '.join(config.combo)} over all answers of this "
            f"table, each turned so that more is better"
        )
    if "bounds" in config.groups:
        notes.append(
            "softmax_entropy_low and _high bound the entropy from the "
            f"{config.alternatives} most likely tokens; they are no estimates"
        )
    return notes


def _answers(rows: pl.DataFrame, basis: str) -> Table:
    lines: list[list[Cell]] = []
    for (model,), group in rows.group_by("model", maintain_order=True):
        good = group.filter(pl.col("status") == "ok")
        tokens = good["n_tokens"].cast(pl.Float64).mean()
        lines.append(
            [
                str(model),
                len(good),
                int((good["undefined"] == "empty answer").fill_null(value=False).sum()),
                int(good["truncated"].fill_null(value=False).sum()),
                len(group) - len(good),
                None if not isinstance(tokens, float) else tokens,
            ]
        )
    return make_table("glass_box.answers", "What was read", _ANSWERS, lines, basis=basis)
