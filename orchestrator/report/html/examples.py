"""Judgments and rewritings worth reading: the most decisive, the most contested, the flipped."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import polars as pl

from orchestrator import numbers
from orchestrator.contracts.context import (
    Named,
    answer_frames,
    ranked_in,
    role_slices,
    roles_in,
    there,
)
from orchestrator.frames import lazy_of, row_of
from orchestrator.ranking.judged import order_decisions
from orchestrator.report.html.figures import Material
from orchestrator.report.html.shell import safe_block

_EACH: Final = 3
_EVEN: Final = 0.5
_BEST: Final = {"item": pl.String(), "place": pl.Int64(), "by": pl.Float64()}

Row = Mapping[str, Any]
Answers = Mapping[tuple[object, ...], Row]


@dataclass(frozen=True, slots=True)
class Text:
    """One text of an example, from outside, made safe to be escaped."""

    label: str
    content: str


@dataclass(frozen=True, slots=True)
class Example:
    """One case: where it comes from, what was asked and said, and what was made of it.

    Its bars have a label, a share in [0, 1], and the share in words.
    """

    about: str
    asked: Sequence[Text]
    texts: Sequence[Text]
    bars: Sequence[tuple[str, float, str]]


@dataclass(frozen=True, slots=True)
class Examples:
    """A kind of case."""

    key: str
    title: str
    says: str
    cases: Sequence[Example]


_Order = tuple[pl.Expr, pl.Expr]
"""Rows to choose from, and what is highest in the first of them."""


def examples(material: Material) -> list[Examples]:
    """Every kind of case that the run has."""
    found = [*_judgments(material), *_rewritings(material), *_rated(material)]
    return [one for one in found if one.cases]


def _judgments(material: Material) -> list[Examples]:
    good = (
        (pl.col("status") == "ok")
        & pl.col("prefer_a").is_finite()
        & pl.col("prefer_a_ab").is_finite()
        & pl.col("prefer_a_ba").is_finite()
        & ~pl.col("same_text").fill_null(value=False)
    )
    ab, ba = pl.col("prefer_a_ab"), pl.col("prefer_a_ba")
    least = pl.min_horizontal((ab - _EVEN).abs(), (ba - _EVEN).abs())
    first, second = pl.col("first"), pl.col("second")
    agree = (first == second) & (first != 0)
    spread = (_entropy("p_ab") + _entropy("p_ba")) / 2
    flips = (ab - ba).abs()
    kinds = (
        (
            "decisive",
            "Most decisive",
            "Both orders agree, with the highest probability.",
            agree,
            least,
        ),
        (
            "contested",
            "Most contested",
            "The distribution of the judge is widest, and neither order is decisive.",
            pl.lit(value=True),
            spread - flips,
        ),
        (
            "flipped",
            "Flipped by the order",
            "The winner changes with the order of presentation.",
            first * second < 0,
            flips,
        ),
    )
    wanted = ("prefer_a", "prefer_a_ab", "prefer_a_ba", "same_text", "p_ab", "p_ba")
    orders = [(good & which, by) for _, _, _, which, by in kinds]
    found: list[Examples] = []
    for frame, pairs in ranked_in(material.frames).items():
        if pairs.verdicts:
            chosen = _Chosen(material, frame, pairs.columns(), found)
            found += chosen.shown(wanted, [kind[:3] for kind in kinds], orders, _judged)
    return found


def _entropy(column: str) -> pl.Expr:
    p = pl.element()
    mass = pl.when(p > 0).then(-p * p.log()).otherwise(0.0)
    return pl.col(column).list.eval(mass).list.sum().fill_null(0.0)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Rows of a frame that are worth reading.

    Attributes:
        material: The run.
        frame: Name of the frame.
        role: Its columns, by the name that reports know them by.
        before: Examples of other frames, which took their keys first.
    """

    material: Material
    frame: str
    role: Named
    before: Sequence[Examples]

    def shown(
        self,
        wanted: Sequence[str],
        kinds: Sequence[tuple[str, str, str]],
        orders: Sequence[_Order],
        show: Callable[[Row, Answers], Example],
    ) -> list[Examples]:
        """Return the examples of each kind; none where the frame lacks a column.

        Args:
            wanted: Columns that the orders look at.
            kinds: Key, title and explanation of each kind.
            orders: Of each kind.
            show: Makes an example of a row.
        """
        columns = there(self.material.frames, self.frame, self.role)
        if not {*wanted} <= columns.keys():
            return []
        best = _top(self.material, self.frame, {name: columns[name] for name in wanted}, orders)
        rows = [[self._row(place) for place in one["place"]] for one in best]
        keys = {key for chosen in rows for row in chosen for key in _keys(row)}
        answers = _answers(self.material, keys)
        found = [
            Examples(key, title, says, [show(row, answers) for row in chosen])
            for (key, title, says), chosen in zip(kinds, rows, strict=True)
        ]
        if self.before:
            # Of another method's frame.
            found = [
                replace(one, key=f"{one.key}-{self.frame}", title=f"{one.title} ({self.frame})")
                for one in found
            ]
        return found

    def _row(self, place: int) -> Row:
        row = row_of(self.material.frames, self.frame, place)
        taken = {*self.role, *self.role.values()}
        named = {name: row.get(column) for name, column in self.role.items()}
        return {name: value for name, value in row.items() if name not in taken} | named


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
            found = valued.filter(_may_enter(best[at])).filter(which).select(*_BEST)
            if len(found):
                best[at] = (
                    pl.concat([best[at], found])
                    .drop_nulls("by")
                    .sort("by", "item", descending=[True, False], maintain_order=True)
                    .unique("item", keep="first", maintain_order=True)
                    .head(_EACH)
                )
    return best


def _may_enter(best: pl.DataFrame) -> pl.Expr:
    """Return which rows would stand before the last of the best ones."""
    if len(best) < _EACH:
        return pl.lit(value=True)
    item, _, by = best.row(-1)
    entering: pl.Expr = (pl.col("by") > by) | ((pl.col("by") == by) & (pl.col("item") < item))
    return entering


def _keys(row: Row) -> list[tuple[object, ...]]:
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


def _judged(row: Row, answers: Answers) -> Example:
    (first, second) = _keys(row)
    a, b = answers.get(first, {}), answers.get(second, {})
    texts = [
        Text(f"A · {row['model_a']}", _given(a.get("text"))),
        Text(f"B · {row['model_b']}", _given(b.get("text"))),
    ]
    # Of the answer that is preferred, so that a bar shows how clearly.
    is_a = row["prefer_a"] >= _EVEN
    bars = [
        (f"P({'A' if is_a else 'B'} better), {order}", share, numbers.probability(share))
        for order, column in (
            ("A shown first", "prefer_a_ab"),
            ("B shown first", "prefer_a_ba"),
            ("both orders", "prefer_a"),
        )
        for share in (row[column] if is_a else 1.0 - row[column],)
    ]
    if len({words for *_, words in bars}) == 1:
        bars = bars[-1:]
    return Example(_about(row, _judge(row)), _asked(a or b), texts, bars)


def _judge(row: Row) -> str:
    return f"judged by {row['judge']}" if row.get("judge") else "judged by the method"


def _about(row: Mapping[str, Any], who: str) -> str:
    turn = f" · turn {row['turn']}" if row.get("turn", 1) not in (None, 1) else ""
    category = f" · {row['category']}" if row.get("category") else ""
    return f"{row['method']} · {who} · item {row['item']}{turn}{category}"


def _asked(answer: Mapping[str, Any]) -> list[Text]:
    texts = [Text("Prompt", _given(answer.get("prompt")))] if answer else []
    if answer.get("reference"):
        texts.append(Text("Reference", safe_block(str(answer["reference"]))))
    return texts


def _given(text: str | None) -> str:
    if text is None:
        return "(not in the frames of this run)"
    return safe_block(text) if text.strip() else "(empty)"


def _rewritings(material: Material) -> list[Examples]:
    change = pl.col("change")
    good = (pl.col("status") == "ok") & change.is_finite() & ~pl.col("unchanged")
    found: list[Examples] = []
    for frame, role in roles_in(material.frames).items():
        if role.rewriting is None:
            continue
        title, column = role.rewriting.title, role.rewriting.change
        kinds = (("rewritten-down", "lowest", -change), ("rewritten-up", "highest", change))
        chosen = _Chosen(material, frame, role.rewriting.columns(), found)
        found += chosen.shown(
            ("change", "unchanged"),
            [
                (key, f"{title}: rewritings with the {which} {column}", f"The {which} {column}.")
                for key, which, _ in kinds
            ],
            [(good & (by > 0), by) for *_, by in kinds],
            partial(_rewritten, column),
        )
    return found


def _rewritten(column: str, row: Row, answers: Answers) -> Example:
    asked = _asked(answers.get(_keys(row)[0], {}))
    texts = []
    for label, text, before in (
        ("Answer", "answer", "before"),
        ("Rewriting", "rewriting", "after"),
    ):
        mean = numbers.maybe(row[before], "{:.3f}".format)
        texts.append(Text(f"{label} · mean log-probability {mean}", _given(row[text])))
    about = f"model {row['model']} · {column} = {row['change']:+.3f}"
    return Example(_about(row, about), asked, texts, ())


def _rated(material: Material) -> list[Examples]:
    good = (pl.col("status") == "ok") & pl.col("mean").is_finite()
    kinds = (
        ("score-high", "Highest scores", "The highest mean of the distribution.", pl.col("mean")),
        ("score-low", "Lowest scores", "The lowest mean of the distribution.", -pl.col("mean")),
        ("score-wide", "Least certain scores", "The widest distribution.", pl.col("std")),
    )
    found: list[Examples] = []
    for frame, role in roles_in(material.frames).items():
        if role.distribution is not None:
            chosen = _Chosen(material, frame, role.distribution.columns(), found)
            orders = [(good, by) for *_, by in kinds]
            found += chosen.shown(("mean", "std"), [kind[:3] for kind in kinds], orders, _scored)
    return found


def _scored(row: Row, answers: Answers) -> Example:
    answer = answers.get(_keys(row)[0], {})
    texts = [Text(f"Answer · {row['model']}", _given(answer.get("text")))]
    spread = numbers.maybe(row["std"], "{:.2f}".format)
    score = f"{_judge(row)} · mean {row['mean']:.2f}, standard deviation {spread}"
    return Example(_about(row, score), _asked(answer), texts, ())
