"""The observations behind each measure of a requirement: one value an item, judgment or reading."""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import polars as pl
from pydantic import ValidationError

from orchestrator.clusters import Clusters, clusters_of
from orchestrator.contracts.context import (
    Source,
    answers_of,
    ranked_in,
    role_slices,
    roles_in,
    there,
)
from orchestrator.contracts.method import is_judging
from orchestrator.errors import UsageError, nearest
from orchestrator.gates import Term
from orchestrator.interface.ratings import verdicts
from orchestrator.interface.sides import Common, Side
from orchestrator.ranking.judged import judgments, order_decisions
from orchestrator.ranking.labelled import Selective
from orchestrator.ranking.scores import ends_of, score, source_of

Observe = Callable[[Side, Term], pl.DataFrame]

_SHAPE: Final = {"item": pl.String(), "value": pl.Float64()}


def ranked_method(side: Side, term: Term) -> str:
    """Return the method whose pairwise judgments a term is about.

    Raises:
        UsageError: If there is none, or several and the term names none.
    """
    ranked = ranked_in(side.result.frames)
    found = [source.name for source in side.context.sources if source.frame in ranked]
    return _chosen(found, term, "method with pairwise judgments", "use score(MODEL) instead")


def _chosen(found: list[str], term: Term, what: str, instead: str = "") -> str:
    wanted = term.option("method")
    # A method stands for its scores.
    fit = [one for one in found if not wanted or wanted in (one, one.partition(".")[0])]
    if wanted and not fit:
        raise UsageError(f"{term.measure}: no {what} {wanted!r}{nearest(wanted, found)}")
    if not fit:
        raise UsageError(f"{term.measure}: this run has no {what}{instead and '; ' + instead}")
    if len(fit) > 1:
        raise UsageError(
            f"{term.measure}: there are several ({', '.join(fit)}); add method={fit[0]}"
        )
    return fit[0]


def won(side: Side, term: Term) -> pl.DataFrame:
    """Return what a model won of each comparison with another one, or with any."""
    model = term.names[0].text
    method, judge = ranked_method(side, term), term.option("judge")
    parts = [pl.DataFrame(schema={**_SHAPE, "opponent": pl.String(), "judge": pl.String()})]
    for frame, pairs in ranked_in(side.result.frames).items():
        for rows in judgments(side.result.frames, frame, pairs):
            good = (pl.col("method") == method) & (pl.col("status") == "ok")
            good &= pl.col("prefer_a").is_finite().fill_null(value=False)
            if judge:
                good &= pl.col("judge") == judge
            used = rows.filter(good)
            for mine, other, value in (
                ("model_a", "model_b", pl.col("prefer_a")),
                ("model_b", "model_a", 1.0 - pl.col("prefer_a")),
            ):
                own = used.filter(pl.col(mine) == model)
                parts.append(
                    own.select(
                        "item", "judge", value=value.cast(pl.Float64), opponent=pl.col(other)
                    )
                )
    found = pl.concat(parts, how="diagonal")
    if len(term.names) > 1:
        found = found.filter(pl.col("opponent") == term.names[1].text)
    return found


def scored(side: Side, term: Term) -> pl.DataFrame:
    """Return the scores of a model.

    Raises:
        UsageError: If there is no such score, or several and the term names none.
    """
    source, column = _scored(side, term)
    found = score(side.context, source, column, as_categories=True)
    chosen = pl.col("model") == term.names[0].text
    if judge := term.option("judge"):
        chosen &= pl.col("judge") == judge
    points = found.points.filter(chosen).drop_nulls("value")
    points = points.select("item", "value", "opponent", "judge")
    return points.with_columns(pl.col(pl.Categorical).cast(pl.String))


def _scored(side: Side, term: Term) -> tuple[Source, str]:
    """The method and the column of the score that a term is about."""
    names = [f"{source.name}.{name}" for source in side.context.sources for name in source.scores]
    method, _, column = _chosen(names, term, "score").partition(".")
    return source_of(side.context, method), column


def matched(side: Side, term: Term) -> pl.DataFrame:
    """Return whether each answer of a model equals the reference, as 1 or 0."""
    wanted = ("item", "model", "exact_match")
    rows = answers_of(side.result.frames, wanted, as_categories=True)
    if "exact_match" not in rows.columns:
        return pl.DataFrame(schema=_SHAPE)
    own = rows.filter(pl.col("model") == term.names[0].text).drop_nulls("exact_match")
    value = pl.col("exact_match").cast(pl.Float64)
    return own.select(pl.col("item").cast(pl.String), value=value)


def covered(side: Side, term: Term) -> pl.DataFrame:
    """Return the probability on the labels of each reading of a judge."""
    parts = [pl.DataFrame(schema=_SHAPE)]
    for rows in _judged(side, term, ("coverage", "coverage_ab", "coverage_ba")):
        masses = [name for name in rows.columns if name.startswith("coverage")]
        for name in masses:
            mass = rows.select("item", value=pl.col(name).cast(pl.Float64))
            parts.append(mass.filter(pl.col("value").is_finite()))
    return pl.concat(parts)


def flipped(side: Side, term: Term) -> pl.DataFrame:
    """Return whether the winner changes with the order, as 1 or 0, of each decided pair."""
    wanted = ("p_ab", "p_ba", "prefer_a_ab", "prefer_a_ba", "same_text")
    parts = [pl.DataFrame(schema=_SHAPE)]
    for rows in _judged(side, term, wanted):
        if not {"p_ab", "p_ba", "prefer_a_ab", "prefer_a_ba"} <= set(rows.columns):
            continue
        known = pl.col("prefer_a_ab").is_finite() & pl.col("prefer_a_ba").is_finite()
        if "same_text" in rows.columns:
            known &= ~pl.col("same_text").fill_null(value=False)
        used = rows.filter(known.fill_null(value=False))
        product = order_decisions(used, "p_ab") * order_decisions(used, "p_ba")
        found = used.select("item", value=pl.Series(np.where(product == 0, np.nan, product < 0)))
        parts.append(found.filter(pl.col("value").is_finite()))
    return pl.concat(parts)


def agreed(side: Side, term: Term) -> pl.DataFrame:
    """Return whether two judges give the same verdict, as 1 or 0; and both verdicts."""
    names = [source.name for source in side.context.sources if is_judging(source.method)]
    method = _chosen(names, term, "judging method")
    items = side.items["item"]
    rows = verdicts([side], Common(items, clusters_of(side.result.frames), 0, {}), method)
    one, two = (rows.filter(pl.col("judge") == name.text) for name in term.names)
    keys = ["item", "turn", "model_a", "model_b"]
    both = one.join(two.select(*keys, other="verdict"), on=keys, maintain_order="left")
    same = (pl.col("verdict") == pl.col("other")).cast(pl.Float64)
    return both.select("item", "verdict", "other", value=same)


def labelled_by(side: Side, term: Term) -> Selective:
    """Return the settings of the analysis that names the labels of a judge's verdicts.

    Raises:
        UsageError: If the recipe has none for this judge.
    """
    judge, method = term.names[0].text, term.option("method")
    for entry in side.result.settings.get("analyses", ()):
        if not isinstance(entry, dict) or entry.get("kind") != "selective":
            continue
        try:
            given = Selective.model_validate({key: entry[key] for key in entry if key != "kind"})
        except ValidationError as error:
            raise UsageError(f"risk: settings of another version of selective: {error}") from None
        judging = (one for one in side.context.sources if is_judging(one.method))
        source = next((one for one in judging if given.method in (None, one.name)), None)
        if source is None or judge not in source.method.judges:
            continue
        if method in ("", source.name):
            return given.model_copy(update={"method": source.name, "judge": judge})
    raise UsageError(
        f"risk: the recipe has no analysis of kind selective that is about {judge!r}; it names the "
        "labels of people"
    )


def _judged(side: Side, term: Term, wanted: tuple[str, ...]) -> Iterator[pl.DataFrame]:
    """Slices of the rows of a judge that have a result, by the names that reports know."""
    frames = side.result.frames
    method = term.option("method")
    for name, role in roles_in(frames).items():
        named = {
            key: column
            for one in (role.distribution, role.pairs)
            if one is not None and one.judge
            for key, column in one.columns().items()
        }
        columns = {key: one for key, one in there(frames, name, named).items() if key in wanted}
        if "judge" not in named or not columns:
            continue
        columns["judge"] = named["judge"]
        for shown in role_slices(frames, name, columns, ("method", "item", "status")):
            chosen = (pl.col("judge") == term.names[0].text) & (pl.col("status") == "ok")
            if method:
                chosen &= pl.col("method") == method
            yield shown.filter(chosen)


OBSERVE: Final[dict[str, Observe]] = {
    "win_rate": won,
    "score": scored,
    "exact_match": matched,
    "coverage": covered,
    "flips": flipped,
    "agreement": agreed,
    "kappa": agreed,
}
"""Observations of each measure: columns item and value, and perhaps opponent and judge."""

_SHARES: Final = frozenset({"win_rate", "exact_match", "coverage", "flips", "agreement"})


def ends_of_values(side: Side, term: Term, rows: pl.DataFrame) -> tuple[float, float] | None:
    """Return the least and the greatest value that observations can have; None for not known.

    Scores that come from comparisons have an opponent.
    """
    if term.measure in _SHARES:
        return 0.0, 1.0
    if "opponent" in rows.columns and not rows["opponent"].has_nulls():
        return 0.0, 1.0
    return ends_of(*_scored(side, term)) if term.measure == "score" else None


def observations(side: Side, term: Term, clusters: Clusters | None = None) -> pl.DataFrame:
    """Return the observations of a term, with the clusters of their items.

    The term is a measure other than rating, missing and failed. Without `clusters`, as this run has
    them.

    Raises:
        UsageError: If the run does not have what it names.
    """
    clusters = clusters_of(side.result.frames) if clusters is None else clusters
    return clusters.of(OBSERVE[term.measure](side, term))
