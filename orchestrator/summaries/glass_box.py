"""Glass-box features: the mean of each by model, with what it rests on and which way is better."""

from typing import Any

from orchestrator.clusters import prompt_words
from orchestrator.columns import score_words
from orchestrator.contracts.method import is_judging
from orchestrator.methods.glass_box import Config, GlassBox
from orchestrator.plugin import (
    Cell,
    Column,
    Context,
    Figure,
    Picture,
    Summary,
    Table,
    make_table,
    points,
    table_columns,
)
from orchestrator.ranking.cells import (
    METHODS,
    good_rows,
    groups,
    means_by_model,
    numbered,
    plain_mean,
    without_n,
)
from orchestrator.ranking.scores import GOLD, align, basis_of
from orchestrator.tables import measured

_FEATURES = table_columns(
    "model | feature: score | better | mean: number 4 | answers: count | undefined: count"
)
_ANSWERS = table_columns(
    "model | answers: count | empty: count | cut off: count | failed: count", "tokens: number 1"
)
_RHO = Column("Spearman", "signed", 2)
_BOUNDS = ("softmax_entropy_low", "softmax_entropy_high")

_READS = ("item", "model", "status", "n_tokens", "undefined", "truncated")


class GlassBoxSummary(Summary[Config]):
    """The mean of each by model, with what it rests on and which way is better."""

    reads_alone = True
    reads = ("status",)
    section = "Glass-box features"
    section_order = 2

    def summarise(self, context: Context) -> list[Table]:
        """The features, then the answers that they were read off."""
        config = self.config
        if context.rows.is_empty():
            return []
        oriented = GlassBox(config).scores
        bounds = [name for name in _BOUNDS if "bounds" in config.groups]
        if config.vocabulary_size is None:
            bounds = bounds[:1]
        # Over the answers of one model the mean of `combo_of_model` is 0 by construction.
        wanted = [name for name in (*oriented, *bounds) if name != "combo_of_model"]
        rows = numbered(context, _READS)
        features = means_by_model(context, rows, {name: oriented.get(name, 0) for name in wanted})
        read: list[list[Cell]] = []
        for (model,), group in groups(rows, "model"):
            good = good_rows(group)
            read.append(
                [
                    str(model),
                    len(good),
                    int((good["undefined"] == "empty answer").fill_null(value=False).sum()),
                    int(good["truncated"].fill_null(value=False).sum()),
                    len(group) - len(good),
                    plain_mean(good["n_tokens"]),
                ]
            )
        basis, notes, title = prompt_words(rows), _notes(config), "Glass-box features"
        return [
            make_table("glass_box", title, _FEATURES, features, basis=basis, notes=notes),
            make_table("glass_box.answers", "Features read", _ANSWERS, read, basis=basis),
        ]

    def figures(self, context: Context) -> list[Figure]:
        """Correlation of features with gold, or with a judge where there is no gold.

        Features of several such methods stand together, in the figures of the first of them.
        """
        sources = [one for one in context.sources if isinstance(one.method, GlassBox)]
        if context.name != sources[0].name:
            return []
        judges = [one for one in context.sources if is_judging(one.method) and one.scores]
        wanted = {one.name: list(one.scores) for one in sources}
        wanted |= {one.name: list(one.scores)[:1] for one in judges[:1]}
        aligned = align(context, wanted, needs_gold=not judges)
        judged = f"{judges[0].name}.{next(iter(judges[0].scores))}" if judges else ""
        gold = GOLD if aligned is not None and GOLD in aligned.names else judged
        if aligned is None or gold not in aligned.names:
            return []
        level = context.confidence_level
        lines: list[list[Any]] = []
        for one in aligned.names:
            if one in (gold, judged):
                continue
            found = aligned.correlation(one, gold, level)
            lines.append([one.partition(".")[2], without_n(measured(found)), found.n_points])
        lines.sort(key=lambda row: -(row[1].value if row[1].value is not None else -2.0))
        title = f"Glass-box features against {'gold: ' if gold == GOLD else ''}{gold}"
        columns = [Column("feature", "score"), _RHO, Column("answers", "count")]
        table = make_table("glass-box", title, columns, lines)
        shown = points(table, 0, 1)
        axis = f"Spearman's rho with {gold}"
        picture = Picture("intervals", shown, axis, options={"zero": 0.0}) if shown else None
        says = "Features are oriented as their paper predicts; below 0 a feature is misleading."
        return [Figure(table.key, title, basis_of(aligned, level), says, table, picture)]


def _notes(config: Config) -> list[str]:
    notes = [
        "better: whether more (+) or less (-) should mean a better answer; the analysis "
        "meta_evaluation compares the features with gold",
        METHODS,
    ]
    if config.scorer is None:
        who = "each model scores its own answers: means of different models are not comparable"
    else:
        who = f"scored by {config.scorer}"
    notes.append(who)
    if "combo" in config.groups:
        notes.append(
            f"combo: sum of the z-scores of {', '.join(map(score_words, config.combo))} over all "
            "answers of this table, with signs such that more is better"
        )
    if "bounds" in config.groups:
        notes.append(
            "lower and upper bounds are those of the entropy from the "
            f"{config.alternatives} most likely tokens, not estimates"
        )
    return notes
