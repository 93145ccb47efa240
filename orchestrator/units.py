"""Units of a run: items x combinations of models, enumerated lazily in a stable order.

A position is `item index * number of combinations + combination index`, so any unit can be made
again from its number alone: what has been done is a bitmap, what is set aside a list of numbers.
The units of an item stand together, companions (answers) first, so that prompts which share a
prefix meet on the server.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from orchestrator import contracts
from orchestrator.ask import (
    AnyAsk,
    ChooseAsk,
    DigestAround,
    GenerateAsk,
    RewardAsk,
    digest,
    item_digest,
)
from orchestrator.contracts.method import Combination, Method, MethodSettings, Stage, frame_of
from orchestrator.contracts.rows import RowContract
from orchestrator.errors import UsageError
from orchestrator.plugins import by_path
from orchestrator.records import Failure, Generation, Item, Unit

# Who takes part is in the positions and in the identities, not in a unit's fingerprint: adding a
# candidate must not make the units of the others stale.
# So is what is computed from rows and does not change them.
_NOT_IN_FINGERPRINT = {"candidates", "judges", "name", "length_control"}


Given = Callable[[Item, AnyAsk], Generation | Failure]
"""Gives the answer of a model that is not asked, because its answers exist already."""


class Items(Protocol):
    """Random access to the items of a dataset."""

    @property
    def fingerprint(self) -> bytes:
        """Hash of the content."""
        ...

    def __len__(self) -> int: ...

    def item(self, index: int) -> Item:
        """The item at a 0-based index."""
        ...

    def content(self, index: int) -> bytes | None:
        """`item_digest` of that item; None where only reading it would tell."""
        ...


class Part(msgspec.Struct, frozen=True):
    """One method of the recipe with its settings, or a companion that came with one.

    Attributes:
        kind: Of the method.
        method: With its settings.
        candidates: The models that it evaluates.
        fingerprint: Of kind, version, name and settings.
        rows: The contract of its rows.
        name: In the column `method` of its rows.
    """

    kind: str
    method: Method[MethodSettings]
    candidates: tuple[str, ...]
    fingerprint: bytes
    rows: RowContract
    name: str = ""

    @property
    def frame(self) -> str:
        """Name of the frame that its rows go to."""
        return frame_of(type(self.method), self.kind)

    @property
    def columns(self) -> dict[str, str]:
        """Columns of its rows in its frame, name to type."""
        return self.rows.columns

    def combinations(self) -> list[Combination]:
        """The models of its units.

        Raises:
            PluginError: If the method returns something else.
        """
        found = self.method.combinations(self.candidates)
        listed = contracts.listed(self.method, "combinations", found, Combination)
        for one in listed:
            is_list = type(one.models) is tuple and len(one.models) > 0
            if is_list and {str} == {*map(type, one.models)} and type(one.judge) is str:
                continue
            said = "must be a tuple of names, and judge a name"
            raise contracts.broken(self.method, "combinations", f"gave {one!r:.80}: models {said}")
        return listed

    def stages(self, candidates: Sequence[str] | None = None) -> list[Stage]:
        """Return the requests that one item needs, for all candidates or for some.

        Raises:
            PluginError: If the method returns something else.
        """
        found = self.method.stages(candidates or self.candidates)
        listed = contracts.listed(self.method, "stages", found, Stage)
        for stage in listed:
            if fault := _fault(stage):
                raise contracts.broken(self.method, "stages", f"gave a stage whose {fault}")
        return listed


def _fault(stage: Stage) -> str:
    """Return what is wrong with the values of a stage; empty for nothing."""
    texts = (stage.name, stage.model, stage.ask, stage.draw, *_tuple(stage.features))
    if not all(isinstance(text, str) for text in texts):
        return "name, model, ask, draw or features are no text"
    counts: tuple[object, ...] = (stage.per_item, stage.max_tokens, stage.top_logprobs)
    if not all(isinstance(n, int) and n >= 0 for n in counts):
        return "per_item, max_tokens or top_logprobs are no whole numbers of at least 0"
    known = (ChooseAsk, GenerateAsk, RewardAsk)
    is_ask = all(isinstance(ask, known) for ask in _tuple(stage.examples))
    return "" if is_ask else "examples are no requests"


def _tuple(values: object) -> tuple[object, ...]:
    """Return a tuple as it is, and one of anything else."""
    return values if isinstance(values, tuple) else (values,)


class Work(msgspec.Struct, frozen=True):
    """The work at a position: the method and the unit it evaluates."""

    part: Part
    unit: Unit


_KEPT_ITEMS = 64
# Longer items are read again each time, so that keeping some never takes much memory.
_KEPT_CHARACTERS = 100_000
# More than are under way: rows come later than answers.
_KEPT_CONTENTS = 4096


def settings_of(config: MethodSettings) -> str:
    """Settings as JSON, without who takes part and what the method is called."""
    return config.model_dump_json(exclude=_NOT_IN_FINGERPRINT)


def make_part(
    kind: str, method: Method[MethodSettings], candidates: Sequence[str], name: str = ""
) -> Part:
    """A part with the fingerprint of method, columns, settings and name (`kind` where left out)."""
    # Where a file lies decides nothing; what stands in it does.
    source = by_path.digest(kind)
    kind = by_path.label(kind) if source else kind
    name = name or kind
    rows = RowContract(kind, method)
    # Rows hold the name, and have these columns: others make new ones.
    columns = tuple(rows.columns.items())
    decided = (kind, method.version, name, settings_of(method.config), columns)
    fingerprint = digest(*decided, *filter(None, [source]))
    return Part(kind, method, tuple(candidates), fingerprint, rows, name)


class Plan:
    """All units of a run.

    Args:
        parts: Companions before the methods that brought them.
        items: The dataset.
        identities: Identity of each model by its name in the recipe.
        seed: The recipe's.
        given: Of the models whose answers exist already.
        clusters: Shape (items,), the cluster of each item as a number; None where each item stands
            alone. What is asked does not depend on it, save by a stopping rule.
        is_new: Shape (items,), whether no item before asks the same; None where all differ.

    Raises:
        UsageError: If a method needs a part of an item that no item has.
    """

    def __init__(  # noqa: PLR0913 (what it is made of, by keyword)
        self,
        parts: Sequence[Part],
        items: Items,
        identities: Mapping[str, bytes],
        seed: int,
        *,
        given: Mapping[str, Given] | None = None,
        clusters: NDArray[np.int32] | None = None,
        is_new: NDArray[np.bool_] | None = None,
    ) -> None:
        self.parts = tuple(parts)
        self.items = items
        self.clusters = clusters
        self.is_new = is_new
        for part in parts:
            for name in sorted(part.method.needs()):
                every = (getattr(items.item(index), name) for index in range(len(items)))
                if len(items) and all(value is None for value in every):
                    raise UsageError(
                        f"{part.kind}: its prompt shows the {name} of each item, and no item has "
                        f"one; set its column with dataset: {{fields: {{{name}: COLUMN}}}}, or use "
                        "another prompt"
                    )
        self.identities = dict(identities)
        self.seed = seed
        self.given = dict(given or {})
        self._combinations: list[tuple[Part, Combination]] = [
            (part, combination) for part in parts for combination in part.combinations()
        ]
        # Of many models there are more pairs than a plan that is only counted need look at: what
        # belongs to one is made when it is asked for.
        n = len(self._combinations)
        self._needs: list[tuple[int, ...] | None] = [None] * n
        self._hashes: list[DigestAround | None] = [None] * n
        self._feeders: dict[str, list[int]] = {}
        for which, (part, combination) in enumerate(self._combinations):
            if part.method.feeds_others:
                self._feeders.setdefault(combination.models[0], []).append(which)
        # The most alternatives that any method observes of a model's answers: a draw is sent once,
        # so it is sent with all that somebody wants to see of it.
        self.observed_top: dict[str, int] = {}
        for part in self.parts:
            for model in part.candidates:
                known = self.observed_top.get(model, 0)
                self.observed_top[model] = max(known, part.method.top_logprobs)
        self._kept: dict[int, Item] = {}
        self._contents: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self.items) * len(self._combinations)

    @property
    def n_per_item(self) -> int:
        """Units of one item."""
        return len(self._combinations)

    @property
    def combinations(self) -> Sequence[tuple[Part, Combination]]:
        """The units of one item in their order, as what each of them evaluates."""
        return self._combinations

    def part(self, position: int) -> Part:
        """The method at a position."""
        return self._combinations[position % len(self._combinations)][0]

    def gate(self, position: int) -> str:
        """The model that the unit asks when all it needs has ended."""
        return self._combinations[position % len(self._combinations)][1].gate

    @cached_property
    def free_gates(self) -> frozenset[str]:
        """The models that units ask which need no other."""
        return frozenset(
            combination.gate
            for part, combination in self._combinations
            if part.method.feeds_others or self._feeders.keys().isdisjoint(combination.models)
        )

    def needs(self, position: int) -> list[int]:
        """Positions of the same item whose units draw what this one asks first."""
        which = position % len(self._combinations)
        found = self._needs[which]
        if found is None:
            part, combination = self._combinations[which]
            models = () if part.method.feeds_others else set(combination.models)
            feeders = [other for model in models for other in self._feeders.get(model, ())]
            found = self._needs[which] = tuple(sorted(feeders))
        return [position - which + other for other in found]

    def fed_by(self, position: int) -> list[int]:
        """Positions of the same item that need this one."""
        which = position % len(self._combinations)
        first = position - which
        part, combination = self._combinations[which]
        if not part.method.feeds_others:
            return []
        return [first + other for other in self._fed.get(combination.models[0], ())]

    @cached_property
    def _fed(self) -> dict[str, list[int]]:
        """By model, the units of an item that need its answers."""
        fed: dict[str, list[int]] = {model: [] for model in self._feeders}
        for which, (part, combination) in enumerate(self._combinations):
            if not part.method.feeds_others:
                for model in set(combination.models) & fed.keys():
                    fed[model].append(which)
        return fed

    def work(self, position: int) -> Work:
        """The method and the unit at a position."""
        index, which = divmod(position, len(self._combinations))
        part, combination = self._combinations[which]
        item = self.item(index)
        return Work(part, Unit(item, combination.models, combination.judge))

    def unit_hash(self, position: int) -> bytes:
        """Fingerprint of the unit: method, settings, item content, identities, seed."""
        index, which = divmod(position, len(self._combinations))
        content = self.items.content(index) or self._contents.get(index)
        if content is None:
            content = item_digest(self.item(index))
            if len(self._contents) >= _KEPT_CONTENTS:
                del self._contents[next(iter(self._contents))]
            self._contents[index] = content
        around = self._hashes[which]
        if around is None:
            part, combination = self._combinations[which]
            names = (*combination.models, combination.judge)
            asked = [self.identities[name] for name in names if name]
            # Names are in the rows, so a renamed model makes new ones.
            decided = (combination.models, combination.judge), asked, self.seed
            around = self._hashes[which] = DigestAround((part.fingerprint,), decided)
        return around.of(content)

    def hash(self) -> bytes:
        """Fingerprint of the whole plan: equal plans have equal units at equal positions."""
        combinations = [
            (part.fingerprint, combination.models, combination.judge)
            for part, combination in self._combinations
        ]
        identities = sorted(self.identities.items())
        return digest(combinations, self.items.fingerprint, len(self.items), identities, self.seed)

    def stages(self) -> list[tuple[Part, Stage]]:
        """Return what one item costs, by part; a draw that two parts ask is of the first alone."""
        seen: set[tuple[str, str, str]] = set()
        found: list[tuple[Part, Stage]] = []
        for part in self.parts:
            own = part.stages()
            found.extend((part, stage) for stage in own if stage.mark not in seen)
            seen.update(stage.mark for stage in own)
        return found

    def item(self, index: int) -> Item:
        """An item; the last few are kept, because its units are opened one after the other."""
        item = self._kept.get(index)
        if item is None:
            item = self.items.item(index)
            if len(item.prompt) <= _KEPT_CHARACTERS:
                if len(self._kept) >= _KEPT_ITEMS:
                    del self._kept[next(iter(self._kept))]
                self._kept[index] = item
        return item
