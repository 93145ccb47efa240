"""Verbosity of judges: how much the longer answer is preferred at equal ratings of its model.

The effect of length is that of `style_control`, for each judge by itself and with no other feature.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from orchestrator.clusters import prompt_words
from orchestrator.plugin import Cell, Column, Context, Source, Table, UsageError, make_table
from orchestrator.ranking.cells import share_of, without_n
from orchestrator.ranking.preferences import SOFT, Preferences
from orchestrator.ranking.style import controllable, styles_of, with_style
from orchestrator.statistics.multiple import holm
from orchestrator.statistics.style import fit_style
from orchestrator.tables import as_chance, with_interval

_COLUMNS = (
    Column("method"),
    Column("judge"),
    Column("pairs", "count"),
    Column("prefers the longer", "percent"),
    Column("effect", "signed", 2),
    Column("against an equal answer", "percent"),
    Column("p", "p"),
)


def length_table(context: Context, found: Sequence[tuple[Source, dict[str, Preferences]]]) -> Table:
    """Tabulate each judge's preference for longer answers, plain and at equal ratings.

    Args:
        context: Of the analysis.
        found: Methods with their pairs of different answers, by judge.
    """
    lines: list[list[Cell]] = []
    p_values: list[float] = []
    left_out: list[str] = []
    basis = ""
    for source, by_judge in found:
        try:
            styles = styles_of(context, source)
        except UsageError as error:
            left_out.append(f"{source.name}: {str(error).removeprefix(f'{context.name}: ')}")
            continue
        for judge, mine in by_judge.items():
            longer = with_style(mine, styles)
            if longer.rows.is_empty():
                left_out.append(f"{source.name}, {judge}: the run has no texts of these answers")
                continue
            line, p, why = _line(longer, context.confidence_level)
            lines.append([source.name, judge, *line])
            p_values.append(p)
            left_out += [f"{source.name}, {judge}: {note}" for note in why]
            basis = basis or prompt_words(longer.rows)
    for line, p in zip(lines, holm(np.array(p_values)), strict=True):
        line.append(None if np.isnan(p) else float(p))
    notes = [
        "pairs: of answers of unlike length; prefers the longer: mean preference on these pairs, a "
        "tie as one half; 50 % is none",
        "effect: log-odds for the longer answer of a difference of one spread (root mean square) "
        "in length, (a - b) / (a + b + 1) of characters, at equal ratings of the two models; "
        "against an equal answer: the same as a probability",
        "p: of no effect, Holm over this table; intervals over prompts",
        "an effect is no proof of a bias: the better of a model's answers may be the longer ones",
        *left_out,
    ]
    title = "Does each judge prefer longer answers?"
    return make_table("judge_audit.length", title, _COLUMNS, lines, basis=basis, notes=notes)


def _line(found: Preferences, level: float) -> tuple[list[Cell], float, tuple[str, ...]]:
    """Return one judge's cells from the count of pairs on, the effect's p-value, and omissions."""
    differing = found.rows.filter(pl.col("length_a") != pl.col("length_b"))
    a_longer = pl.col("length_a") > pl.col("length_b")
    soft = pl.col(SOFT).clip(0.0, 1.0)
    plain = share_of(differing, pl.when(a_longer).then(soft).otherwise(1.0 - soft), level)
    cells: list[Cell] = [len(differing), without_n(plain)]
    styled = controllable(found, ("length",))
    fit = fit_style(styled.pairs) if styled.features else None
    if fit is None:
        why = styled.notes or ("no effect of length: models and length decide every pair",)
        return [*cells, None, None], np.nan, why
    value, interval = float(fit.effects[0]), fit.interval(len(fit.strengths), level)
    cells += [with_interval(value, interval), as_chance(value, interval)]
    return cells, fit.p_value(0), styled.notes
