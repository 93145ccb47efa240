"""Items that changed most, items that are not common, and settings that differ."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import polars as pl

from orchestrator.columns import ITEMS
from orchestrator.numbers import UNDEFINED, counted
from orchestrator.report.text import safe_line
from orchestrator.runner.comparing.differences import Contrast
from orchestrator.runner.comparing.sides import Common, Side
from orchestrator.statistics.judgments import TIE
from orchestrator.tables import Column, Table, make_table

_ABSENT: Final = object()
_MOST_PREVIEW: Final = 60
_MOST_NAMED: Final = 5
_MOST_SETTINGS: Final = 200
_MOST_SETTING: Final = 300


class Change(msgspec.Struct, frozen=True):
    """One item under a difference.

    Attributes:
        score: As in `Difference`, and so are `run`, `model`, `first` and `second`.
        run: Label of the run, if one.
        model: Name of the model, if one.
        first: Label or name of the first.
        second: Label or name of the second.
        item: Key of the item.
        turn: Of the conversation, from 1 on.
        prompt: Beginning of the item's prompt, in a line.
        a: Value of the first.
        b: Value of the second.
    """

    score: str
    run: str
    model: str
    first: str
    second: str
    item: str
    turn: int | None
    prompt: str
    a: float
    b: float

    @property
    def difference(self) -> float:
        """B - a."""
        return self.b - self.a


def most_changed(
    found: Sequence[Contrast], prompts: Mapping[str, str], n_most: int
) -> list[Change]:
    """Return the items that differ most by the first score that is compared, the largest first.

    Args:
        found: What is compared.
        prompts: Beginning of each prompt by key of its item.
        n_most: Number of items.
    """
    score = found[0].score if found else ""
    parts = [
        one.points.select("item", "turn", "a", "b").with_columns(contrast=pl.lit(place))
        for place, one in enumerate(found)
        if one.score == score and len(one.points)
    ]
    if not parts:
        return []
    apart = (pl.col("b") - pl.col("a")).abs()
    rows = (
        pl.concat(parts)
        .filter(apart.is_finite() & (apart > TIE))
        .sort(apart, "item", "contrast", descending=[True, False, False])
        # Of two models in one comparison, what one wins the other loses.
        .unique("item", keep="first", maintain_order=True)
        .head(n_most)
    )
    return [
        Change(
            score, found[at].run, found[at].model, found[at].first, found[at].second,
            item, turn, prompts.get(item, ""), a, b,
        )
        for item, turn, a, b, at in rows.iter_rows()
    ]  # fmt: skip


def previews(side: Side) -> dict[str, str]:
    """Return the beginning of each prompt of a run by key of its item."""
    rows = side.result.frames.columns(ITEMS, ("item", "prompt"))
    return {key: safe_line(prompt or "")[:_MOST_PREVIEW] for key, prompt in rows.iter_rows()}


def changed_table(changes: Sequence[Change], by: str, n_most: int) -> Table | None:
    """Return the items that changed most as a table; None for none."""
    if not changes:
        return None
    has_model = any(one.model for one in changes)
    names = ["item", "prompt", *(["model"] if has_model else []), "compared"]
    columns = [*map(Column, names), Column("first", "number"), Column("second", "number"),
               Column("difference", "signed")]  # fmt: skip
    rows = [
        (one.item, one.prompt, *((one.model,) if has_model else ()),
         f"{one.second} - {one.first}", one.a, one.b, one.difference)
        for one in changes[:n_most]
    ]  # fmt: skip
    return make_table("compare.items", f"Items that differ most, by {by}", columns, rows)


def common_notes(sides: Sequence[Side], common: Common) -> list[str]:
    """Return how many items are common, and which are not, a sentence each."""
    n = len(common.items)
    if len(sides) < 2:
        return [f"{counted(n, 'item')} in {sides[0].folder}."]
    sizes = ", ".join(f"{side.label} has {len(side.items):,}" for side in sides)
    notes = [f"{counted(n, 'item')} in common; {sizes}."]
    for side in sides:
        alone = common.alone[side.label]
        if alone:
            shown = ", ".join(alone[:_MOST_NAMED])
            more = f" and {len(alone) - _MOST_NAMED:,} more" if len(alone) > _MOST_NAMED else ""
            are = "is" if len(alone) == 1 else "are"
            items = counted(len(alone), "item")
            notes.append(f"{items} {are} not compared, only in {side.label}: {shown}{more}.")
    if common.n_changed:
        notes.append(
            f"{counted(common.n_changed, 'item')} with the same key but a different text "
            "were excluded."
        )
    return notes


def settings_that_differ(sides: Sequence[Side]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the settings that are not the same in all runs: path, and the value in each."""
    found = _differing([side.result.settings for side in sides], "")
    return list(found)[:_MOST_SETTINGS]


def _differing(values: Sequence[object], path: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Descend where all values are mappings or lists; a part that only some have is one setting."""
    if all(isinstance(value, Mapping) for value in values):
        maps = [value for value in values if isinstance(value, Mapping)]
        for key in dict.fromkeys(key for one in maps for key in one):
            inner = [one.get(key, _ABSENT) for one in maps]
            yield from _differing(inner, f"{path}.{key}" if path else str(key))
    elif all(isinstance(value, list) for value in values):
        lists = [value for value in values if isinstance(value, list)]
        for place in range(max(map(len, lists))):
            inner = [one[place] if place < len(one) else _ABSENT for one in lists]
            yield from _differing(inner, f"{path}.{place}")
    elif any(value != values[0] for value in values):
        yield path, tuple(map(_in_words, values))


def _in_words(value: object) -> str:
    if value is _ABSENT:
        return UNDEFINED
    if isinstance(value, Mapping):
        kind = value.get("kind") or value.get("weights") or value.get("base_url")
        return f"present ({kind})" if kind else "present"
    if value is None or isinstance(value, bool):
        # As recipes write them
        return json.dumps(value)
    return str(value)


def settings_table(sides: Sequence[Side]) -> Table | None:
    """Return the settings that differ as a table; None for none."""
    found = settings_that_differ(sides)
    if not found:
        return None
    columns = [Column("setting"), *(Column(side.label) for side in sides)]
    rows = [(path, *(one[:_MOST_SETTING] for one in values)) for path, values in found]
    return make_table("compare.settings", "Settings that differ", columns, rows)
