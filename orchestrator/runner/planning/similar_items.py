"""Items that ask the same, or nearly, where the recipe does not say that they belong together."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from orchestrator import numbers
from orchestrator.dataset import Dataset
from orchestrator.errors import UsageError
from orchestrator.recipe.schema import Recipe
from orchestrator.runner.planning.near_copies import MOST_ITEMS, NearCopies, near_copies, text_of

if TYPE_CHECKING:
    import polars as pl

    from orchestrator.runner.planning.prepare import Prepared

_TEXTS: Final = ("item", "prompt", "messages")
_COLUMNS: Final = (*_TEXTS, "cluster", "same_as")


def notes_on_items(prepared: "Prepared") -> list[str]:
    """Return notes of `check` and `plan` on a dataset, a sentence or two each."""
    dataset, n = prepared.dataset, len(prepared.dataset)
    n_prompts = n if dataset.copies is None else len(set(dataset.copies.codes.tolist()))
    found = _near_copies(dataset, prepared.recipe.dataset.resolved().get("fields"))
    return _said(n, n_prompts, found)


def notes_on_frame(items: "pl.LazyFrame", settings: Mapping[str, Any]) -> list[str]:
    """The same of the items that a run has kept.

    Args:
        items: Their frame, of which only the texts that are looked at are read.
        settings: The resolved recipe.
    """
    # Older versions wrote fewer columns.
    if set(_COLUMNS) - set(items.collect_schema()):
        return []
    about = items.select("cluster", "same_as").collect()
    fields = (settings.get("dataset") or {}).get("fields")
    found = None
    if _is_open(fields) and about["cluster"].is_null().all():
        first = about["same_as"].is_null()
        n_copies = len(about) - about["same_as"].null_count()
        rows = items.select(_TEXTS).head(MOST_ITEMS + n_copies).collect()
        rows = rows.filter(first.head(len(rows))).head(MOST_ITEMS)
        found = near_copies(
            (
                key,
                prompt if messages is None else "\n".join(text for _, text in json.loads(messages)),
            )
            for key, prompt, messages in rows.iter_rows()
        )
    return _said(len(about), about["same_as"].null_count(), found)


def check_stopping(recipe: Recipe, dataset: Dataset) -> None:
    """See that a rule which takes prompts for independent draws may do so.

    Raises:
        UsageError: If many items are nearly the same, and the recipe does not say which belong
            together.
    """
    found = _near_copies(dataset, recipe.dataset.resolved().get("fields"))
    if found is not None:
        name = "adaptive_pairs" if recipe.settings.statistics.stop_when is None else "stop_when"
        raise UsageError(
            f"statistics.{name} would declare wrong orders: it takes prompts for independent, but "
            f"{found.words()}"
        )


def _near_copies(dataset: Dataset, fields: object) -> NearCopies | None:
    if not _is_open(fields) or dataset.has_named_clusters:
        return None
    first = None if dataset.copies is None else dataset.copies.is_first()
    items = (dataset.item(at) for at in range(len(dataset)) if first is None or first[at])
    return near_copies((item.key, text_of(item)) for item in items)


def _is_open(fields: object) -> bool:
    """Tell whether a recipe could say which items belong together, and does not."""
    return isinstance(fields, Mapping) and "cluster" not in fields


def _said(n_items: int, n_prompts: int, found: NearCopies | None) -> list[str]:
    copies: Iterable[str] = ()
    if n_prompts < n_items:
        copies = (
            f"{numbers.count(n_items - n_prompts)} of {numbers.counted(n_items, 'item')} ask the "
            f"same as an item before: they count as {numbers.counted(n_prompts, 'prompt')}",
        )
    return [*copies, *(() if found is None else (found.words(),))]
