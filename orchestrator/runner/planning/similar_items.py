"""A word where items seem to belong together and the recipe does not say so."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from orchestrator.datasets._openings import MOST_ITEMS, alike_openings, text_of
from orchestrator.runner.planning.prepare import Prepared

if TYPE_CHECKING:
    import polars as pl

_COLUMNS: Final = ("item", "prompt", "messages", "cluster")


def notes_on_items(prepared: Prepared) -> list[str]:
    """Return notes of `check` and `plan` on a dataset; at most one sentence."""
    dataset = prepared.dataset
    fields = prepared.recipe.dataset.resolved().get("fields")
    if fields is None or "cluster" in fields or dataset.clusters is not None:
        return []
    items = map(dataset.item, range(len(dataset)))
    return _said((item.key, text_of(item)) for item in items)


def notes_on_frame(items: "pl.LazyFrame", settings: Mapping[str, Any]) -> list[str]:
    """The same of the items that a run has kept.

    Args:
        items: Their frame, of which only the texts that are looked at are read.
        settings: The resolved recipe.
    """
    fields = (settings.get("dataset") or {}).get("fields")
    if fields is None or "cluster" in fields or set(_COLUMNS) - set(items.collect_schema()):
        return []
    if items.select("cluster").collect()["cluster"].is_not_null().any():
        return []
    rows = items.select("item", "prompt", "messages").head(MOST_ITEMS).collect().iter_rows()
    texts = (
        (key, prompt if messages is None else "\n".join(text for _, text in json.loads(messages)))
        for key, prompt, messages in rows
    )
    return _said(texts)


def _said(texts: Iterable[tuple[str, str]]) -> list[str]:
    found = alike_openings(texts)
    return [] if found is None else [found.words()]
