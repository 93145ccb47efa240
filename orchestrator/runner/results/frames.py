"""Rows of a plan as frames: exported to Parquet once, read back from there."""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from orchestrator import numbers
from orchestrator.ask import digest
from orchestrator.clusters import Clusters, clusters_of
from orchestrator.columns import ITEMS
from orchestrator.contracts.context import ROWS_AT_ONCE, answer_slices, ranked_in
from orchestrator.dataset import Dataset
from orchestrator.disk import files
from orchestrator.errors import StoreError, on_disk_error
from orchestrator.frames import FrameFiles, counted_by, names_of, slices_of, write_parquet
from orchestrator.probing.checks import CLOSING, OPENING, REMEDY
from orchestrator.ranking.analysis import RankingAnalysis, analyse_ranking
from orchestrator.ranking.judged import Table, has_modes, judgments, tabulate
from orchestrator.records import GIVEN, Message
from orchestrator.report.brief import CUT, THINKING
from orchestrator.runner.event_loop import DeferredInterrupts
from orchestrator.runner.models.records import likeness_notes
from orchestrator.runner.results.stored import Record, schemas_of, server_notes
from orchestrator.statistics.results import Thresholds
from orchestrator.statistics.trust import DEFAULTS
from orchestrator.store import FailureCount, RunDirectory, Store


def read_mark(path: Path) -> str | None:
    """A mark; None where there is none, or what is there says nothing: it is written anew."""
    try:
        return files.read(path).decode()
    except (OSError, UnicodeDecodeError):
        return None


def is_marked(path: Path, mark: str, paths: Sequence[Path]) -> bool:
    """Return whether a mark says this of files, and they are as they were written."""
    said, *sums = (read_mark(path) or "").split(" ")
    if said != mark or len(sums) != len(paths):
        return False
    try:
        return all(map(files.has_checksum, paths, sums))
    except OSError:
        return False


def write_mark(path: Path, mark: str, paths: Iterable[Path]) -> None:
    """Write down that files are what a mark says, with their checksums.

    Raises:
        StoreError: If it can't be written.
    """
    with on_disk_error(f"{path} cannot be written", StoreError):
        files.write(path, " ".join([mark, *map(files.checksum, paths)]).encode(), own=True)


# What a reader must know of the compared answers: cut, perhaps not whole, empty, thinking.
#
# Such answers are judged as they are; only the reader can say if a comparison of them is meant.


_WANTED: Final = ("item", "model", "text", "finish_reason")
_START: Final = 32
_TEXT: Final = pl.col("text").str
# The same as `mark_in`, of a column.
_THINKS: Final = _TEXT.contains_any([*CLOSING]) | pl.any_horizontal(
    _TEXT.head(_START).str.strip_chars_start().str.starts_with(mark) for mark in OPENING
)
_IS_EMPTY: Final = _TEXT.strip_chars() == ""
_CUT: Final = f"{CUT}, and judged as far as they go: "
_EMPTY: Final = "answers without a text, and judged as such: "
_ALIKE: Final = "answers of one and the same text to different items: "
_THINKING: Final = f"{THINKING}, which judges read: "
_KINDS: Final = (_CUT, _EMPTY, _ALIKE, _THINKING)
_WHOLE: Final = ("stop", GIVEN)
_SHOWN: Final = 3
# Items with the same answer that are said, if they are half of all: fewer may be chance.
_SAME: Final = 5


def answer_notes(frames: Mapping[str, pl.DataFrame]) -> list[str]:
    """Return a line for each kind: cut, of unknown ends, of no text, all alike, and with thinking.

    Answers that failed are no answers.
    """
    answered: Counter[str] = Counter()
    same: Counter[tuple[str, str]] = Counter()
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for rows in answer_slices(frames, _WANTED):
        told = rows.filter(pl.col("text").is_not_null())
        counted = told.group_by("model", "finish_reason", maintain_order=True).agg(
            pl.len(), _THINKS.sum().alias("thinking"), _IS_EMPTY.sum().alias("empty")
        )
        for model, reason, n, n_thinking, n_empty in counted.iter_rows():
            answered[model] += n
            found[_THINKING][model] += n_thinking
            found[_EMPTY][model] += n_empty
            if reason is not None and reason not in _WHOLE:
                other = f"answers that ended by {reason!r}, which may not be whole: "
                found[_CUT if reason == "length" else other][model] += n
        texts = told.filter(~_IS_EMPTY).group_by("model", "text").agg(pl.len(), "item")
        texts = texts.filter(pl.col("item").list.n_unique() >= _SAME).sort("len", "model", "text")
        same.update({(model, text): n for model, text, n, _ in texts.iter_rows()})
    for (model, _), n in same.items():
        found[_ALIKE][model] += n if 2 * n >= answered[model] else 0
    ends = [said for said in found if said not in _KINDS][:_SHOWN]
    shares = {said: _shares(found[said], answered) for said in (_CUT, *ends, *_KINDS[1:])}
    after = {_THINKING: f"; {REMEDY}"}
    return [said + shown + after.get(said, "") for said, shown in shares.items() if shown]


def _shares(found: Counter[str], answered: Counter[str]) -> str:
    shown = [f"{model} {n:,} of {answered[model]:,}" for model, n in found.items() if n]
    more = f" and {numbers.counted(len(shown) - _SHOWN, 'more model')}"
    return ", ".join(shown[:_SHOWN]) + more * (len(shown) > _SHOWN)


EXPORTED = ".exported"
"""Mark of the frames that were written from the store."""
RANKINGS: Final = ".rankings"
NUMBERS: Final = ".numbers"
NOTES: Final = ".notes"
KEPT: Final = (RANKINGS, NUMBERS, NOTES)
"""Numbers and notes that calls have computed, each under a digest of all it comes from."""
# Columns that tell the unit of a row.
_OF_UNIT = ("method", "item", "model", "model_a", "model_b", "baseline", "judge", "scorer")
# Followups, references by turn, the other columns, and a conversation that is more than one
# question are JSON text: they differ by dataset. The place in the dataset counts from 0, and
# `same_as` is the key of the first item that asks the same, where that is another one.
ITEM_COLUMNS = dict.fromkeys(
    ("item", "category", "prompt", "followups", "reference", "references", "fields", "messages",
     "cluster", "place", "same_as"), "str",
)  # fmt: skip


def failed_units(frames: FrameFiles) -> int:
    """Return how many units have a failed row.

    The rows of a unit are told by its method, item and models: one unit has a row a turn, a pair
    or a sample.
    """
    n_failed = 0
    for name in frames:
        names = names_of(frames, name)
        if "status" not in names:
            continue
        of_unit = [column for column in _OF_UNIT if column in names] or ["status"]
        rows = frames.scan(name).filter(pl.col("status") != "ok").select(of_unit)
        failed = rows if of_unit == ["status"] else rows.unique()
        n_failed += failed.select(pl.len()).collect(engine="streaming").item()
    return n_failed


_MOST_READ: Final = 20_000
_OUT_OF_REACH: Final = ("refused", "unreachable", "dead_server")


def failures(
    frames: Mapping[str, pl.DataFrame], record: Record, *, n_left: int
) -> list[FailureCount]:
    """Return the failures of the rows as they are now, by the model to blame.

    A judgment without an answer is no failure of its judge; what was recorded may be mended. The
    `n_left` units without a row may wait for a server that was out of reach.
    """
    rows: list[dict[str, str | None]] = []
    wanted = (*_OF_UNIT, "status", "cause", "message")
    for name in frames:
        parts = slices_of(frames, name, wanted, ROWS_AT_ONCE)
        failed = (part.filter(pl.col("status") != "ok") for part in parts if "status" in part)
        # So many of a frame have every cause there is.
        rows += islice(chain.from_iterable(one.iter_rows(named=True) for one in failed), _MOST_READ)
    lost = {(row.get("item"), row.get("model")) for row in rows if not row.get("judge")}
    found: dict[FailureCount, None] = {}
    for row in rows:
        sides = {(row.get("item"), row.get(side)) for side in ("model", "model_a", "model_b")}
        if not row.get("judge") or not sides & lost:
            model, cause = row.get("judge") or row.get("model") or "", row.get("cause") or ""
            of = [one for one in record.failures if one.cause == cause]
            if "answers" in record.recipe.get("models", {}).get(model, ()):
                of = [FailureCount._make((False, model, cause, 0, 1, row.get("message") or ""))]
            # Of neither a judge nor a candidate, it is another model's that the method asks.
            found |= dict.fromkeys([one for one in of if one.model == model] or of)
    waiting = (one for one in record.failures if n_left and one.cause in _OUT_OF_REACH)
    return [*found | dict.fromkeys(waiting)]


def export(store: Store, folder: Path, late: DeferredInterrupts | None = None) -> dict[str, Path]:
    """Write each frame of the current plan to `<frame>.parquet`, unless it is up to date.

    `late` is looked at between units: a Ctrl-C leaves the frame that was there before.

    Raises:
        StoreError: If a file can't be written.
        KeyboardInterrupt: As `late` says.
    """
    plan_id, schemas = store.current_plan, schemas_of(store)
    paths = {frame: folder / f"{frame}.parquet" for frame in schemas}
    if plan_id is None or is_exported(store, folder):
        return paths
    mark = version(store)
    store.check_places(plan_id)
    n_read = 0

    def rows(frame: str) -> Iterator[tuple[Any, ...]]:
        nonlocal n_read
        for unit in store.iter_rows(plan_id, frame):
            (late or DeferredInterrupts()).look()
            n_read += 1
            yield from unit.rows

    for frame, schema in schemas.items():
        for _ in write_parquet(schema, rows(frame), paths[frame]):
            pass
    if paths:
        store.check_places(plan_id, n_read)
        write_mark(folder / EXPORTED, mark, paths.values())
    return paths


def is_exported(store: Store, folder: Path) -> bool:
    """Return True if a folder holds all frames of the current plan as they are in the store."""
    paths = [folder / f"{frame}.parquet" for frame in schemas_of(store)]
    return is_marked(folder / EXPORTED, version(store), paths)


def version(store: Store) -> str:
    """Changes whenever rows of the current plan come, or another plan is the current one."""
    plan_id = store.current_plan
    return "" if plan_id is None else f"{plan_id}:{store.units_stamp(plan_id)}"


def export_items(dataset: Dataset, run_dir: RunDirectory) -> Generator[None]:
    """Write the items with all columns of the dataset to `results/items.parquet`, once.

    It goes by steps of some milliseconds, and changes nothing if it is closed before its end.

    Raises:
        StoreError: If the file can't be written.
    """
    path = items_path(run_dir)
    clusters = "" if dataset.clusters is None else dataset.clusters.names.hex()
    copies = "" if dataset.copies is None else digest(dataset.copies.codes.tobytes()).hex()
    about = f"{len(dataset)}:{len(ITEM_COLUMNS)}:{clusters}:{copies}:{dataset.order_digest.hex()}"
    mark = f"{dataset.fingerprint.hex()}:{about}"
    written = run_dir.results / f".{ITEMS}"
    if not is_marked(written, mark, [path]):
        # Without a mark, who reads the file meanwhile does not take it for damaged.
        with contextlib.suppress(OSError):
            written.unlink()
        yield from write_parquet(ITEM_COLUMNS, _items(dataset), path)
        write_mark(written, mark, [path])


def items_path(run_dir: RunDirectory) -> Path:
    """Return where the frame of items is."""
    return run_dir.results / f"{ITEMS}.parquet"


def _items(dataset: Dataset) -> Iterator[tuple[str | None, ...]]:
    copies = None if dataset.copies is None else dataset.copies.codes.tolist()
    first: dict[int, str] = {}
    for index in range(len(dataset)):
        item = dataset.item(index)
        same_as = item.key if copies is None else first.setdefault(copies[index], item.key)
        yield (
            item.key,
            item.category,
            item.prompt,
            _json(item.followups) if item.followups else None,
            item.reference,
            _json(item.references) if item.references else None,
            _json(item.fields),
            None if item.messages == (Message("user", item.prompt),) else _json(item.messages),
            item.cluster,
            str(dataset.place(index)),
            None if same_as == item.key else same_as,
        )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def notes_of(store: Store, record: Record) -> list[str]:
    """Return notes for readers of the tables on the servers that answered."""
    return [*server_notes(record.servers), *likeness_notes(store, record.keys)]


def rows_by_epoch(frames: Mapping[str, pl.DataFrame]) -> dict[str, dict[int, int]]:
    """Count the rows of each method by epoch of servers; empty if there is only one epoch.

    A row stands at the highest epoch among the outcomes that it rests on.
    """
    found: dict[str, dict[int, int]] = {}
    for name in frames:
        if "server_epoch" not in names_of(frames, name):
            continue
        counts: Counter[tuple[str, int]] = Counter()
        for row in counted_by(frames, name, ("method", "server_epoch")):
            counts[row["method"], row["server_epoch"] or 0] += row["len"]
        for method, epoch in sorted(counts):
            found.setdefault(method, {})[epoch] = counts[method, epoch]
    return found if len({epoch for rows in found.values() for epoch in rows}) > 1 else {}


def analyse(
    frames: Mapping[str, pl.DataFrame],
    *,
    confidence_level: float,
    thresholds: Thresholds = DEFAULTS,
) -> list[RankingAnalysis]:
    """The ranking of each method's judges, and over its judges where there are several."""
    found = []
    for source, judges, table in _ranked(frames, clusters_of(frames)):
        # Where the rows name no judge, all of them make one ranking.
        wanted: list[str | None] = [*judges] if len(judges) == 1 else [*judges, None]
        for judge in wanted:
            analysis = analyse_ranking(
                table, judge=judge, confidence_level=confidence_level, thresholds=thresholds
            )
            found.append(replace(analysis, source=source))
    return found


def _ranked(
    frames: Mapping[str, pl.DataFrame], clusters: Clusters
) -> Iterator[tuple[str, list[str], Table]]:
    """Names of methods, their judges, and their pairwise judgments."""
    for name, pairs in ranked_in(frames).items():
        judges: dict[str, list[str]] = {}
        n_rows = 0
        there = names_of(frames, name)
        by = [column for column in ("method", pairs.judge) if column in there]
        for pair in counted_by(frames, name, by) if by else ():
            n_rows += pair["len"]
            of_method = judges.setdefault(pair.get("method", ""), [])
            of_method += [pair[pairs.judge]] if pairs.judge in there else []
        modes = has_modes(frames, name, pairs)
        for method, of_method in judges.items():
            rows_of_method = _rows_of(judgments(frames, name, pairs), method, clusters)
            yield str(method), of_method, tabulate(rows_of_method, n_rows, has_modes=modes)


def _rows_of(
    slices: Iterable[pl.DataFrame], method: str, clusters: Clusters
) -> Iterator[pl.DataFrame]:
    for rows in slices:
        mine = rows.filter(pl.col("method") == method) if "method" in rows.columns else rows
        yield clusters.of(mine) if clusters.are_known else mine
