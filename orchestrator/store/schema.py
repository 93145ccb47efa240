"""The tables of a store, and connections to them."""

import logging
import re
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeVar

from orchestrator.disk.files import check_plain, sync_folder
from orchestrator.disk.paths import is_foreign, repair
from orchestrator.errors import OrchestratorError, RunDirectoryError, StoreError
from orchestrator.store.blobs import located
from orchestrator.store.owner import BoundedConnection, copy_of

C = TypeVar("C", bound=sqlite3.Connection)

logger = logging.getLogger(__name__)


class OtherVersionError(RunDirectoryError):
    """A store whose tables are those of an earlier or a later version."""


APPLICATION_ID: Final = 0x6F726368  # "orch"
SCHEMA_VERSION: Final = 4
_BESIDE: Final = ("-wal", "-shm", "-journal")
# Longest time to wait for another process's transaction, seconds.
BUSY_S: Final = 10.0
# How long a reader waits before it takes the published snapshot instead, seconds.
_SNAPSHOT_BUSY_S: Final = 1.0
# A larger page leaves less unused beside the rows of long answers, of which few fit on it.
PAGE_BYTES: Final = 8192
# Frames in the WAL before they are copied into the file: 16 MB. Longer than SQLite's 4 MB: the more
# commits share a copy, the fewer pages are written twice.
_CHECKPOINT_PAGES: Final = 2000
_WAL_KEPT_BYTES: Final = 64 << 20
# The writer's page cache, at most. Keys are hashes: when many of them are sorted into their index,
# most of its pages are needed.
_WRITER_CACHE_KB: Final = 8 << 10

# Outcomes and units are appended in the order they came, with no index that would touch a page of
# its own for each; keys are sorted into `outcome_key` many at a time (`lookup.py`). `arrays` stands
# last, so that reading a head touches no page of the arrays. `name` interns models, kinds of ask,
# frames and causes.
_TABLES: Final = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE name (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)",
    """CREATE TABLE server (
        id INTEGER PRIMARY KEY, model INTEGER NOT NULL, provenance TEXT NOT NULL,
        first_at_ms INTEGER NOT NULL, last_turn INTEGER NOT NULL)""",
    """CREATE TABLE outcome (
        id INTEGER PRIMARY KEY, key BLOB NOT NULL, kind INTEGER NOT NULL,
        model INTEGER NOT NULL, server INTEGER NOT NULL, cause INTEGER NOT NULL,
        attempts INTEGER NOT NULL, latency_s REAL NOT NULL, at_ms INTEGER NOT NULL,
        prompt_hash BLOB NOT NULL, head BLOB NOT NULL, arrays BLOB NOT NULL)""",
    """CREATE TABLE outcome_key (
        key BLOB PRIMARY KEY, row INTEGER NOT NULL) WITHOUT ROWID""",
    "CREATE TABLE outcome_key_new (row INTEGER PRIMARY KEY, key BLOB NOT NULL)",
    """CREATE TABLE tally (
        model INTEGER, kind INTEGER, cause INTEGER, n INTEGER, n_requests INTEGER,
        n_attempts INTEGER, n_prompt_tokens INTEGER, n_cached_tokens INTEGER,
        n_completion_tokens INTEGER, latency_s REAL,
        PRIMARY KEY (model, kind, cause)) WITHOUT ROWID""",
    """CREATE TABLE failure (
        permanent INTEGER, model INTEGER, cause INTEGER, status INTEGER, n INTEGER NOT NULL,
        last_key BLOB NOT NULL, last_message TEXT NOT NULL, last_at_ms INTEGER NOT NULL,
        PRIMARY KEY (permanent, model, cause, status)) WITHOUT ROWID""",
    """CREATE TABLE unit (
        id INTEGER PRIMARY KEY, hash BLOB NOT NULL, status INTEGER NOT NULL,
        frame INTEGER NOT NULL, cause INTEGER NOT NULL, rows BLOB NOT NULL)""",
    """CREATE TABLE plan (
        id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, n_units INTEGER NOT NULL,
        adopted INTEGER NOT NULL, current INTEGER NOT NULL, stamp INTEGER NOT NULL)""",
    """CREATE TABLE place (
        plan INTEGER, position INTEGER, unit INTEGER NOT NULL,
        PRIMARY KEY (plan, position)) WITHOUT ROWID""",
    # The few units that are to be evaluated again: who asks what is done reads these and the
    # places, not the rows of every unit, which are most of a file.
    "CREATE INDEX open_unit ON unit (id) WHERE status>=2",
    """CREATE TABLE token (
        id INTEGER PRIMARY KEY, server INTEGER NOT NULL, texts BLOB NOT NULL)""",
    # Where keys wait on their way into `outcome_key`.
    """CREATE TABLE outcome_key_level (
        level INTEGER, key BLOB, row INTEGER NOT NULL, PRIMARY KEY (level, key)) WITHOUT ROWID""",
)
_COLUMN: Final = re.compile(r"(\w+) (TEXT|INTEGER|REAL|BLOB)\b")
_TABLE: Final = {statement.split()[2]: statement for statement in _TABLES}
# Tables of a few rows, which are looked at whole whenever a store is opened.
_SHORT: Final = ("meta", "name", "server", "tally", "failure", "plan")
_WRONG_TYPES: Final = {
    name: f"SELECT count(*) FROM {name} WHERE "  # noqa: S608 (our own text)
    + " OR ".join(
        f"typeof({column})<>'{kind.lower()}'" for column, kind in _COLUMN.findall(statement)
    )
    for name, statement in _TABLE.items()
    if statement.startswith("CREATE TABLE")
}
_OBJECTS: Final = {"".join(statement.split()) for statement in _TABLES}


def connect_writer(path: Path, *, exclusive: bool) -> sqlite3.Connection:
    """A connection that may write; makes the tables where the file is new.

    An `exclusive` one keeps the file locked and the WAL's index in memory, as network file systems
    need.

    Raises:
        RunDirectoryError: If the file is not a store, or of a newer schema.
    """
    with explained(path), ExitStack() as stack:
        connection = _connect(path, "rwc", BUSY_S, sqlite3.Connection)
        stack.callback(connection.close)
        if exclusive:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        is_new = _check(connection, path)
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        (journal,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        if journal != "wal":
            logger.warning(
                "%s: this file system has no write-ahead log; writing will be slower", path
            )
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit={_WAL_KEPT_BYTES}")
        connection.execute(f"PRAGMA cache_size=-{_WRITER_CACHE_KB}")
        connection.execute("PRAGMA cache_spill=OFF")
        if is_new:
            _create(connection)
        check_store(connection, path)
        sync_folder(path.parent)
        stack.pop_all()
        return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that only reads, also from a folder that can't be written.

    Where another machine holds the file, the snapshot that its run publishes is read instead.

    Raises:
        RunDirectoryError: If there is no such file, it is not a store, or of a newer schema.
    """
    if not path.exists():
        raise RunDirectoryError(f"{path} does not exist: no run has been started there")
    if is_foreign(path.parent):
        return _open_foreign(path)
    published = snapshot_path(path)
    busy_s = _SNAPSHOT_BUSY_S if published.exists() else BUSY_S
    try:
        return _open_reader(path, "ro", busy_s)
    except sqlite3.OperationalError as error:
        code = _code(error)
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED} and published.exists():
            logger.info("%s is locked by its run: reading the copy of %s", path, published.name)
            path = published
        elif code not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY} or file_size(
            wal_path(path)
        ):
            raise explain(path, error) from error
    except sqlite3.Error as error:
        raise explain(path, error) from error
    # SQLite can't make the WAL's index beside it; without a WAL it does not need one.
    with explained(path):
        return _open_reader(path, "ro&immutable=1", BUSY_S)


def _open_foreign(path: Path) -> sqlite3.Connection:
    """A connection to the store of a foreign run, which leaves its folder as it is."""
    mode = "ro&immutable=1"
    try:
        if snapshot_path(path).exists() and wal_path(path).exists() and _is_held(path):
            path = snapshot_path(path)
        elif file_size(wal_path(path)):
            # SQLite reads a log by its index, which it would make beside it.
            mode = "ro&readonly_shm=1"
            if not path.with_name(f"{path.name}-shm").exists():
                path, mode = copy_of(path, wal_path(path)), "ro"
        return _open_reader(path, mode, BUSY_S)
    except OSError as error:
        raise StoreError(f"{path} cannot be copied: {error.strerror or error}") from error
    except sqlite3.Error as error:
        raise explain(path, error) from error


def _is_held(path: Path) -> bool:
    """Return True if a run on a network file system holds its store, so its files are not whole."""
    try:
        _open_reader(path, "ro&readonly_shm=1", _SNAPSHOT_BUSY_S).close()
    except sqlite3.Error as error:
        return _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
    except OrchestratorError:
        pass
    return False


def snapshot_path(path: Path) -> Path:
    """Return the path at which a run on a network file system publishes a copy of its store."""
    return path.with_suffix(".snapshot.sqlite")


def wal_path(path: Path) -> Path:
    """SQLite's write-ahead log of a store."""
    return path.with_name(path.name + "-wal")


def file_size(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def explain(path: Path, error: sqlite3.Error) -> StoreError:
    """Return the error to raise for a fault of the file, with the remedy."""
    remedy = repair(path.parent)
    match _code(error):
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            advice = (
                "the disk is full or failing. Committed data is safe: free space and run the same "
                "command again"
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CONSTRAINT:
            # Nothing is ever put twice, so a constraint fails only where an index is wrong.
            advice = f"the file is damaged or not a store. {remedy}; or start again with --fresh"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            advice = "another process has locked the file. Stop it, or wait until it ends"
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            advice = "the file or its folder cannot be opened. Check that they exist and are yours"
        case sqlite3.SQLITE_INTERRUPT | sqlite3.SQLITE_TOOBIG:
            advice = "reading it exceeds the limits of a store in time or size"
            if is_foreign(path.parent):
                advice += "; if you trust the run, copy it and read the copy"
            else:
                advice += f": the file is damaged, or its disk does not answer. {remedy}"
        case code if code == sqlite3.SQLITE_ERROR or "decode" in str(error):
            # Statements are fixed, so what they name is missing; or a text is none, without a code.
            advice = f"the file is damaged. {remedy}"
        case _:
            advice = "run the same command again; committed data is safe"
    return StoreError(f"{path}: {error}: {advice}")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Name the file, what is wrong with it and the remedy where SQLite or a record is at fault."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(path, error) from error
    except StoreError as error:
        raise located(error, path) from error


def damaged_file(path: Path, what: str) -> StoreError:
    """Return the error for a store that is not as it was written, with the remedy."""
    return StoreError(f"{path} is damaged: {what}. {repair(path.parent)}")


def check_store(
    connection: sqlite3.Connection, path: Path, *, whole: bool = True, in_full: bool = False
) -> None:
    """See that a connection is to a store of a version that can be read.

    Where `whole`, also that it has all tables of a store and nothing else, and that the values of
    short tables, `in_full` of all, are of their columns' types.

    Raises:
        RunDirectoryError: If it is another program's, empty, or of another version.
        StoreError: If it does not hold the tables of a store.
    """
    if _check(connection, path):
        raise RunDirectoryError(f"{path} is empty: no run has been started there")
    if not whole:
        return
    check_objects(connection, path)
    # SQLite takes any type in any column, and what has no checksum is not looked at again.
    for table in _WRONG_TYPES if in_full else _SHORT:
        ((n_wrong,),) = connection.execute(_WRONG_TYPES[table]).fetchall()
        if n_wrong:
            raise damaged_file(path, f"{n_wrong:,} rows of {table} have values of another type")
    ((n_current,),) = connection.execute("SELECT count(*) FROM plan WHERE current").fetchall()
    if n_current > 1:
        raise damaged_file(path, f"{n_current:,} plans are the one that was opened last")


def connect_damaged(path: Path) -> sqlite3.Connection:
    """A connection to what may be no whole store; fails as `connect_reader` does.

    The path is a copy, which SQLite may change.
    """
    with explained(path):
        return _open_reader(path, "ro", BUSY_S, whole=False)


def _open_reader(path: Path, mode: str, busy_s: float, *, whole: bool = True) -> BoundedConnection:
    with ExitStack() as stack:
        connection = _connect(path, mode, busy_s, BoundedConnection)
        stack.callback(connection.close)
        connection.allow(file_size(path) + file_size(wal_path(path)))
        check_store(connection, path, whole=whole)
        connection.execute("PRAGMA query_only=1")
        stack.pop_all()
        return connection


def check_files(path: Path) -> None:
    """See that a store and what SQLite keeps beside it are files, which it opens by their names.

    Raises:
        StoreError: If something else has the place of one: a pipe would be waited for.
    """
    for file in (path, *(path.with_name(path.name + end) for end in _BESIDE)):
        try:
            check_plain(file)
        except OSError as error:
            raise StoreError(
                f"{file}: {error.strerror}: a store needs a file here; remove what is in its "
                f"place. {repair(path.parent)}"
            ) from error


def _connect(path: Path, mode: str, busy_s: float, kind: type[C]) -> C:
    check_files(path)
    return connect_uri(f"{path.absolute().as_uri()}?mode={mode}", kind, busy_s)


def connect_uri(uri: str, kind: type[C], busy_s: float = BUSY_S) -> C:
    """A connection to the file of a URI; it may attach others by theirs."""
    connection = sqlite3.connect(
        uri,
        uri=True,
        timeout=busy_s,
        isolation_level=None,
        # Made by one thread and closed by another; never used by two at once.
        check_same_thread=False,
        factory=kind,
    )
    connection.execute("PRAGMA trusted_schema=OFF")
    return connection


def check_objects(connection: sqlite3.Connection, path: Path) -> None:
    """See that a store holds the tables of a store and nothing else.

    A view that takes a table's place may be read for ever, and a trigger may change what is kept.

    Raises:
        StoreError: If it does not.
    """
    missing = set(_TABLE)
    for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        is_known = isinstance(sql, str) and "".join(sql.split()) in _OBJECTS
        # Indexes that a table's keys make have no statement.
        if not is_known and not (kind == "index" and sql is None):
            raise StoreError(
                f"{path} has the {kind:.20} {name!r:.80}, which is not part of a store: the file "
                f"is damaged or malicious. {repair(path.parent)}"
            )
        missing.discard(name)
    if missing:
        raise StoreError(
            f"{path} lacks the table {min(missing)}: the file is damaged. {repair(path.parent)}"
        )


def _check(connection: sqlite3.Connection, path: Path) -> bool:
    """Check that the file may be used; return True if it is still empty."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id == APPLICATION_ID:
        if version != SCHEMA_VERSION:
            raise OtherVersionError(
                f"{path} has schema {version}, this version supports {SCHEMA_VERSION}: use the "
                "orchestrator that wrote it, or start again with --fresh"
            )
        return False
    (n_tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application_id or version or n_tables:
        raise RunDirectoryError(f"{path} is another program's database: use another directory")
    return True


def create(path: Path) -> None:
    """Make an empty store, all of it in the file itself."""
    connection = _connect(path, "rwc", BUSY_S, sqlite3.Connection)
    try:
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode=WAL").fetchone()
        _create(connection)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.close()


def _create(connection: sqlite3.Connection) -> None:
    with transaction(connection):
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """All that is done inside, or nothing of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _code(error: sqlite3.Error) -> int:
    """The primary result code: the low byte of the extended one."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
