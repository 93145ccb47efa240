"""Salvage of a damaged store: all that can be read is copied into a new one.

Outcomes are what was paid for; plans and units are made again from them by the next call, which
sends nothing for that. An outcome is kept only if its checksums are right.

The first page of a store is made anew where it is damaged: without it SQLite reads nothing. It says
where each table begins. All stores make the same tables in the same order, so those of a new store
begin on the same pages.
"""

import contextlib
import shutil
import sqlite3
import struct
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from orchestrator.columns import decoded, schema_fault
from orchestrator.errors import OrchestratorError, RunDirectoryError, StoreError, on_disk_error
from orchestrator.records import Failure
from orchestrator.store import blobs, codec, interning, reading, schema, values
from orchestrator.store.codec import Packed
from orchestrator.store.connections import Tables
from orchestrator.store.entries import (
    FRAMES,
    NAME,
    ROLES,
    SERVER,
    TOKENS,
    Entry,
    MetaEntry,
    OutcomeEntry,
    RowEntry,
    failure_entry,
    tally_of,
)
from orchestrator.store.merging import put_in_place
from orchestrator.store.reading import StoredServer

_AT_ONCE: Final = 256
# No outcome takes less: what a store of some size may hold at most.
_LEAST_BYTES: Final = 64
# A span that fails is halved until single rows fail, which is two tries a row; numbers that damage
# has made may span more rows than a file can hold.
_TRIES_OF_A_ROW: Final = 4
_LEAST_TRIES: Final = 1000
_HEADER_BYTES: Final = 100
# A damaged header may say anything; a file with holes takes no room, but is read to its end.
_MOST_BYTES: Final = 1 << 40
_COLUMNS: Final = (
    "id, key, kind, model, server, cause, attempts, latency_s, at_ms, prompt_hash, head, arrays"
)
# What stands in these columns where no bit has made it another type.
_TYPES: Final = (int, bytes, int, int, int, int, int, float, int, bytes, bytes, bytes)
_SERVER_COLUMNS: Final = "id, model, provenance, first_at_ms, last_turn"
_TALLY: Final = """SELECT model.text, kind.text, sum(n) FROM tally t
    JOIN name model ON model.id=t.model JOIN name kind ON kind.id=t.kind GROUP BY 1, 2"""

# How many outcomes can't be found by their key, and units that stand at two places of a plan.
_FAULTS: Final = (
    """SELECT count(*) FROM outcome o WHERE
        NOT EXISTS (SELECT 1 FROM outcome_key k WHERE k.key=o.key AND k.row=o.id) AND
        NOT EXISTS (SELECT 1 FROM outcome_key_level k
            WHERE k.level IN (1, 2, 3) AND k.key=o.key AND k.row=o.id) AND
        NOT EXISTS (SELECT 1 FROM outcome_key_new k WHERE k.key=o.key AND k.row=o.id)""",
    "SELECT count(*) FROM (SELECT 1 FROM place GROUP BY plan, unit HAVING count(*)>1)",
)

Group = tuple[str, str]
"""Model and kind of ask."""

Advance = Callable[[int], None]
"""Called with how much more is done."""


class Salvaged(msgspec.Struct, frozen=True):
    """Result of salvaging a damaged store.

    Attributes:
        kept: Outcomes by model and kind of ask.
        lost: Outcomes that can't be read, the same, as far as the store still says whose they were.
        n_lost: How many in all; at most so many where the store's own count can't be read.
        damaged: Where the damaged file is now; None where nothing was damaged.
        values_lost: Keys of the values of the run that are not as they were written.
    """

    kept: dict[Group, int]
    lost: dict[Group, int]
    n_lost: int
    damaged: Path | None
    values_lost: tuple[str, ...] = ()


def salvage(path: Path, advance: Advance = lambda _: None) -> Salvaged:
    """Replace a damaged store by one that holds what can be read of it; the old file is kept.

    Nobody else may write the store meanwhile. `advance` is called with how many more outcomes were
    looked at.

    Raises:
        RunDirectoryError: If there is none, or it is another program's or another version's.
        StoreError: If nothing of it can be read, or the new one can't be written.
    """
    schema.check_files(path)
    if not path.exists():
        schema.connect_reader(path).close()
    copy, target = path.with_suffix(".read.sqlite"), path.with_suffix(".salvaged.sqlite")
    try:
        opened, was_restored = _open_copy(path, copy)
        with contextlib.closing(opened) as source:
            found = _Source(source, copy)
            of_run, values_lost = _right_values(found.meta())
            kept, n_lost = _copy(found, of_run, target, advance)
            counted = found.counted()
            is_whole = (
                not was_restored and not found.n_lost and counted == kept and found.is_sound()
            )
        if is_whole:
            return Salvaged(dict(kept), {}, 0, None)
        aside = set_aside(path)
        put_in_place(target, path)
    finally:
        # On a full disk, what is left of a new store takes room too.
        _remove(copy)
        _remove(target)
    lost = {group: n - kept[group] for group, n in counted.items() if n > kept[group]}
    n_lost = sum(lost.values()) if counted else n_lost
    return Salvaged(dict(kept), lost, n_lost, aside, values_lost)


class _Source:
    """Reads a damaged file in parts, so that a part which can't be read loses no other."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self.n_lost = 0

    def rows(self, table: str, columns: str, types: Sequence[type]) -> Iterator[tuple[Any, ...]]:
        """Rows of a table by number, in order; `n_lost` counts those that can't be read."""
        ranges = [(1, self._last(table))]
        tries_left = _TRIES_OF_A_ROW * (schema.file_size(self._path) // _LEAST_BYTES) + _LEAST_TRIES
        while ranges:
            first, last = ranges.pop()
            found = self._part(table, columns, first, last)
            if found is None:
                tries_left -= 1
                if first < last and tries_left > 0:
                    middle = (first + last) // 2
                    ranges += [(middle + 1, last), (first, middle)]
                else:
                    self.n_lost += 1
                continue
            whole = [row for row in found if tuple(map(type, row)) == tuple(types)]
            self.n_lost += len(found) - len(whole)
            yield from whole
            if len(found) == _AT_ONCE and found[-1][0] < last:
                ranges.append((found[-1][0] + 1, last))

    def _part(
        self, table: str, columns: str, first: int, last: int
    ) -> list[tuple[Any, ...]] | None:
        """The first rows of a span; None where they can't be read, or do not come in order.

        Pages that point to one another in a circle give rows without end.
        """
        sql = f"SELECT {columns} FROM {table} WHERE id BETWEEN ? AND ? ORDER BY id"  # noqa: S608
        try:
            found = self._connection.execute(sql, (first, last)).fetchmany(_AT_ONCE)
        except (sqlite3.Error, OverflowError, UnicodeDecodeError):
            return None
        numbers = [first - 1, *(row[0] for row in found), last + 1]
        return found if all(left < right for left, right in pairwise(numbers)) else None

    def counted(self) -> Counter[Group]:
        """Count the outcomes there were; empty if the counts can't be read."""
        try:
            rows = self._connection.execute(_TALLY).fetchall()
        except sqlite3.Error:
            return Counter()
        return Counter({(model, kind): n for model, kind, n in rows if isinstance(n, int)})

    def meta(self) -> dict[str, str]:
        """The values of the run, as far as they can be read."""
        try:
            found = self._connection.execute("SELECT key, value FROM meta").fetchall()
        except sqlite3.Error:
            return {}
        return {key: value for key, value in found if {type(key), type(value)} == {str}}

    def is_sound(self) -> bool:
        """Return True if no damage is found in the whole file."""
        try:
            if any(self._connection.execute(sql).fetchone()[0] for sql in _FAULTS):
                return False
            # All that opening looks at, or what it refuses would be sound.
            schema.check_store(self._connection, self._path, in_full=True)
            reading.check(self.query, self._path)
            meta = self.meta()
            if values.faulty(meta) or _right_values(meta)[1]:
                return False
            if FRAMES in meta:
                reading.check_frames(self.query, msgspec.json.decode(meta[FRAMES], type=dict))
            for (rows,) in self._connection.execute("SELECT rows FROM unit"):
                values.decode(rows)
            for (provenance,) in self._connection.execute("SELECT provenance FROM server"):
                StoredServer.decode("", provenance)
            for server, texts in self._connection.execute("SELECT server, texts FROM token"):
                interning.decode(server, texts)
        except (sqlite3.Error, OrchestratorError, msgspec.MsgspecError, TypeError):
            return False
        return True

    def query(self, sql: str, given: Sequence[object]) -> list[tuple[object, ...]]:
        """Return the rows of a statement."""
        return self._connection.execute(sql, given).fetchall()

    def _last(self, table: str) -> int:
        """The highest number that a row of a table may have."""
        with contextlib.suppress(sqlite3.Error):
            ((last,),) = self._connection.execute(f"SELECT max(id) FROM {table}").fetchall()  # noqa: S608
            return int(last or 0)
        return schema.file_size(self._path) // _LEAST_BYTES


def _open_copy(path: Path, copy: Path) -> tuple[sqlite3.Connection, bool]:
    """A connection to a copy, which SQLite may change, and whether its first page was made anew.

    The file itself stays as it is.
    """
    _remove(copy)
    try:
        for original in (path, schema.wal_path(path)):
            if original.exists():
                shutil.copyfile(
                    original, copy.with_name(original.name.replace(path.name, copy.name))
                )
        _fill(copy)
        was_restored = restore(copy)
        return schema.connect_damaged(copy), was_restored
    except OSError as error:
        raise StoreError(f"{copy} cannot be written: {error.strerror or error}") from error
    except schema.OtherVersionError as error:
        raise schema.OtherVersionError(str(error).replace(copy.name, path.name)) from error
    except (StoreError, RunDirectoryError) as error:
        said = str(error).replace(copy.name, path.name)
        raise StoreError(f"{said}. None of it can be read; start again with --fresh") from error


def _fill(path: Path) -> None:
    """Make a file that was cut as long as it says, without which SQLite reads nothing of it."""
    with path.open("r+b") as file:
        header = file.read(_HEADER_BYTES)
        if len(header) == _HEADER_BYTES:
            # Page size and number of pages: https://sqlite.org/fileformat.html, 1.3
            size, pages = struct.unpack_from(">H", header, 16), struct.unpack_from(">I", header, 28)
            if path.stat().st_size < size[0] * pages[0] <= _MOST_BYTES:
                file.truncate(size[0] * pages[0])


def _remove(path: Path) -> None:
    for name in (path.name, schema.wal_path(path).name, f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)


def _copy(
    source: _Source, of_run: Mapping[str, str], target: Path, advance: Advance
) -> tuple[Counter[Group], int]:
    """Outcomes kept by model and kind, and how many can't be read."""
    _remove(target)
    tables = Tables(target, exclusive=False)
    try:
        names: dict[int, str] = dict(source.rows("name", "id, text", (int, str)))
        for number in range(1, max(names, default=0)):
            # Numbers without a gap: the next name is given the next one.
            names.setdefault(number, f"lost name {number}")
        tables.write([RowEntry(NAME, row) for row in names.items()])
        tables.write([MetaEntry(key, value) for key, value in of_run.items()])
        servers = source.rows("server", _SERVER_COLUMNS, (int, int, str, int, int))
        readable: list[RowEntry] = []
        for row in servers:
            # One bit can rename a field in good JSON.
            with contextlib.suppress(StoreError):
                StoredServer.decode("", row[2])
                readable.append(RowEntry(SERVER, row))
        tables.write(readable)
        tables.write(_tokens(source))
        n_other = source.n_lost
        kept: Counter[Group] = Counter()
        seen: set[bytes] = set()
        batch: list[Entry] = []
        for _, key, *rest in source.rows("outcome", _COLUMNS, _TYPES):
            advance(1)
            entry = _checked(key, rest, names)
            if entry is None or key in seen:
                source.n_lost += entry is None
                continue
            seen.add(key)
            kept[names[entry.model], names[entry.kind]] += 1
            batch.append(entry)
            if len(batch) >= _AT_ONCE:
                tables.write(batch)
                batch = []
        tables.write(batch)
    except sqlite3.Error as error:
        raise tables.explain(error) from error
    finally:
        tables.close()
    return kept, source.n_lost - n_other


def _tokens(source: _Source) -> list[RowEntry]:
    """The texts of tokens that can be read.

    Where some can't, a row without a text keeps their numbers from being given to others.
    """
    n_lost = source.n_lost
    kept: list[RowEntry] = []
    numbers: list[int] = []
    for _, server, blob in source.rows("token", "id, server, texts", (int, int, bytes)):
        try:
            found = interning.decode(server, blob)
        except (StoreError, OverflowError):
            source.n_lost += 1
            continue
        kept.append(RowEntry(TOKENS, (server, blob)))
        numbers += found if server == interning.NUMBERED else ()
    if source.n_lost > n_lost:
        first = interning.next_number(numbers, is_whole=False)
        mark = interning.encode(interning.NUMBERED, {first: b""})
        kept.append(RowEntry(TOKENS, (interning.NUMBERED, mark)))
    return kept


def _checked(key: bytes, row: list[Any], names: dict[int, str]) -> OutcomeEntry | None:
    """A stored outcome, if it is what was written."""
    *stated, head, arrays = row
    kind, model, server, cause, attempts, latency_s, at_ms, prompt_hash = stated
    try:
        outcome = codec.decode(head, arrays, key)
        packed = Packed(head, arrays)
        failure = None
        if isinstance(outcome, Failure):
            numbers = {text: number for number, text in names.items()}
            failure = failure_entry(numbers.__getitem__, key, names[model], outcome)
        if {kind, model, cause} <= names.keys() and blobs.is_checked(head):
            return OutcomeEntry(
                key, kind, model, server, cause, attempts, latency_s, at_ms, prompt_hash, packed,
                None, tally_of(outcome, attempts, latency_s), failure,
            )  # fmt: skip
    except (StoreError, TypeError, KeyError):
        pass
    return None


def _right_values(found: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The values of a run that are as they were written, and the keys of the others."""
    faulty = set(values.faulty(found)) - {values.CHECKSUMS}
    for key, value in found.items():
        try:
            # What a run says of its frames is held to more: their names become names of files.
            if key == FRAMES:
                schemas = msgspec.json.decode(value, type=dict[str, dict[str, str]])
                is_right = schema_fault(schemas) is None
            else:
                is_right = not value.startswith("{") or isinstance(msgspec.json.decode(value), dict)
        except (msgspec.MsgspecError, RecursionError):
            is_right = False
        faulty |= set() if is_right else {key}
    right = {key: found[key] for key in found.keys() - faulty - {values.CHECKSUMS}}
    try:
        # The roles of columns, where a run keeps any, fit the columns of its frames.
        schemas = msgspec.json.decode(right.get(FRAMES, "{}"), type=dict[str, dict[str, str]])
        decoded(right.get(ROLES, "{}"), schemas)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        right.pop(ROLES, None)
        faulty.add(ROLES)
    return right, tuple(sorted(faulty))


def set_aside(path: Path) -> Path:
    """Give a damaged store another name, with its log; its own stays until another file has it."""
    number = 1
    while (aside := path.with_suffix(f".damaged-{number}.sqlite")).exists():
        number += 1
    with on_disk_error(f"{path} cannot be replaced", StoreError):
        aside.hardlink_to(path)
        # A log that stayed would be taken for the new file's.
        if schema.wal_path(path).exists():
            schema.wal_path(path).rename(schema.wal_path(aside))
    return aside


# Of pages with the rows of a table, and with those of an index (also of a table without numbers).
_KINDS: Final = (frozenset((5, 13)), frozenset((2, 10)))
# Other pages may be damaged too; but a file that is no store must not become one.
_LEAST_SHARE: Final = 0.7


def restore(path: Path) -> bool:
    """Write the first page of a store anew if it can't be read, and return whether it was.

    The path is a copy that nobody else has open.

    Raises:
        OSError: If the file can't be read or written.
        OtherVersionError: If it is whole, but has the tables of another version.
    """
    if _is_whole(path):
        return False
    with tempfile.TemporaryDirectory(prefix="orchestrator-") as folder:
        new = Path(folder) / "new.sqlite"
        schema.create(new)
        if _fits(path, new, schema.PAGE_BYTES):
            _write(path, new.read_bytes()[: schema.PAGE_BYTES])
            return True
    return False


def _is_whole(path: Path) -> bool:
    try:
        with closing(schema.connect_damaged(path)) as connection:
            schema.check_objects(connection, path)
    except schema.OtherVersionError:
        raise
    except (OrchestratorError, sqlite3.Error, UnicodeDecodeError):
        return False
    return True


def _fits(path: Path, new: Path, page_bytes: int) -> bool:
    """Return True if tables of a file begin where those of a new store do."""
    with closing(sqlite3.connect(new)) as connection:
        roots = [root for (root,) in connection.execute("SELECT rootpage FROM sqlite_master")]
    n_right = 0
    with path.open("rb") as file, new.open("rb") as expected:
        for root in roots:
            found, known = _kind(file, root, page_bytes), _kind(expected, root, page_bytes)
            n_right += any({found, known} <= kinds for kinds in _KINDS)
    return n_right >= _LEAST_SHARE * len(roots)


def _kind(file: BinaryIO, page: int, page_bytes: int) -> int | None:
    file.seek((page - 1) * page_bytes)
    found = file.read(1)
    return found[0] if found else None


def _write(path: Path, page: bytes) -> None:
    """Put a first page into a file of any length: https://sqlite.org/fileformat.html, 1.3."""
    content = bytearray(page)
    # Pages of the file; then no free ones, since where they are is not known.
    struct.pack_into(">I", content, 28, -(-path.stat().st_size // len(page)))
    struct.pack_into(">II", content, 32, 0, 0)
    # The number of pages counts only where these two are equal.
    content[92:96] = content[24:28]
    with path.open("r+b") as file:
        file.write(content)
