"""Judgments and rewritings worth reading: the most decisive, the most contested, the flipped."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from orchestrator.report import numbers
from orchestrator.report.html.material import Material
from orchestrator.report.html.untrusted import safe_block

_EACH: Final = 3
_KEYS: Final = ("item", "turn", "model")
_EVEN: Final = 0.5


@dataclass(frozen=True, slots=True)
class Text:
    """One text of an example, from outside, made safe to be escaped."""

    label: str
    content: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A share in [0, 1] with its words."""

    label: str
    share: float
    words: str


@dataclass(frozen=True, slots=True)
class Example:
    """One case: where it comes from, what was asked and said, and what was made of it."""

    about: str
    asked: Sequence[Text]
    texts: Sequence[Text]
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Examples:
    """A kind of case."""

    key: str
    title: str
    says: str
    cases: Sequence[Example]


def examples(material: Material) -> list[Examples]:
    """Every kind of case that the run has."""
    found = [*_judgments(material), *_rewritings(material), *_rated(material)]
    return [one for one in found if one.cases]


def _judgments(material: Material) -> list[Examples]:
    rows = material.frames.get("judgments")
    if rows is None or rows.is_empty():
        return []
    good = rows.filter(
        (pl.col("status") == "ok")
        & pl.col("prefer_a").is_finite()
        & pl.col("prefer_a_ab").is_finite()
        & pl.col("prefer_a_ba").is_finite()
        & ~pl.col("same_text").fill_null(value=False)
    )
    if good.is_empty():
        return []
    answers = _answers(material)
    ab, ba = pl.col("prefer_a_ab"), pl.col("prefer_a_ba")
    least = pl.min_horizontal((ab - _EVEN).abs(), (ba - _EVEN).abs())
    first, second = winner("p_ab"), winner("p_ba")
    agree = (first == second) & (first != 0)
    spread = (_entropy("p_ab") + _entropy("p_ba")) / 2
    flips = (ab - ba).abs()
    kinds = (
        (
            "decisive",
            "Most decisive",
            "Both orders say the same, with the highest probability.",
            good.filter(agree).with_columns(by=least),
        ),
        (
            "contested",
            "Most contested",
            "The judge's distribution is widest, and neither order decides far.",
            good.with_columns(by=spread - flips),
        ),
        (
            "flipped",
            "Flipped by the order",
            "Shown the other way round, the other answer wins.",
            good.filter(first * second < 0).with_columns(by=flips),
        ),
    )
    return [
        Examples(key, title, says, [_judged(row, answers) for row in _top(part)])
        for key, title, says, part in kinds
    ]


def winner(column: str) -> pl.Expr:
    """The likeliest verdict: 1 for A, -1 for B, 0 for a tie, as in the share of flips."""
    levels = pl.col(column)
    half = levels.list.len() // 2
    a, b = levels.list.head(half).list.sum(), levels.list.tail(half).list.sum()
    is_odd = levels.list.len() % 2 == 1
    tie = pl.when(is_odd).then(levels.list.get(half, null_on_oob=True)).otherwise(0.0)
    decided = pl.max_horizontal(a, b) > tie
    return pl.when(decided).then((a - b).sign()).otherwise(0.0).fill_null(0.0)


def _entropy(column: str) -> pl.Expr:
    p = pl.element()
    mass = pl.when(p > 0).then(-p * p.log()).otherwise(0.0)
    return pl.col(column).list.eval(mass).list.sum().fill_null(0.0)


def _top(rows: pl.DataFrame) -> Iterable[dict[str, Any]]:
    """The first rows by `by`, each of another item."""
    order = rows.drop_nulls("by").sort("by", "item", descending=[True, False], maintain_order=True)
    return order.unique("item", keep="first", maintain_order=True).head(_EACH).iter_rows(named=True)


def _answers(material: Material) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    rows = material.frames.get("answers")
    if rows is None or rows.is_empty():
        return {}
    kept = rows.unique(list(_KEYS), keep="first", maintain_order=True)
    columns = [*_KEYS, "prompt", "text", "reference"]
    return {tuple(row[k] for k in _KEYS): row for row in kept.select(columns).iter_rows(named=True)}


def _judged(
    row: Mapping[str, Any], answers: Mapping[tuple[Any, ...], Mapping[str, Any]]
) -> Example:
    a = answers.get((row["item"], row["turn"], row["model_a"]), {})
    b = answers.get((row["item"], row["turn"], row["model_b"]), {})
    texts = [
        Text(f"A · {row['model_a']}", _given(a.get("text"))),
        Text(f"B · {row['model_b']}", _given(b.get("text"))),
    ]
    bars = [
        Bar(label, row[column], numbers.probability(row[column]))
        for label, column in (
            ("P(A better), A shown first", "prefer_a_ab"),
            ("P(A better), B shown first", "prefer_a_ba"),
            ("P(A better), both orders", "prefer_a"),
        )
    ]
    return Example(_about(row, f"judge {row['judge']}"), _asked(a or b), texts, bars)


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
    rows = material.frames.get("probdiff")
    if rows is None or rows.is_empty():
        return []
    good = rows.filter((pl.col("status") == "ok") & pl.col("d").is_finite())
    answers = _answers(material)
    kinds = (
        ("down", "ProbDiff: rewritings it believes least", "The lowest d.", -pl.col("d")),
        ("up", "ProbDiff: rewritings it believes most", "The highest d.", pl.col("d")),
    )
    found = []
    for key, title, says, by in kinds:
        kept = good.filter(~pl.col("unchanged") & (by > 0)).with_columns(by=by)
        cases = [_rewritten(row, answers) for row in _top(kept)]
        found.append(Examples(f"rewritten-{key}", title, says, cases))
    return found


def _rewritten(
    row: Mapping[str, Any], answers: Mapping[tuple[Any, ...], Mapping[str, Any]]
) -> Example:
    asked = _asked(answers.get((row["item"], row["turn"], row["model"]), {}))
    texts = []
    for label, text, ell in (
        ("Answer", "answer", "ell_first"),
        ("Rewriting", "rewriting", "ell_last"),
    ):
        mean = numbers.maybe(row[ell], "{:.3f}".format)
        texts.append(Text(f"{label} · mean log-probability {mean}", _given(row[text])))
    return Example(_about(row, f"model {row['model']} · d = {row['d']:+.3f}"), asked, texts, ())


def _rated(material: Material) -> list[Examples]:
    rows = material.frames.get("scores")
    if rows is None or "mean" not in rows.columns:
        return []
    good = rows.filter((pl.col("status") == "ok") & pl.col("mean").is_finite())
    answers = _answers(material)
    kinds = (
        ("high", "Highest scores", "The highest mean of the distribution.", pl.col("mean")),
        ("low", "Lowest scores", "The lowest mean of the distribution.", -pl.col("mean")),
        ("wide", "Least certain scores", "The widest distribution.", pl.col("std")),
    )
    return [
        Examples(
            f"score-{key}",
            title,
            says,
            [_scored(row, answers) for row in _top(good.with_columns(by=by))],
        )
        for key, title, says, by in kinds
    ]


def _scored(
    row: Mapping[str, Any], answers: Mapping[tuple[Any, ...], Mapping[str, Any]]
) -> Example:
    answer = answers.get((row["item"], row["turn"], row["model"]), {})
    texts = [Text(f"Answer · {row['model']}", _given(answer.get("text")))]
    spread = numbers.maybe(row["std"], "{:.2f}".format)
    score = f"judge {row['judge']} · mean {row['mean']:.2f}, standard deviation {spread}"
    return Example(_about(row, score), _asked(answer), texts, ())
