"""Recipe to plan: dataset opened, identities read, units counted. Starts and sends nothing."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from orchestrator import contracts, plugins
from orchestrator.ask import GenerateAsk
from orchestrator.contracts.method import Analysis, Companion, Method, MethodSettings, clash_in
from orchestrator.dataset import Dataset, DatasetKind
from orchestrator.errors import DatasetError, PluginError, UsageError
from orchestrator.plugins.permission import is_allowed
from orchestrator.recipe.schema import ModelSpec, PluginRef, Recipe
from orchestrator.records import Failure, Sampling
from orchestrator.runner.models.identity import (
    identity_key,
    local_models,
    model_identity,
    open_given,
    refuse_impossible,
)
from orchestrator.runner.planning.similar_items import MOST_ITEMS, check_stopping, shown_of
from orchestrator.units import Given, Part, Plan, make_part, settings_of

if TYPE_CHECKING:
    from orchestrator.runner.planning.reuse import Lenders
    from orchestrator.scheduler.blocks import StoppingRule


def open_dataset(dataset: PluginRef, base: Path = Path(), *, allow_code: bool = False) -> Dataset:
    """Open the dataset of a recipe and check every item.

    Raises:
        DatasetError: If it is missing or malformed, with everything that is wrong.
        PluginError: If there is no such kind, or one that gives no dataset.
    """
    kind = contracts.load(DatasetKind, dataset.kind, allow_code=allow_code)
    opened: object = kind(dataset.config).open(base)
    if not isinstance(opened, Dataset):
        place = contracts.place_of(kind)
        raise PluginError(f"{place}: open(base) returned {type(opened).__name__}, not a Dataset")
    return opened


class Prepared(msgspec.Struct, frozen=True):
    """Everything that a run must know before it begins.

    Attributes:
        recipe: As loaded.
        dataset: Limited as asked.
        models: The models of the recipe, and what methods bring along to compare texts.
        identities: What decides each model's numbers, in words.
        plan: All units.
        allow_code: Whether kinds from outside this project may be imported.
        read_as: What files of items and answers were taken for, in sentences.
        lenders: Other runs that outcomes are copied from, open while they are needed.
        rule: When to ask no more about two models; None where everything is asked.
        retry: Cause of kept failures that are asked again, or "all"; empty for none.
    """

    recipe: Recipe
    dataset: Dataset
    models: dict[str, ModelSpec]
    identities: dict[str, dict[str, str]]
    plan: Plan
    allow_code: bool
    read_as: tuple[str, ...] = ()
    rule: "StoppingRule | None" = None
    lenders: "Lenders | None" = None
    retry: str = ""

    @property
    def systems(self) -> dict[str, str]:
        """System prompts by model."""
        said = {name: self.models[name].entry.system for name in self.identities}
        return {name: system for name, system in said.items() if system}


def prepare(recipe: Recipe, *, allow_code: bool = False) -> Prepared:
    """Open the dataset, read the identities and make the plan.

    Raises:
        DatasetError: If the dataset is missing or malformed.
        LaunchError: If weights are missing.
        PluginError: If code from outside this project raises.
        UsageError: If a server can't do what is asked, or an extra is not installed.
    """
    file = Path(recipe.file)
    allow_code = allow_code or is_allowed(file)
    settings = recipe.settings
    with plugins.blaming():
        dataset = open_dataset(recipe.dataset, file.parent, allow_code=allow_code)
        read_as = [dataset.read_as]
        for one in recipe.analyses:
            analysis = contracts.load(Analysis, one.kind, allow_code=allow_code)
            analysis(one.config).check(dataset.keys, recipe.models)
        if settings.limit is not None:
            dataset = dataset.limit(settings.limit)
        if recipe.shard is not None:
            with recipe.at("statistics", "stop_when"):
                if settings.statistics.stop_when is not None:
                    raise UsageError(
                        "decides from all items what is asked next, and a shard knows only its "
                        "own: leave it out, or run all items at once"
                    )
            with recipe.at("subset"):
                dataset = dataset.shard(*recipe.shard, settings.seed)
        elif settings.subset is not None:
            dataset = dataset.subset(settings.subset, settings.seed)
        parts = parts_of(recipe, allow_code=allow_code)
        combinations = [one for part in parts for one in part.combinations()]
        refuse_impossible(parts, recipe, allow_code=allow_code)
        used = {name for one in combinations for name in (*one.models, one.judge)} - {""}
        specs = {name: spec for name, spec in recipe.models.items() if name in used}
        given = open_given(specs)
        finders = {name: find for name, (find, *_) in given.items()}
        for name, (find, _, said) in given.items():
            lacks = (said, _unanswered(name, find, dataset))
            read_as += [f"{name}: {'; '.join(filter(None, lacks))}"] if any(lacks) else []
        dataset = dataset.with_copies(shown_of(recipe, finders))
        stop_when = settings.statistics.stop_when
        if stop_when is not None:
            # The order on exactly these items rests on each being drawn for itself.
            by_cluster = stop_when.population == "source"
            dataset = dataset.shuffled(settings.seed, by_cluster=by_cluster)
        identities = {}
        for name, spec in specs.items():
            with recipe.at("models", name, "weights"):
                identities[name] = (
                    given[name][1] if name in given else model_identity(spec, allow_code=allow_code)
                )
        local = local_models(parts, recipe, file.parent, allow_code=allow_code)
        identities.update((name, identity) for name, (_, identity) in local.items())
        models = {**recipe.models, **{name: spec for name, (spec, _) in local.items()}}
        if unknown := sorted(used - identities.keys()):
            said = f"a method compares {', '.join(map(repr, unknown))}, which the recipe has not"
            raise PluginError(f"{said}; see its combinations() and judges")
        keys = {name: identity_key(identity) for name, identity in identities.items()}
        clusters, copies = dataset.clusters, dataset.copies
        plan = Plan(
            parts,
            dataset,
            keys,
            settings.seed,
            given=finders,
            clusters=None if clusters is None else clusters.codes,
            is_new=None if copies is None else copies.is_first(),
        )
        rule: StoppingRule | None = None
        if stop_when is not None:
            # It imports the statistics, which no other check of a recipe needs.
            if stop_when.population == "source":
                check_stopping(recipe, dataset)
            stopping = importlib.import_module("orchestrator.runner.planning.stopping")
            rule = stopping.find_rule(recipe, stop_when, plan)
        sentences = tuple(filter(None, read_as))
        return Prepared(recipe, dataset, models, identities, plan, allow_code, sentences, rule)


def _unanswered(name: str, find: Given, dataset: Dataset) -> str:
    """Say how many of the first items have no given answer; they become failed units.

    Raises:
        DatasetError: If there is none to any item.
    """
    n_items, n_found, failed = 0, 0, list[Failure]()
    while n_items < len(dataset) and (n_items < MOST_ITEMS or not n_found):
        item = dataset.item(n_items)
        turns = range(1, len(item.followups) + 2)
        asks = (GenerateAsk(name, item.messages, Sampling(), item.key, turn=turn) for turn in turns)
        missing = [one for ask in asks if isinstance(one := find(item, ask), Failure)]
        n_items, n_found = n_items + 1, n_found + len(turns) - len(missing)
        failed += missing[:1]
    if not n_found:
        why = failed[0].message if failed else "the dataset has no items"
        raise DatasetError(f"model {name!r}: no answer fits an item of {dataset.name}: {why}")
    if not failed:
        return ""
    some = f"{'' if n_items == len(dataset) else 'the first '}{n_items:,}"
    return f"{len(failed):,} of {some} items have no answer, such as: {failed[0].message}"


def parts_of(recipe: Recipe, *, allow_code: bool) -> list[Part]:
    """The methods of the recipe, each after the companions it brings.

    Companions with equal settings are one part over all their models, so that no answer has two
    rows; where a method of the recipe has these settings, it is that one.
    """
    parts: dict[tuple[str, str, str], Part] = {}
    names = {
        (method.kind, settings_of(method.method.config)): method.name
        for method in reversed(recipe.methods)
    }

    def add(kind: str, method: Method[MethodSettings], name: str) -> None:
        for other in contracts.listed(method, "companions", method.companions(), Companion):
            companion = contracts.load(Method, other.kind, allow_code=allow_code)(other.config)
            taken = other.kind in names.values()
            free = f"{other.kind} ({name})" if taken else other.kind
            called = names.setdefault((other.kind, settings_of(other.config)), free)
            add(other.kind, companion, called)
        key = (kind, settings_of(method.config), name)
        before = parts[key].candidates if key in parts else ()
        models = dict.fromkeys((*before, *recipe.candidates(method)))
        parts[key] = make_part(kind, method, tuple(models), name)

    for reference in recipe.methods:
        add(reference.kind, reference.method, reference.name)
    # Rows of one frame have the same columns and roles, also those of companions
    first: dict[str, Part] = {}
    for part in parts.values():
        other = first.setdefault(part.frame, part)
        if clash := clash_in(part.frame, type(other.method), type(part.method)):
            raise PluginError(f"methods {other.kind!r} and {part.kind!r} {clash}")
    return list(parts.values())


def describe_change(
    before: Mapping[str, Any] | None, identities: Mapping[str, dict[str, str]], recipe: Recipe
) -> list[str]:
    """Describe the changes since the revision before, each in a short phrase.

    `before` is the `orchestrator` part of the last revision file, None for the first call.
    """
    if before is None:
        return []
    changes = []
    old_models: dict[str, Any] = before.get("identities", {})
    for name, identity in identities.items():
        if name not in old_models:
            changes.append(f"model {name} added")
        elif old_models[name] != identity:
            changes.append(f"model {name} changed")
    changes.extend(f"model {name} removed" for name in old_models if name not in identities)
    old: dict[str, Any] = before.get("recipe", {})
    new = recipe.resolved()
    judges = [judge for reference in recipe.methods for judge in reference.method.judges]
    plain = ("dataset", "limit", "subset", "seed")
    changes.extend(f"{key} changed" for key in plain if old.get(key) != new.get(key))
    if old.get("methods") != new.get("methods"):
        who = f" (judge: {', '.join(judges)})" if judges else ""
        changes.append(f"{method_changes(old.get('methods'), new.get('methods'))}{who}")
    return changes


def method_changes(old: object, new: object) -> str:
    """Name the settings of the methods that differ, by dotted path."""
    paths: list[str] = []

    def walk(left: object, right: object, path: str) -> None:
        if isinstance(left, dict) and isinstance(right, dict):
            for key in sorted({*left, *right}):
                walk(left.get(key), right.get(key), f"{path}.{key}" if path else str(key))
        elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
            for index, (one, other) in enumerate(zip(left, right, strict=True)):
                walk(one, other, f"{path}.{index}" if len(left) > 1 else path)
        elif left != right:
            paths.append(path or "methods")

    walk(old, new, "")
    return f"{', '.join(paths)} changed"
