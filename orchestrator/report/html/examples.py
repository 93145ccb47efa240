"""Rows worth reading, with their texts: the most decisive, the most contested, the flipped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from orchestrator import numbers
from orchestrator.columns import RowRoles
from orchestrator.contracts.context import Named, answer_frames, role_slices, roles_in, there
from orchestrator.frames import lazy_of, row_of
from orchestrator.ranking.cells import entropy
from orchestrator.ranking.judged import order_decisions
from orchestrator.report.html.figures import Material
from orchestrator.report.text import safe_block

_EACH: Final = 3
_EVEN: Final = 0.5
_OK: Final = pl.col("status") == "ok"
_BEST: Final = {"item": pl.String(), "place": pl.Int64(), "by": pl.Float64()}

Row = Mapping[str, Any]
Answers = Mapping[tuple[object, ...], Row]
Texts = list[tuple[str, str]]
"""Texts with their labels; from outside, made safe to be escaped."""


@dataclass(frozen=True, slots=True)
class Examples:
    """A kind of rows worth reading.

    Attributes:
        key: Its anchor.
        title: Its heading.
        says: Which rows they are.
        cases: Of each row a sentence on it, what was asked, and what was said.
    """

    key: str
    title: str
    says: str
    cases: Sequence[tuple[str, Texts, Texts]]


_Order = tuple[pl.Expr, pl.Expr]
"""Rows to choose from, and what is highest in the first of them."""
_Kind = tuple[str, str, str, *_Order]
"""Key, title and explanation of a kind, and its order."""
_Kinds = tuple[Named, Sequence[str], Sequence[_Kind]]
"""Columns of a role, those that its orders look at, and its kinds; no kinds for another role."""


def examples(material: Material) -> list[Examples]:
    """Every kind of rows that the run has, by what their columns are."""
    found: list[Examples] = []
    for kinds_of in (_judgments, _rewritings, _ratings):
        taken: set[str] = set()
        for frame, role in roles_in(material.frames).items():
            role_columns, wanted, kinds = kinds_of(role)
            columns = there(material.frames, frame, role_columns)
            if not kinds or not {*wanted} <= columns.keys():
                continue
            read = {name: columns[name] for name in wanted}
            best = _top(material, frame, read, [(which, by) for *_, which, by in kinds])
            rows = [[_row(material, frame, role_columns, at) for at in of["place"]] for of in best]
            answers = _answers(
                material, {key for part in rows for row in part for key in _about(row)}
            )
            for (key, title, says, *_), part in zip(kinds, rows, strict=True):
                # Of another method's frame.
                mark, end = (f"-{frame}", f" ({frame})") if key in taken else ("", "")
                cases = [_shown(row, columns, answers) for row in part]
                found += [Examples(key + mark, title + end, says, cases)] if cases else []
            taken |= {key for key, *_ in kinds}
    return found


def _judgments(role: RowRoles) -> _Kinds:
    if role.pairs is None or not role.pairs.ranked or not role.pairs.verdicts:
        return {}, (), ()
    ab, ba = pl.col("prefer_a_ab"), pl.col("prefer_a_ba")
    good = _OK & pl.all_horizontal(p.is_finite() for p in (pl.col("prefer_a"), ab, ba))
    good &= ~pl.col("same_text").fill_null(value=False)
    least = pl.min_horizontal((ab - _EVEN).abs(), (ba - _EVEN).abs())
    first, second = pl.col("first"), pl.col("second")
    spread = pl.sum_horizontal(entropy("p_ab"), entropy("p_ba")) / 2
    flips = (ab - ba).abs()
    says = (
        "Both orders agree, with the highest probability.",
        "The distribution of the judge is widest, and neither order is decisive.",
        "The winner changes with the order of presentation.",
    )
    kinds = (
        ("decisive", "Most decisive", says[0], good & (first == second) & (first != 0), least),
        ("contested", "Most contested", says[1], good, spread - flips),
        ("flipped", "Flipped by the order", says[2], good & (first * second < 0), flips),
    )
    wanted = ("prefer_a", "prefer_a_ab", "prefer_a_ba", "same_text", "p_ab", "p_ba")
    return role.pairs.columns(), wanted, kinds


def _rewritings(role: RowRoles) -> _Kinds:
    if role.rewriting is None:
        return {}, (), ()
    title, column, change = role.rewriting.title, role.rewriting.change, pl.col("change")
    good = _OK & change.is_finite() & ~pl.col("unchanged")
    kinds = [
        (
            key,
            f"{title}: rewritings with the {which} {column}",
            f"The {which} {column}.",
            good & (by > 0),
            by,
        )
        for key, which, by in (
            ("rewritten-down", "lowest", -change),
            ("rewritten-up", "highest", change),
        )
    ]
    return role.rewriting.columns(), ("change", "unchanged"), kinds


def _ratings(role: RowRoles) -> _Kinds:
    if role.distribution is None:
        return {}, (), ()
    mean, good = pl.col("mean"), _OK & pl.col("mean").is_finite()
    kinds = (
        ("score-high", "Highest scores", "The highest mean of the distribution.", good, mean),
        ("score-low", "Lowest scores", "The lowest mean of the distribution.", good, -mean),
        ("score-wide", "Least certain scores", "The widest distribution.", good, pl.col("std")),
    )
    return role.distribution.columns(), ("mean", "std"), kinds


def _top(
    material: Material, frame: str, wanted: Named, orders: Sequence[_Order]
) -> list[pl.DataFrame]:
    """The first rows of a frame by each order, each of another item.

    The frame is read in slices, of which only the first rows are kept: texts, which take most of a
    large run, are read of these rows alone.

    Args:
        material: The run.
        frame: Its name.
        wanted: Columns that the orders look at, beside `item` and `status`, by their names there.
        orders: Several ways to choose rows.
    """
    best = [pl.DataFrame(schema=_BEST)] * len(orders)
    n_rows = 0
    for rows in role_slices(material.frames, frame, wanted, ("item", "status")):
        places = pl.int_range(n_rows, n_rows + len(rows), dtype=pl.Int64)
        n_rows += len(rows)
        if {"p_ab", "p_ba"} <= wanted.keys():
            first, second = (order_decisions(rows, order) for order in ("p_ab", "p_ba"))
            rows = rows.with_columns(first=first, second=second)
        values = rows.select(by.alias(str(at)) for at, (_, by) in enumerate(orders))
        for at, (which, _) in enumerate(orders):
            valued = rows.with_columns(by=values[str(at)], place=places)
            # Few rows of a large run are left to look at closely.
            found = valued.filter(_fits(best[at])).filter(which).select(*_BEST)
            if len(found):
                best[at] = (
                    pl.concat([best[at], found])
                    .drop_nulls("by")
                    .sort("by", "item", descending=[True, False], maintain_order=True)
                    .unique("item", keep="first", maintain_order=True)
                    .head(_EACH)
                )
    return best


def _fits(best: pl.DataFrame) -> pl.Expr:
    """Return which rows would stand before the last of the best ones."""
    if len(best) < _EACH:
        return pl.lit(value=True)
    item, _, by = best.row(-1)
    entering: pl.Expr = (pl.col("by") > by) | ((pl.col("by") == by) & (pl.col("item") < item))
    return entering


def _about(row: Row) -> list[tuple[object, ...]]:
    """Item, turn and model of each answer that a row is about."""
    models = [row[name] for name in ("model", "model_a", "model_b") if name in row]
    return [(row["item"], row.get("turn") or 1, model) for model in models]


def _answers(material: Material, wanted: set[tuple[object, ...]]) -> Answers:
    """Answers by item, turn and model; the first where there are several."""
    found: dict[tuple[object, ...], Row] = {}
    items = list({item for item, _, _ in wanted})
    for frame, columns in answer_frames(material.frames).items() if wanted else ():
        turn = pl.col(columns["turn"]) if "turn" in columns else pl.lit(1, pl.Int64)
        keyed = lazy_of(material.frames, frame).select("item", turn.alias("turn"), columns["model"])
        of_items = keyed.with_row_index("place").filter(pl.col("item").is_in(items))
        places: dict[tuple[object, ...], int] = {}
        for place, *keys in of_items.collect(engine="streaming").sort("place").iter_rows():
            if tuple(keys) in wanted and tuple(keys) not in found:
                places.setdefault(tuple(keys), place)
        for answer, place in places.items():
            row = row_of(material.frames, frame, place)
            found[answer] = {**row, "text": row.get(columns["text"])}
    return found


def _row(material: Material, frame: str, role: Named, place: int) -> Row:
    """A row with the columns of a role by the names that reports know them by."""
    row = row_of(material.frames, frame, place)
    taken = {*role, *role.values()}
    named = {name: row.get(column) for name, column in role.items()}
    return {name: value for name, value in row.items() if name not in taken} | named


def _shown(row: Row, columns: Named, answers: Answers) -> tuple[str, Texts, Texts]:
    """A sentence on a row, what was asked, and what was said."""
    known = {str(key[-1]): answers.get(key, {}) for key in _about(row)}
    first: Row = next(filter(None, known.values()), {})
    asked = [("Prompt", _given(first.get("prompt")))] if first else []
    if first.get("reference"):
        asked.append(("Reference", _given(str(first["reference"]))))
    said = [(model, answer.get("text")) for model, answer in known.items()]
    who = f"judged by {row.get('judge') or 'the method'}"
    if "change" in row:
        who = f"model {row['model']} · {columns['change']} = {row['change']:+.3f}"
        means = [numbers.maybe(row[name], "{:.3f}".format) for name in ("before", "after")]
        said = [
            (f"{label} · mean log-probability {mean}", row[label.lower()])
            for label, mean in zip(("Answer", "Rewriting"), means, strict=True)
        ]
    elif "mean" in row:
        spread = numbers.maybe(row["std"], "{:.2f}".format)
        who += f" · mean {row['mean']:.2f}, standard deviation {spread}"
        said = [(f"Answer · {model}", text) for model, text in said]
    else:
        shares = (numbers.probability(row[f"prefer_a{order}"]) for order in ("", "_ab", "_ba"))
        who += " · P(A better) {}; {} with A shown first, {} with B".format(*shares)
        said = [(f"{side} · {model}", text) for side, (model, text) in zip("AB", said, strict=True)]
    turn = f" · turn {row['turn']}" if row.get("turn", 1) not in (None, 1) else ""
    category = f" · {row['category']}" if row.get("category") else ""
    about = f"{row['method']} · {who} · item {row['item']}{turn}{category}"
    return about, asked, [(label, _given(text)) for label, text in said]


def _given(text: str | None) -> str:
    if text is None:
        return "(not in the frames of this run)"
    return safe_block(text) if text.strip() else "(empty)"
