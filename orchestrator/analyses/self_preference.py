"""Do judges favour their own answers, or those of their family?

A judge that is also a candidate may prefer its own answers because they are good. What the other
judges make of the same models tells the two apart: all judges are fitted together, each with its
own sharpness and its own favour (`orchestrator.statistics.judge_aware`).
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from pydantic import Field, field_validator

from orchestrator.clusters import codes, prompt_words
from orchestrator.plugin import (
    Analysis,
    Cell,
    Context,
    Measured,
    Settings,
    Source,
    Table,
    UsageError,
    make_table,
    table_columns,
)
from orchestrator.ranking.preferences import SOFT, Preferences, between, judged_rows, preferences
from orchestrator.ranking.winners import source_of_judges
from orchestrator.statistics.bradley_terry import ELO_MEAN, ELO_SCALE
from orchestrator.statistics.judge_aware import JudgeAwareFit, JudgedPairs, fit_judge_aware
from orchestrator.statistics.multiple import holm
from orchestrator.statistics.student import interval_around
from orchestrator.statistics.trust import no_ranking_by_judge
from orchestrator.tables import as_chance, untrusted, with_interval

_TRAITS: Final = ("itself", "its family")


class Config(Settings):
    """Settings of `self_preference`."""

    method: str | None = Field(
        None, description="Name of a judging method with several judges. Default: the first."
    )
    families: dict[str, tuple[str, ...]] = Field(
        {},
        description="Families of models, such as those of one maker: name to models, judges "
        "among them. A judge's own answers do not count for its family.",
    )

    @field_validator("families")
    @classmethod
    def _checked(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        members = [model for family in value.values() for model in family]
        twice = sorted({model for model in members if members.count(model) > 1})
        if twice:
            raise ValueError(f"a model has one family: {', '.join(twice)}")
        return value


class Kind(Analysis[Config]):
    """Favour of judges for themselves and their families, told apart from quality."""

    cites = ("panickssery2024selfpreference", "xu2026judgeaware")

    def summarise(self, context: Context) -> list[Table]:
        """The favours, how sharply each judge tells models apart, and ratings without favour."""
        source = source_of_judges(context, self.config.method)
        found, judges, pairs = _judged(context, source, self.config)
        fit = fit_judge_aware(pairs)
        if fit is None:
            raise UsageError(
                f"{context.name}: favour and quality can't be told apart: fewer than two judges "
                "have rows, there are too few models and judges for so many favours, models are "
                "not connected by wins and losses, or judges and models decide every pair"
            )
        tables = [
            _favours(found, judges, pairs, fit, context),
            _by_judge(judges, pairs, fit, context),
            _ratings(found, fit, context),
        ]
        trust = context.trust.get(source.name, ())
        warnings = no_ranking_by_judge([one for one in trust if one.judge in judges])
        return [untrusted(table, warnings) for table in tables]


def _judged(
    context: Context, source: Source, config: Config
) -> tuple[Preferences, list[str], JudgedPairs]:
    """Return the preferences of a method, its judges, and both as numbers with `_TRAITS`."""
    found = preferences(judged_rows(context, source))
    rows = found.rows
    if rows.is_empty():
        raise UsageError(f"{context.name}: {source.name!r} has no judged pair of answers")
    judges = sorted(rows["judge"].unique().to_list())
    models = found.models()
    family = {model: name for name, members in config.families.items() for model in members}
    traits = np.zeros((len(judges), len(models), len(_TRAITS)))
    for j, judge in enumerate(judges):
        for m, model in enumerate(models):
            same = model != judge and family.get(judge) is not None
            traits[j, m] = (model == judge, same and family.get(model) == family[judge])
    if not traits.any():
        raise UsageError(
            f"{context.name}: no judge of {source.name!r} is a candidate, or has a candidate in "
            "its family; name 'families', or let a judge answer too"
        )
    sides, soft = found.sides(), np.clip(found.values(SOFT), 0.0, 1.0)
    of_pair = (sides.prompts, sides.first, sides.second, sides.n_models)
    return found, judges, JudgedPairs(*of_pair, codes(rows["judge"]), soft, traits)


def _favours(
    found: Preferences,
    judges: Sequence[str],
    pairs: JudgedPairs,
    fit: JudgeAwareFit,
    context: Context,
) -> Table:
    level = context.confidence_level
    known = [(j, k) for j, k in np.argwhere(np.isfinite(fit.favours)).tolist()]
    adjusted = holm(np.array([fit.p_value(j, k) for j, k in known]))
    lines: list[list[Cell]] = []
    for (j, k), p in zip(known, adjusted, strict=True):
        has = pairs.traits[j, :, k]
        side = has[pairs.first] - has[pairs.second]
        of_side = np.where(side > 0, pairs.preference, 1.0 - pairs.preference)
        mine, others = (
            of_side[(side != 0.0) & who] for who in (pairs.judge == j, pairs.judge != j)
        )
        interval = interval_around(
            float(fit.favours[j, k]), float(fit.favour_errors[j, k]), fit.dof, level
        )
        lines.append(
            [
                judges[j],
                _TRAITS[k],
                len(mine),
                float(mine.mean()),
                float(others.mean()) if len(others) else None,
                with_interval(float(fit.favours[j, k]), interval),
                as_chance(float(fit.favours[j, k]), interval),
                None if np.isnan(p) else float(p),
            ]
        )
    columns = table_columns(
        "judge | favour for | pairs: count | its preference: percent",
        "of the others: percent | favour: signed 2 | against an equal answer: percent",
        "p: p",
    )
    notes = [
        "favour: log-odds by which the judge prefers these answers beyond their quality, which the "
        "other judges tell; against an equal answer: the same as a probability, 50 % is none",
        "p: of no favour, Holm over this table; intervals over prompts, each for itself",
        "its preference and of the others: mean preference on these pairs; they differ also where "
        "a judge is only sharper than the others",
        "if all judges favour the same answers, this cannot be seen",
    ]
    basis = f"{len(pairs.judge):,} judgments · {prompt_words(found.rows)}"
    title = "Judges' favour for their own answers"
    return make_table("self_preference", title, columns, lines, basis=basis, notes=notes)


def _by_judge(
    judges: Sequence[str], pairs: JudgedPairs, fit: JudgeAwareFit, context: Context
) -> Table:
    """Return the slope with which each judge tells the models apart."""
    lines: list[list[Cell]] = []
    for j, judge in enumerate(judges):
        value, error = float(fit.discriminations[j]), float(fit.discrimination_errors[j])
        interval = interval_around(value, error, fit.dof, context.confidence_level)
        lines.append([judge, int((pairs.judge == j).sum()), with_interval(value, interval)])
    columns = table_columns("judge | judgments: count | discrimination: number 2")
    notes = [
        "discrimination: factor of the models' differences in this judge's preferences, mean 1 "
        "over the judges; 0: it tells no model apart, below 0: it sees the opposite order"
    ]
    title = "Sharpness of the judges"
    return make_table("self_preference.judges", title, columns, lines, notes=notes)


def _ratings(found: Preferences, fit: JudgeAwareFit, context: Context) -> Table:
    """Ratings by all judges, as they stand and without favour."""
    plain = found.rated(found.values(SOFT), context.confidence_level)
    models = found.models()
    lines: list[list[Cell]] = []
    for m in np.argsort(-fit.strengths, kind="stable"):
        value, error = float(fit.strengths[m]), float(fit.strength_errors[m])
        interval = interval_around(value, error, fit.dof, context.confidence_level)
        bounds = (None, None) if interval is None else (interval.low, interval.high)
        low, high = (None if bound is None else ELO_MEAN + ELO_SCALE * bound for bound in bounds)
        lines.append(
            [
                models[m],
                between(plain.values[m], plain.low[m], plain.high[m]),
                Measured(ELO_MEAN + ELO_SCALE * float(fit.strengths[m]), low, high),
            ]
        )
    columns = table_columns("model | pooled: rating | without favour: rating")
    notes = [
        "pooled: Bradley-Terry of all judges' preferences; without favour: by judges of unequal "
        "sharpness and with their favours taken out, on the scale of a judge of discrimination 1"
    ]
    title = "Ratings with and without the judges' favour"
    return make_table("self_preference.ratings", title, columns, lines, notes=notes)
