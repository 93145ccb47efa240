"""The requests of an item with their answers, and the tokens of their texts."""

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl
import yaml

from orchestrator.ask import AnyAsk, GenerateAsk, ScoreAsk
from orchestrator.columns import ITEMS
from orchestrator.disk.paths import is_foreign
from orchestrator.driver import Driver
from orchestrator.errors import RunDirectoryError, UsageError, nearest
from orchestrator.frames import FrameFiles
from orchestrator.recipe.load import loads
from orchestrator.records import Failure, Generation, Item, Message, Outcome, Scored, TopLogprobs
from orchestrator.runner.models.identity import identity_key, open_given, server_label
from orchestrator.runner.planning.prepare import parts_of
from orchestrator.runner.planning.revisions import last_revision
from orchestrator.runner.results.token_texts import Speller
from orchestrator.store import RunDirectory, Store
from orchestrator.units import Plan, Work

# The requests of an item and their answers: its units, replayed over the store.
#
# A run is resumed by calling its methods again over what the store holds (`orchestrator.driver`).
# Here the same is done for the units of one item, and what they ask is written down. Nothing is
# sent: a unit that asks what the store does not hold ends there.


_TOGETHER: Final = 500
_KEPT: Final = 2


Asked = tuple[AnyAsk, Outcome | Failure]
"""One thing that was asked, and the answer."""

Played = tuple[Work, list[Asked]]
"""A unit of an item and its method, with what was asked in its order."""


class Replay:
    """The plan of a run, made of what the run wrote down about itself.

    Raises:
        OrchestratorError: If the plan can't be made again here.
    """

    def __init__(self, path: Path, frames: FrameFiles, *, allow_code: bool = False) -> None:
        if is_foreign(path):
            raise RunDirectoryError(
                "this run belongs to another user; the templates of its recipe are not rendered"
            )
        directory = RunDirectory.open(path)
        revision = last_revision(directory) or {}
        self._store_path = directory.store_path
        settings = revision.get("recipe")
        if not settings:
            raise RunDirectoryError(f"{path}: this run has no recipe")
        # A resolved recipe is a recipe; its paths are absolute.
        text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
        self.recipe = loads(text.encode(), path / "recipe.yaml", allow_code=allow_code)
        self.identities: Mapping[str, Mapping[str, str]] = revision.get("identities") or {}
        items = self._items = StoredItems(frames)
        specs = self.recipe.models
        given = open_given(specs)
        keys = {name: identity_key(found) for name, found in self.identities.items()}
        parts = parts_of(self.recipe, allow_code=allow_code)
        finders = {name: find for name, (find, *_) in given.items()}
        self._plan = Plan(parts, items, keys, self.recipe.settings.seed, given=finders)
        self._systems = {name: one.entry.system for name, one in specs.items() if one.entry.system}

    @cached_property
    def speller(self) -> Speller:
        """Spells the tokens of the run, as far as it had written them down by now.

        Raises:
            OrchestratorError: If the store can't be read.
        """
        with Store.open(self._store_path, read_only=True) as store:
            texts = {
                model: store.tokens(server_label(model, identity_key(identity)))
                for model, identity in self.identities.items()
            }
        return Speller(self.recipe, texts)

    def index(self, item: str) -> int:
        """Return the place of an item, by its key.

        Raises:
            UsageError: If there is no such item.
        """
        return self._items.index(item)

    def units(self, index: int) -> list[Played]:
        """Return the units of an item with their requests, as far as the store holds them.

        Raises:
            OrchestratorError: If the store can't be read.
        """
        n = self._plan.n_per_item
        found: dict[int, list[Asked]] = {at: [] for at in range(index * n, (index + 1) * n)}
        with Store.open(self._store_path, read_only=True) as store:
            driver = Driver(
                self._plan,
                store.get,
                self._systems,
                trace=lambda _, ask, at, outcome: found[at].append((ask, outcome)),
            )
            for position in found:
                driver.open(position)
            driver.close()
        return [(self._plan.work(position), asked) for position, asked in found.items()]

    def tokens(self, item: str) -> pl.DataFrame:
        """Return the tokens of all texts that were drawn or scored; see `Result.tokens`.

        Raises:
            UsageError: If there is no such item.
            OrchestratorError: If the store can't be read.
        """
        units = self.units(self.index(item))
        rows = [row for work, asked in units for row in _rows(work, asked, self.speller)]
        return pl.DataFrame(rows, schema=_SCHEMA)


class StoredItems:
    """The items of a run, read back from its frame of items.

    Raises:
        RunDirectoryError: If there is no such frame.
    """

    name = "items of the run"
    fingerprint = b""

    def __init__(self, frames: FrameFiles) -> None:
        if ITEMS not in frames:
            raise RunDirectoryError("this run has no frame of items; run its recipe again")
        self._scan = frames.scan(ITEMS)
        self._n = int(self._scan.select(pl.len()).collect().item())
        self._kept: OrderedDict[int, list[dict[str, Any]]] = OrderedDict()

    def __len__(self) -> int:
        return self._n

    def index(self, key: str) -> int:
        """Return the 0-based index of an item.

        Raises:
            UsageError: If there is no such item.
        """
        keys = self._scan.select("item").collect().get_column("item")
        found = keys.index_of(key)
        if found is None:
            raise UsageError(f"no item {key!r} in this run{nearest(key, keys)}")
        return found

    def content(self, index: int) -> None:
        """Not known without reading the item."""

    def item(self, index: int) -> Item:
        """The item at a 0-based index."""
        part, place = divmod(index, _TOGETHER)
        if part not in self._kept:
            if len(self._kept) >= _KEPT:
                self._kept.popitem(last=False)
            rows = self._scan.slice(part * _TOGETHER, _TOGETHER).collect()
            self._kept[part] = rows.to_dicts()
        row = self._kept[part][place]
        messages = row.get("messages")
        return Item(
            key=row["item"],
            messages=(Message("user", row["prompt"]),)
            if messages is None
            else msgspec.json.decode(messages, type=tuple[Message, ...]),
            followups=_listed(row["followups"], tuple[str, ...]),
            reference=row["reference"],
            references=_listed(row["references"], tuple[str | None, ...]),
            category=row["category"],
            fields=msgspec.json.decode(row["fields"]) if row["fields"] else {},
        )


def _listed(text: str | None, kind: Any) -> Any:  # noqa: ANN401 (what the type says)
    return msgspec.json.decode(text, type=kind) if text else ()


_SCHEMA: Final[dict[str, pl.DataType | type[pl.DataType]]] = {
    "method": pl.String,
    "model": pl.String,
    "request": pl.Int64,
    "kind": pl.String,
    "turn": pl.Int64,
    "repeat": pl.Int64,
    "position": pl.Int64,
    "token": pl.String,
    "id": pl.Int64,
    "logprob": pl.Float64,
    "alternatives": pl.List(pl.Struct({"token": pl.String, "id": pl.Int64, "logprob": pl.Float64})),
    "missing": pl.List(pl.String),
}


class Tokens(NamedTuple):
    """The tokens of a text.

    Attributes:
        ids: As the server numbers them; None where it gives no ids.
        pieces: The part of the text that each adds; None where unknown.
    """

    ids: list[int | None]
    pieces: list[str] | None


Alternative = tuple[int, str | None, float]
"""One of the most likely tokens at a position: its id, its text as it stands alone, its ln p.

The id is below 0 where there is none, -1 where the text is not known either; then that is None."""


def tokens_of(
    ask: GenerateAsk | ScoreAsk, made: Generation | Scored, speller: Speller
) -> Tokens | None:
    """The tokens of a text; None where nothing is known of them."""
    if isinstance(made, Scored):
        text = ask.text if isinstance(ask, ScoreAsk) else ""
        ids = made.token_ids.tolist()
        return Tokens(ids, speller.pieces(ask.model, ids, text))
    counted = made.logprobs if made.token_ids is None else made.token_ids
    if counted is None:
        return None
    n = len(counted)
    offsets = None if made.offsets is None or len(made.offsets) != n else made.offsets
    if made.token_ids is not None:
        ids = made.token_ids.tolist()
        return Tokens(ids, speller.pieces(ask.model, ids, made.text, offsets))
    named = [] if made.named is None else made.named.tolist()
    pieces = None
    if offsets is not None or len(named) == n:
        pieces = speller.pieces(ask.model, named, made.text, offsets)
    return Tokens([None] * n, pieces)


def alternatives(model: str, top: TopLogprobs, speller: Speller) -> Iterator[list[Alternative]]:
    """The alternatives that were listed at each position, most likely first."""
    known: dict[int, str | None] = {}
    for numbers, logprobs in zip(top.token_ids.tolist(), top.logprobs.tolist(), strict=True):
        row = []
        for number, logprob in zip(numbers, logprobs, strict=True):
            if not math.isfinite(logprob):
                continue
            if number not in known:
                known[number] = speller.one(model, number)
            row.append((number, known[number], logprob))
        yield row


def _rows(work: Work, asked: Sequence[Asked], speller: Speller) -> Iterator[dict[str, Any]]:
    for request, (ask, made) in enumerate(asked):
        if not isinstance(ask, GenerateAsk | ScoreAsk) or not isinstance(made, Generation | Scored):
            continue
        found = tokens_of(ask, made, speller)
        is_spelled = found is None or found.pieces is not None
        about = {
            "method": work.part.name,
            "model": ask.model,
            "request": request,
            "kind": "drawn" if isinstance(ask, GenerateAsk) else "scored",
            "turn": ask.turn if isinstance(ask, GenerateAsk) else None,
            "repeat": ask.repeat if isinstance(ask, GenerateAsk) else None,
            "missing": speller.missing(ask, made, is_spelled=is_spelled),
        }
        if found is None:
            yield about
            continue
        top = None if made.top is None else list(alternatives(ask.model, made.top, speller))
        logprobs = None if made.logprobs is None else made.logprobs.tolist()
        for at, token_id in enumerate(found.ids):
            yield about | {
                "position": at,
                "token": None if found.pieces is None else found.pieces[at],
                "id": token_id,
                "logprob": logprobs[at] if logprobs and math.isfinite(logprobs[at]) else None,
                "alternatives": None
                if top is None
                else [
                    {"token": token, "id": number if number >= 0 else None, "logprob": logprob}
                    for number, token, logprob in top[at]
                ],
            }
