"""Reasons to doubt a judge beyond its own judgments: whom it judges, its training, and style."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from orchestrator.report.phrases import Name, Part, Quote, names, phrase
from orchestrator.report.questions import Check
from orchestrator.tables import Cell, Measured, Table

_BUNDLED: Final = "bundled:"
_DEMO: Final = "demo"
_LEAST_FAMILY: Final = 3
# Beginnings of names that say nothing of a family.
_PLAIN: Final = frozenset({"model", "judge", "chat", "base", "test"})
_STYLED: Final = ["rating", "at equal style", "change"]
# A change of a rating that deserves a mark even if the same model leads, Elo points.
_MUCH: Final = 50.0


def of_settings(settings: Mapping[str, Any], source: str, judge: str | None) -> Iterator[Check]:
    """Yield what a recipe says of the judges of a method.

    Args:
        settings: The resolved recipe.
        source: Name of the method.
        judge: The one that a question is about; None for all of the method.
    """
    entries = settings.get("methods") or ()
    entry = next((one for one in entries if source in (one.get("name"), one.get("kind"))), None)
    if entry is None:
        return
    models = settings.get("models") or {}
    every = {one for other in entries for one in other.get("judges") or ()}
    candidates = entry.get("candidates") or [one for one in models if one not in every]
    dataset = (settings.get("dataset") or {}).get("kind")
    for one in entry.get("judges") or ():
        if judge in (None, one):
            yield from _of_kin(one, candidates, models)
            if _called(one, models).startswith(_BUNDLED) and dataset != _DEMO:
                text = " is a bundled model, trained on the tasks of the demo alone: "
                end = "what it says of other prompts means little."
                yield Check("judge", phrase(Name(one), text, end), is_doubtful=True)


def _of_kin(judge: str, candidates: Sequence[str], models: Mapping[str, Any]) -> Iterator[Check]:
    own = _called(judge, models)
    family = _family(own)
    called = {one: _called(one, models) for one in candidates}
    same = [one for one in candidates if one == judge or called[one] == own]
    kin = [one for one in candidates if family and _family(called[one]) == family]
    kin = [one for one in kin if one not in same]
    if same:
        said = phrase(Name(judge), " judges itself (as ", names(same), "): it may prefer its own.")
        yield Check("judge", said, is_doubtful=True)
    if kin:
        why: list[Part] = [" by their names (", Quote(family), "): it may prefer their answers."]
        said = phrase(Name(judge), " is of one family with ", names(kin), why)
        yield Check("judge", said, is_doubtful=True)


def _called(name: str, models: Mapping[str, Any]) -> str:
    """The model behind a name: its weights, or what its server calls it."""
    entry = models.get(name) or {}
    return str(entry.get("weights") or entry.get("model") or name)


def _family(called: str) -> str:
    """The letters that a model's own name begins with; empty where they say nothing."""
    letters = "".join(re.findall("^[a-z]+", re.split("[/:]", called.lower())[-1]))
    return "" if len(letters) < _LEAST_FAMILY or letters in _PLAIN else letters


def of_style(tables: Sequence[Table], source: str) -> Iterator[Check]:
    """Yield what control of length and style makes of the ratings of a method.

    Args:
        tables: Of summaries and analyses.
        source: Name of the method.
    """
    styled = (one for one in tables if (one.source, one.key) == (source, "style_control"))
    table = next(styled, None)
    if table is None or [column.name for column in table.columns[1:4]] != _STYLED:
        return
    names_of = [str(row[0]) for row in table.rows]
    plain, equal, change = ([_value(row[at]) for row in table.rows] for at in (1, 2, 3))
    if len(names_of) < 2 or not all(map(math.isfinite, (*plain, *equal, *change))):
        return
    first, then = (names_of[max(range(len(of)), key=of.__getitem__)] for of in (plain, equal))
    at = max(range(len(change)), key=lambda k: abs(change[k]))
    moved = f" {'rises' if change[at] > 0 else 'falls'} by {abs(change[at]):,.0f} points."
    leads = [Name(then), " leads" if first != then else " leads, too"]
    said = phrase("at equal length and style ", leads, "; ", Name(names_of[at]), moved)
    cell = table.rows[at][3]
    low, high = (cell.low, cell.high) if isinstance(cell, Measured) else (None, None)
    is_sure = low is not None and high is not None and low * high > 0.0
    yield Check("style", said, first != then or (is_sure and abs(change[at]) >= _MUCH))


def _value(cell: Cell) -> float:
    return cell.value if isinstance(cell, Measured) and cell.value is not None else math.nan
