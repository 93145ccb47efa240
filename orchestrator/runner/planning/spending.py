"""Spending of a run, kept in its store between calls."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from orchestrator.errors import UsageError
from orchestrator.recipe import schema
from orchestrator.runner.planning.budget import Budget, Most, Spent
from orchestrator.runner.planning.prepare import Prepared
from orchestrator.store import Store, damaged

SPENT = "spent"
"""Key of what a run spent in its store."""


def keep_spent(store: Store, budget: Budget, *, is_ending: bool = False) -> None:
    """Write down what is spent, and what may be until the next time."""
    budget.pledge(is_ending=is_ending)
    _keep(store, budget.spent)


def _keep(store: Store, spent: Spent) -> None:
    store.set_meta(SPENT, msgspec.json.encode(spent).decode())


def budget_of(prepared: Prepared, store: Store) -> Budget:
    """Return the bounds of a recipe, with what earlier calls spent.

    Raises:
        UsageError: If a bound on money can't be kept, because a model has no price.
        StoreError: If what was spent can't be read.
    """
    bounds = prepared.recipe.settings.budget
    unpriced = [name for name in prepared.identities if prepared.models[name].price is None]
    if bounds.money is not None and unpriced:
        raise UsageError(
            f"budget.money needs prices: {', '.join(unpriced)} has none; set `price` for each "
            "model (0 if free)"
        )

    def keep(spent: Spent) -> None:
        _keep(store, spent)
        store.flush()

    return Budget(bounds, _spent(store), _prices(prepared), keep)


def shares(recipe: schema.Recipe, n: int, n_at_once: int) -> list[str]:
    """Return the settings that give each of N shards its part of a recipe's bounds.

    Each has the Nth part of the `budget`, for all spend from it, and of requests per minute what
    those that run at a time leave to one. Whole numbers are rounded down.

    Raises:
        UsageError: If less than one request or token is left for a shard.
    """
    found = []
    for name, bound in recipe.settings.budget.model_dump(exclude_none=True).items():
        part = bound // n if isinstance(bound, int) else bound / n
        if not part and bound:
            raise UsageError(f"budget.{name}: {bound} leaves nothing for each of {n} shards")
        found.append(f"budget.{name}={part}")
    for model in recipe.models.values():
        rate = model.limits.requests_per_minute
        if rate is not None and n_at_once > 1:
            found.append(f"models.{model.name}.limits.requests_per_minute={rate / n_at_once}")
    return found


def money_spent(prepared: Prepared, store: Store) -> float | None:
    """Return what all calls have spent; None where no model has a price."""
    return Budget(schema.Budget(), _spent(store), _prices(prepared)).money


def _prices(prepared: Prepared) -> dict[str, schema.Price]:
    models = prepared.models
    return {name: paid for name, spec in models.items() if (paid := spec.paid) is not None}


def _spent(store: Store) -> Spent:
    return (spent_by(store) or Spent()).after_its_call()


def spent_by(store: Store) -> Spent | None:
    """Return what all calls of a run spent; None where nothing was kept.

    Raises:
        StoreError: If that can't be read.
    """
    return _decoded(store.get_meta(SPENT), store.path)


def add_spent(texts: Mapping[Path, str | None]) -> str | None:
    """Return what several runs spent together, as a store keeps it; None where none kept it.

    Raises:
        StoreError: If that can't be read.
    """
    found = [spent for path, text in texts.items() if (spent := _decoded(text, path))]
    if not found:
        return None
    ended = [spent.after_its_call() for spent in found]
    total = Spent(
        requests=sum(one.requests for one in ended),
        prompt_tokens=sum(one.prompt_tokens for one in ended),
        completion_tokens=sum(one.completion_tokens for one in ended),
        money=sum(one.money for one in ended),
        hours=sum(one.hours for one in ended),
        lost=Most(
            sum(one.lost.requests for one in ended),
            sum(one.lost.tokens for one in ended),
            sum(one.lost.money for one in ended),
        ),
    )
    return msgspec.json.encode(total).decode()


def _decoded(text: str | None, path: Path) -> Spent | None:
    try:
        return None if text is None else msgspec.json.decode(text, type=Spent)
    except msgspec.MsgspecError as error:
        raise damaged(f"{path}: what was spent is", error) from error
