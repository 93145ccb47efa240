"""Facts from texts: what each table and each sentence of a report states."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tests.oracles.verdicts.facts import (
    Apart,
    Best,
    Counted,
    Even,
    Grouped,
    Kind,
    Listed,
    Number,
    Ranks,
    Size,
)
from tests.oracles.verdicts.grids import Grid, Pages, chain
from tests.oracles.verdicts.studies import NAMES

NAME: Final = f"(?:{'|'.join(NAMES)})"
_NUMBER: Final = r"[+\-\u2212]?\d[\d,]*(?:\.\d+)?"
_VALUE: Final = re.compile(rf"(?P<sign>[<>≥≤] ?)?(?P<value>{_NUMBER})(?P<percent> ?%)?")
_INTERVAL: Final = re.compile(
    rf"(?P<left>\[|\()(?P<low>{_NUMBER}|open), (?P<high>{_NUMBER}|open)(?P<right>\]|\))"
)
_RANKS: Final = re.compile(r"(\d+)(?:(?:\u2013|-| to )(\d+))?")
_PROMPTS: Final = re.compile(
    r"(?<!fewer than )\b([\d,]+) (?:distinct )?prompts?(?: in ([\d,]+) clusters?)?"
)
_ABOVE: Final = "above the others"
_BELOW: Final = "below the others"


def number(where: str, kind: Kind, of: Sequence[str], text: str) -> Number | None:
    """Return the first number of a text with its interval; None where it has neither."""
    bounds = _INTERVAL.search(text)
    before = text[: bounds.start()] if bounds else text
    found = _VALUE.search(before)
    if found is None and bounds is None:
        return None
    is_percent = "%" in before
    value, unit = (None, 0.0) if found is None else _read(found["value"], is_percent=is_percent)
    if found is not None and found["sign"]:
        # More than is shown, or less: it has no value of its own.
        value = None
    low = high = None
    if bounds is not None:
        ends = [_end(bounds[name], is_percent=is_percent) for name in ("low", "high")]
        low, high = ends[0][0] * (-1 if bounds["low"] == "open" else 1), ends[1][0]
        unit = max(unit, *(width for _, width in ends))
    return Number(where, kind, tuple(of), value, low, high, unit)


def _read(text: str, *, is_percent: bool) -> tuple[float, float]:
    plain = text.replace(",", "").replace("\N{MINUS SIGN}", "-")
    unit = 10.0 ** -len(plain.partition(".")[2])
    scale = 0.01 if is_percent else 1.0
    return float(plain) * scale, unit * scale


def _end(text: str, *, is_percent: bool) -> tuple[float, float]:
    return (math.inf, 0.0) if text == "open" else _read(text, is_percent=is_percent)


def pages(found: Pages, models: Sequence[str], where: str) -> Iterator[object]:
    """Yield what the tables and the sentences of an output state."""
    for grid in found.grids:
        yield from table(grid, models)
    for sentence in found.sentences:
        yield from stated(sentence, models, where)


def table(grid: Grid, models: Sequence[str]) -> Iterator[object]:
    """Yield what a table states."""
    for row in grid.rows:
        for head, cell in zip(grid.heads, row, strict=False):
            one = number(f"{grid.where}, {head}", "any", (), cell)
            if one is not None and one.low is not None:
                yield one
    heads = [head.lower() for head in grid.heads]
    for named, read in _TABLES:
        if set(named) <= set(heads):
            yield from read(grid, heads, models)
            return
    if heads and heads[0] in ("", "category") and set(models) <= set(grid.heads):
        yield from _square(grid, models)


def _by_head(grid: Grid, heads: Sequence[str]) -> Iterator[dict[str, str]]:
    for row in grid.rows:
        yield dict(zip(heads, row, strict=True))


def _ratings(grid: Grid, heads: Sequence[str], models: Sequence[str]) -> Iterator[object]:
    """Yield ratings, ranks and groups; their intervals may stand in a column of their own."""
    is_rating = any(head.startswith("rating") for head in heads)
    if not is_rating or {"estimator", "at equal style", "judge"} & set(heads):
        return
    if "category" in heads:
        for row in _by_head(grid, heads):
            of = (row["model"], _category(row["category"]))
            if one := number(grid.where, "category", of, row["rating"]):
                yield one
        return
    listed = [row["model"] for row in _by_head(grid, heads)]
    if set(listed) <= set(models):
        yield Listed(grid.where, frozenset(listed))
    for row in _by_head(grid, heads):
        model = row["model"]
        shown = " ".join(
            cell for head, cell in row.items() if head.startswith("rating") or "interval" in head
        )
        if one := number(grid.where, "rating", (model,), shown):
            yield one
        elif _ABOVE in shown or _BELOW in shown:
            sign = 1.0 if _ABOVE in shown else -1.0
            yield Number(grid.where, "rating", (model,), sign * math.inf)
        if ranks := _RANKS.fullmatch(row.get("rank", "")):
            yield Ranks(grid.where, model, int(ranks[1]), int(ranks[2] or ranks[1]))
        if "group" in row and row["group"] not in ("\N{EN DASH}", ""):
            yield Grouped(grid.where, model, frozenset(re.findall(r"\d+|[a-z]", row["group"])))


def _neighbours(grid: Grid, heads: Sequence[str], _: Sequence[str]) -> Iterator[object]:
    for row in _by_head(grid, heads):
        pair = re.findall(NAME, row["pair"] if "pair" in row else f"{row['model']} {row['next']}")
        amount = next(row[head] for head in heads if head.startswith("difference"))
        if len(pair) == len(("better", "worse")):
            yield (Even if "not" in row["order"] else Apart)(grid.where, *pair)
            if one := number(grid.where, "difference", pair, amount):
                yield one


def _all_pairs(grid: Grid, heads: Sequence[str], _: Sequence[str]) -> Iterator[object]:
    for row in _by_head(grid, heads):
        pair = (row["better"], row["worse"])
        yield (Apart if row["told apart"] == "yes" else Even)(grid.where, *pair)
        if one := number(grid.where, "difference", pair, row["difference"]):
            yield one


def _wins(grid: Grid, heads: Sequence[str], _: Sequence[str]) -> Iterator[object]:
    for row in _by_head(grid, heads):
        if one := number(grid.where, "win", (row["model"], row["against"]), row["wins"]):
            yield one


def _differences(grid: Grid, heads: Sequence[str], _: Sequence[str]) -> Iterator[object]:
    for row in _by_head(grid, heads):
        pair = (row["model"], row["minus"])
        if pair[0] not in NAMES:
            return
        one = number(grid.where, "mean difference", pair, row["difference"])
        if one is not None:
            yield one
        verdict = row["resolved"]
        if verdict in ("better", "worse"):
            above, below = pair if verdict == "better" else pair[::-1]
            yield Apart(grid.where, above, below, is_mean=True)
        elif verdict == "no":
            yield Even(grid.where, *pair, is_mean=True)


def _square(grid: Grid, models: Sequence[str]) -> Iterator[object]:
    """Yield win rates of rows against columns, or ratings by category."""
    is_wins = grid.heads[0] == ""
    first = ""
    for row in grid.rows:
        cells = dict(zip(grid.heads, row, strict=True))
        first = row[0] or first
        for model in models:
            of = (first, model) if is_wins else (model, _category(first))
            one = number(grid.where, "win" if is_wins else "category", of, cells[model])
            # A line of intervals alone belongs to the one above it.
            if one is not None and one.value is not None and (not is_wins or first in models):
                yield one


_TABLES: Final = (
    (("pair", "order"), _neighbours),
    (("model", "next", "order"), _neighbours),
    (("better", "worse", "told apart"), _all_pairs),
    (("model", "minus", "resolved"), _differences),
    (("model", "against", "wins"), _wins),
    (("model",), _ratings),
)
"""What reads a table, by some of its headings."""


def _category(cell: str) -> str:
    return cell.partition(" (")[0]


_SENTENCES: Final[Sequence[tuple[str, str]]] = (
    (rf"^(?P<a>{NAME}) is (?P<how>better|worse) than (?P<b>{NAME}): .*\] in .*\.$", "by mean"),
    (rf"^(?P<a>{NAME}) is better than (?P<b>{NAME})(?:: (?P<amount>.*))?\.$", "better"),
    (rf"^(?P<a>{NAME}) (?:is best|leads)(?:: (?P<amount>.*))?\.$", "best"),
    (rf"^(?P<a>{NAME}) leads, but is not apart from every other model", "no"),
    (r"^No single best model: (?P<tied>.*?) cannot be told apart", "tied"),
    (r"^No winner: none of the (?P<n>\d+) models can be told from another(?P<amount>.*)$", "none"),
    (rf"^No winner: (?P<a>{NAME}) and (?P<b>{NAME}) cannot be told apart(?P<amount>.*)$", "even"),
    (r"^The two models can be told apart\.", "two"),
    (r"^All (?P<n>[\d,]+) pairs of models can be told apart\.", "all"),
    (r"^(?P<k>[\d,]+) of (?P<n>[\d,]+) pairs of models can be told apart(?P<rest>.*)$", "some"),
    (r"^Not resolvable: ", "none"),
    (rf"^More prompts to tell (?P<a>{NAME}) from (?P<b>{NAME}): ", "even"),
    (rf"^(?P<a>{NAME}) over (?P<b>{NAME}): (?P<amount>.*)$", "over"),
    (rf"^(?P<a>{NAME}) and (?P<b>{NAME}): not resolvable, (?P<amount>.*)$", "even"),
)


def stated(sentence: str, models: Sequence[str], where: str) -> Iterator[object]:
    """Yield what a sentence states: verdicts on models, and the number of prompts."""
    for counted in _PROMPTS.finditer(sentence if _is_basis(sentence) else ""):
        ends = (one or counted[1] for one in counted.groups())
        n_items, n_clusters = (int(one.replace(",", "")) for one in ends)
        yield Size(where, n_items, n_clusters)
    # Elsewhere the sign is that of two numbers.
    is_verdict = "told apart" in sentence
    order = re.search(rf"\b{NAME}(?: [>≈] {NAME})+", sentence) if is_verdict else None
    yield from (Apart(where, *pair) for pair in (chain(order[0]) if order else ()))
    for part in re.split(r"(?<=\.) (?=[A-Z0-9])", sentence):
        for pattern, meaning in _SENTENCES:
            if found := re.search(pattern, part):
                yield from _meant(meaning, found.groupdict(), models, where)
                break


def _is_basis(sentence: str) -> bool:
    return "judgment" in sentence and ("interval" in sentence or "uncertainty" in sentence)


def _meant(
    meaning: str, parts: dict[str, str | None], models: Sequence[str], where: str
) -> Iterator[object]:
    a, b, amount = parts.get("a") or "", parts.get("b") or "", parts.get("amount") or ""
    match meaning:
        case "better" | "over":
            yield Apart(where, a, b)
            if meaning == "better":
                yield Best(where, a)
            yield from _amounts(where, (a, b), amount)
        case "by mean":
            pair = (a, b) if parts["how"] == "better" else (b, a)
            yield Apart(where, *pair, is_mean=True)
        case "best":
            yield Best(where, a)
            yield from _amounts(where, (a, _named(amount, "over")), amount)
        case "even":
            yield Even(where, a, b)
            yield from _amounts(where, (a, b), amount)
        case "tied":
            named = re.findall(NAME, parts.get("tied") or "")
            yield from (Even(where, x, y) for x, y in _pairs(named))
        case "none":
            yield from (Even(where, x, y) for x, y in _pairs(models))
            yield from _between(where, amount)
        case "two":
            yield Counted(where, 1, 1)
        case "all":
            yield Counted(where, int(parts["n"] or 0), int(parts["n"] or 0))
        case "some":
            yield Counted(where, int(parts["k"] or 0), int(parts["n"] or 0))
            yield from _listed(where, parts.get("rest") or "")
        case _:
            assert meaning == "no", meaning


def _named(text: str, word: str) -> str:
    found = re.search(rf"{word} ({NAME})", text)
    return found[1] if found else ""


def _amounts(where: str, pair: tuple[str, str], text: str) -> Iterator[Number]:
    """Yield `+19 [1, 38] Elo` and `win rate 53 % [49, 57] against b` of a sentence."""
    elo = re.search(rf"({_NUMBER}(?: \[[^\]]*\])?|≥ {_NUMBER}) Elo", text)
    if elo and all(pair) and (one := number(where, "difference", pair, elo[1])):
        yield one
    won = re.search(r"win rate ([^.]*)", text)
    against = _named(text, "against") or pair[1]
    if won and against and (one := number(where, "win", (pair[0], against), won[1])):
        yield one


def _between(where: str, text: str) -> Iterator[Number]:
    found = re.search(rf"({NAME}) is (.*) over ({NAME})", text)
    if found and (one := number(where, "difference", (found[1], found[3]), found[2])):
        yield one


def _listed(where: str, rest: str) -> Iterator[object]:
    """Yield the pairs of `: a over b, c; b over c` or of `; these cannot: a and b`."""
    word = "and" if "cannot" in rest else "over"
    kind = Even if word == "and" else Apart
    for part in rest.partition(":")[2].split(";"):
        first, found, others = part.strip(" .").partition(f" {word} ")
        if found:
            yield from (kind(where, first, other) for other in re.findall(NAME, others))


def _pairs(models: Iterable[str]) -> Iterator[tuple[str, str]]:
    named = list(models)
    return ((a, b) for at, a in enumerate(named) for b in named[at + 1 :])
