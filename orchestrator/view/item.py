"""The page of one item: what was asked and answered, to the tokens, and every row made of it."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec
import polars as pl

from orchestrator.ask import AnyAsk, ChooseAsk, GenerateAsk, RewardAsk, ScoreAsk, SimilarityAsk
from orchestrator.columns import ITEMS, RowRoles
from orchestrator.contracts.context import roles_in
from orchestrator.frames import FrameFiles
from orchestrator.records import (
    TOKEN_FEATURES,
    Choice,
    Failure,
    FloatArray,
    Generation,
    Outcome,
    PairScores,
    Rewards,
    Scored,
    TopLogprobs,
)
from orchestrator.report import words
from orchestrator.report.text import page_line, safe_block
from orchestrator.runner.results.requests import Played, alternatives, tokens_of
from orchestrator.runner.results.token_texts import Speller

MAX_TEXT: Final = 40_000
"""Characters of one text on a page; how many more there are is said."""
_MAX_CELL: Final = 600
_MAX_ROWS: Final = 500
# Judgments that are drawn one by one, with their distributions; more stand in a matrix first.
_MOST_DRAWN: Final = 12

Row = Mapping[str, Any]


def page(frames: FrameFiles, key: str, between: Collection[str] = ()) -> dict[str, Any]:
    """Return the rows of all frames about an item.

    Of many judgments, which `is_many` says, only those `between` two models are there.
    """
    about = _rows(frames, ITEMS, key) if ITEMS in frames else []
    shown: dict[str, list[Row]] = {what: [] for what in _SECTIONS}
    others = []
    roles = roles_in(frames)
    for name in frames:
        role = roles.get(name, RowRoles())
        ranked = role.pairs if role.pairs and role.pairs.ranked and role.pairs.verdicts else None
        sections = {
            "answers": role.answers, "judgments": ranked, "rewritings": role.rewriting,
            "scores": role.distribution,
        }  # fmt: skip
        known = ((what, one.columns()) for what, one in sections.items() if one is not None)
        # Where the rows are a table like any other, none.
        what, columns = next(known, ("", {}))
        found = _rows(frames, name, key) if name != ITEMS else []
        if what != "judgments":
            del found[_MAX_ROWS:]
        if found and what and columns.get(_SECTIONS[what].needed) in found[0]:
            shown[what] += [
                {**row, **{as_known: row.get(column) for as_known, column in columns.items()}}
                for row in found
            ]
        elif found:
            others.append(_table(name, found))
    drawn = {
        what: [section.show(row) for row in shown[what]] for what, section in _SECTIONS.items()
    }
    if is_many := len(drawn["judgments"]) > _MOST_DRAWN:
        drawn["judgments"] = [
            row for row in drawn["judgments"] if {row["model_a"], row["model_b"]} == {*between}
        ]
    return {
        "key": page_line(key),
        "about": _about(about[0] if about else {}, shown["answers"]),
        "is_many": is_many,
        **drawn,
        "others": others,
    }


plain: Final = partial(words.plain, text=partial(safe_block, limit=MAX_TEXT))
"""A value that JSON has, its texts as a page may show them."""


def text(value: object) -> str | None:
    """A text from outside, as a page may show it."""
    return None if value is None else safe_block(str(value), MAX_TEXT)


def _rows(frames: FrameFiles, name: str, key: str) -> list[dict[str, object]]:
    scan = frames.scan(name)
    if "item" not in scan.collect_schema():
        return []
    return scan.filter(pl.col("item") == key).collect().to_dicts()


def _about(item: Row, answers: Sequence[Row]) -> dict[str, object]:
    first = answers[0] if answers else {}
    followups = _json(item.get("followups")) or []
    references = _json(item.get("references")) or [item.get("reference", first.get("reference"))]
    fields = _json(item.get("fields")) or {}
    return {
        "category": _line(item.get("category", first.get("category"))),
        "prompts": [text(one) for one in (item.get("prompt", first.get("prompt")), *followups)],
        "references": [text(one) for one in references],
        "fields": [[page_line(str(name)), text(value)] for name, value in fields.items()],
    }


def _json(value: object) -> Any:  # noqa: ANN401 (JSON values)
    if not isinstance(value, str):
        return None
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return None


def _line(value: object) -> str | None:
    return None if value is None else page_line(str(value))


@dataclass(frozen=True, slots=True)
class _Section:
    """Columns of the rows of a section, by how a page shows them.

    Attributes:
        needed: Without it there is nothing to draw.
        values: Shown as they are.
        lines: Words on one line.
        texts: Of any length.
        renamed: Names on the page of values that others know by another name.
    """

    needed: str
    values: tuple[str, ...]
    lines: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)

    def show(self, row: Row) -> dict[str, object]:
        names = ("method", "model", "model_a", "model_b", "judge", "cause", "status")
        return {
            **{name: _line(row[name]) for name in names if row.get(name) is not None},
            "turn": row.get("turn") or 1,
            "message": text(row.get("message")),
            **{name: plain(row.get(column)) for name, column in self.renamed.items()},
            **{name: plain(row.get(name)) for name in self.values},
            **{name: _line(row.get(name)) for name in self.lines},
            **{name: text(row.get(name)) for name in self.texts},
        }


_SECTIONS: Final = {
    "answers": _Section(
        needed="text",
        values=("mean_logprob", "n_tokens", "exact_match", "n_thinking_tokens"),
        lines=("finish_reason",),
        texts=("text",),
    ),
    "judgments": _Section(
        needed="p_ab",
        values=(
            "p_ab", "p_ba", "coverage_ab", "coverage_ba", "prefer_a_ab", "prefer_a_ba", "prefer_a",
            "exact", "same_text", "n_traces", "n_silent",
        ),
    ),
    "rewritings": _Section(
        needed="answer",
        values=(
            "unchanged", "n_tokens_first", "n_tokens_last", "marker_leak", "truncated_answer",
            "truncated_rewriting",
        ),
        lines=("undefined",),
        texts=("answer", "rewriting"),
        renamed={"ell_first": "before", "ell_last": "after", "d": "change"},
    ),
    "scores": _Section(
        needed="p",
        values=(
            "p", "mean", "mean_low", "mean_high", "std", "mode", "median", "coverage", "exact",
        ),
    ),
}  # fmt: skip


def _table(name: str, rows: Sequence[Row]) -> dict[str, object]:
    """Any frame: the columns that say something."""
    columns = [one for one in rows[0] if one != "item" and any(r[one] is not None for r in rows)]
    return {
        "frame": page_line(name),
        "columns": [page_line(one) for one in columns],
        "rows": [
            [
                safe_block(row[one], _MAX_CELL) if isinstance(row[one], str) else plain(row[one])
                for one in columns
            ]
            for row in rows
        ],
    }


_MOST_TOKENS: Final = 3000
_MAX_PIECE: Final = 200

Data = dict[str, Any]


def trace(units: Sequence[Played], speller: Speller) -> Data:
    """Return the requests of an item's units; equal requests are listed once."""
    numbers: dict[AnyAsk, int] = {}
    asks: list[Data] = []
    shown = []
    for work, asked in units:
        mine = []
        for ask, outcome in asked:
            number = numbers.setdefault(ask, len(asks))
            if number == len(asks):
                asks.append(_asked(ask, outcome, speller))
            mine.append(number)
        shown.append(
            {
                "method": page_line(work.part.name),
                "kind": page_line(work.part.kind),
                "models": [page_line(model) for model in work.unit.models],
                "judge": page_line(work.unit.judge),
                "asks": mine,
            }
        )
    made_of = dict(one for _, asked in units for one in asked)
    for ask, number in numbers.items():
        made = made_of[ask]
        if isinstance(made, Generation):
            ids = () if made.token_ids is None else tuple(made.token_ids.tolist())
            # Where the own tokens of a drawn text were scored
            asks[number]["scored"] = [
                other
                for score, other in numbers.items()
                if isinstance(score, ScoreAsk)
                and score.model == ask.model
                and score.token_ids == ids
                and made.token_ids is not None
            ]
    return {"units": shown, "asks": asks}


def _asked(ask: AnyAsk, outcome: Outcome | Failure, speller: Speller) -> Data:
    found: Data = {"model": page_line(ask.model), "kind": ask.kind}
    if not isinstance(ask, SimilarityAsk):
        found["messages"] = [[one.role, text(one.content)] for one in ask.messages]
    if isinstance(outcome, Failure):
        return {**found, "failed": page_line(f"{outcome.cause}: {outcome.message}")}
    match ask, outcome:
        case GenerateAsk(), Generation():
            found |= _drawn(ask, outcome, speller)
        case ScoreAsk(), Scored():
            found |= _scored(ask, outcome, speller)
        case ChooseAsk(), Choice():
            shares, bounds = (
                [math.exp(value) if value == value else None for value in values]
                for values in (outcome.logprobs, outcome.upper)
            )
            found |= {
                "labels": [
                    [page_line(label.name), share, bound]
                    for label, share, bound in zip(ask.labels, shares, bounds, strict=True)
                ],
                "prefix": text(ask.prefix.text) if ask.prefix.text else None,
                "exact": outcome.exact,
                "method": page_line(outcome.method),
            }
        case SimilarityAsk(), PairScores():
            found |= {
                "texts": [text(one) for one in ask.texts],
                "precision": plain(outcome.precision.tolist()),
                "recall": plain(outcome.recall.tolist()),
                "encoder": page_line(outcome.encoder),
            }
        case RewardAsk(), Rewards():
            found |= {
                "rewards": plain(outcome.values[:_MOST_TOKENS].tolist()),
                "by_place": outcome.by_place,
                "method": page_line(outcome.method),
            }
        case _:
            # An ask is answered by its own kind of outcome.
            pass
    return found


def _drawn(ask: GenerateAsk, made: Generation, speller: Speller) -> Data:
    sampling = ask.sampling
    return {
        "turn": ask.turn,
        "repeat": ask.repeat,
        "sampling": f"temperature {sampling.temperature:g}, at most {sampling.max_tokens} tokens",
        "text": text(made.text),
        "thinking": text(made.thinking) if made.thinking else None,
        "finish_reason": page_line(made.finish_reason),
        **_tokens(ask, made, speller),
    }


def _scored(ask: ScoreAsk, made: Scored, speller: Speller) -> Data:
    found = _tokens(ask, made, speller)
    n = len(made.token_ids)
    features = {
        name: _numbers(values[:_MOST_TOKENS])
        for name, values in (made.features or {}).items()
        if name in TOKEN_FEATURES and values.shape == (n,)
    }
    return {
        "text": text(ask.text),
        "method": page_line(made.method),
        "tokens": {**found["tokens"], "features": features},
        "missing": found["missing"],
    }


def _tokens(ask: GenerateAsk | ScoreAsk, made: Generation | Scored, speller: Speller) -> Data:
    """The tokens of a text with what was observed at each, and what was not."""
    found = tokens_of(ask, made, speller)
    missing = speller.missing(ask, made, is_spelled=found is None or found.pieces is not None)
    if found is None:
        return {"tokens": None, "missing": missing}
    top = made.top
    pieces = found.pieces
    logprobs = made.logprobs
    return {
        "missing": missing,
        "tokens": {
            "n": len(found.ids),
            "ids": found.ids[:_MOST_TOKENS],
            "pieces": None
            if pieces is None
            else [safe_block(one, _MAX_PIECE) for one in pieces[:_MOST_TOKENS]],
            "logprobs": None if logprobs is None else _numbers(logprobs[:_MOST_TOKENS]),
            "top": None if top is None else list(_alternatives(ask.model, top, speller)),
        },
    }


def _alternatives(model: str, top: TopLogprobs, speller: Speller) -> Iterator[list[list[object]]]:
    shown: dict[int, str | None] = {}
    kept = TopLogprobs(top.token_ids[:_MOST_TOKENS], top.logprobs[:_MOST_TOKENS])
    for listed in alternatives(model, kept, speller):
        row: list[list[object]] = []
        for number, spelled, logprob in listed:
            if number not in shown:
                shown[number] = None if spelled is None else safe_block(spelled, _MAX_PIECE)
            row.append([shown[number], number if number >= 0 else None, round(logprob, 4)])
        yield row


def _numbers(values: FloatArray) -> list[float | None]:
    return [round(value, 4) if math.isfinite(value) else None for value in values.tolist()]
