"""What outputs say of models that are measured each by itself, by a mean score."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, Final

from tests.oracles.verdicts import grids, reading
from tests.oracles.verdicts.facts import (
    Apart,
    Best,
    Counted,
    Even,
    Facts,
    Gated,
    Listed,
    Number,
)
from tests.oracles.verdicts.runs import told

TABLE: Final = "pointwise.scores"
_MEAN: Final = "mean score"
_HIGHEST: Final = re.compile(
    rf"^Highest {_MEAN}: (?P<first>{reading.NAME}) (?P<shown>[^;]*?)"
    rf"(?:; not clearly above (?P<close>.*)\.|, then (?P<second>{reading.NAME}) .*\.)$"
)


def facts(run: Path, models: Sequence[str]) -> Facts:
    """Return everything that the outputs about a run of `pointwise` with one judge say."""
    document = json.loads(told("report", run, "--format", "json"))
    found = Facts(tuple(models))
    (table,) = (one for one in document["tables"] if one["table"] == TABLE)
    found.is_complete = not any(row["failed"] for row in table["rows"])
    found.add(_of_table(table))
    questions = [one for one in document["brief"]["questions"] if one["measure"] == _MEAN]
    for question in questions:
        found.add(_of_question(question, models))
        if not _HIGHEST.match(question["answer"]) and "No winner" not in question["answer"]:
            found.unread.append(question["answer"])
    for where, more in (("screen", ()), ("full", ("--full",))):
        text = told("report", run, *more)
        found.add(_of_text(where, text, models, has_question=bool(questions)))
    found.add(_of_gates(run, models))
    compared = told("compare", run, "--score", "pointwise.mean")
    found.add(reading.pages(grids.of_terminal("compare", compared), models, "compare"))
    return found


def _of_table(table: Mapping[str, Any]) -> Iterator[object]:
    yield Listed("json scores", frozenset(row["model"] for row in table["rows"]))
    for row in table["rows"]:
        cell = row[_MEAN]
        yield Number("json", "mean", (row["model"],), cell["value"], cell["low"], cell["high"])
    for pair in (pair for one in table["comparisons"] for pair in one["pairs"]):
        names = (pair["higher"], pair["lower"])
        yield (Apart if pair["resolvable"] else Even)("json pairs", *names)
        cell = pair["difference"]
        yield Number("json pairs", "difference", names, cell["value"], cell["low"], cell["high"])


def _of_question(question: Mapping[str, Any], models: Sequence[str]) -> Iterator[object]:
    where = "json brief"
    listed = [one["model"] for one in question["models"]]
    yield Listed(where, frozenset(listed))
    yield Counted(where, question["n_apart"], question["n_pairs"])
    if question["state"] == "answered":
        yield Best(where, listed[0])
    for one in question["models"]:
        yield Number(where, "mean", (one["model"],), one["value"], one["low"], one["high"])
    for name in ("answer", "apart"):
        yield from _stated(question[name], models, f"{where} {name}")


def _stated(sentence: str, models: Sequence[str], where: str) -> Iterator[object]:
    yield from reading.stated(sentence, models, where)
    found = _HIGHEST.match(sentence)
    if found is None:
        return
    if one := reading.number(where, "mean", (found["first"],), found["shown"]):
        yield one
    close = re.findall(reading.NAME, found["close"] or "")
    yield from (Even(where, found["first"], other) for other in close)
    yield from () if found["close"] else [Best(where, found["first"])]


def _of_text(
    where: str, text: str, models: Sequence[str], *, has_question: bool
) -> Iterator[object]:
    pages = grids.of_terminal(where, text)
    for sentence in pages.sentences:
        yield from _stated(sentence, models, where)
    for grid in pages.grids:
        if _MEAN not in grid.heads or (has_question and "judge" in grid.heads):
            continue
        rows = [dict(zip(grid.heads, row, strict=True)) for row in grid.rows]
        yield Listed(grid.where, frozenset(row["model"] for row in rows))
        for row in rows:
            shown = f"{row[_MEAN]} {row.get('interval', '')} {row.get('95 % interval', '')}"
            if one := reading.number(grid.where, "mean", (row["model"],), shown):
                yield one


def _of_gates(run: Path, models: Sequence[str]) -> Iterator[object]:
    pairs = list(permutations(models, 2))
    for asked in [*([pair] for pair in pairs), [pair for pair in pairs if pair[0] < pair[1]]]:
        texts = [f"score({a}) > score({b})" for a, b in asked]
        options = [word for text in texts for word in ("--require", text)]
        found = json.loads(told("gate", run, *options, "--format", "json"))
        for pair, text, one in zip(asked, texts, found["requirements"], strict=True):
            yield Gated(f"gate {text} of {len(asked)}", "rating", *pair, one["verdict"], len(asked))
