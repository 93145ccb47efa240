"""The first page of a store, made anew where it is damaged: without it SQLite reads nothing.

It says where each table begins. All stores make the same tables in the same order, so those of a
new store begin on the same pages.
"""

import sqlite3
import struct
import tempfile
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, Final

from orchestrator.errors import OrchestratorError
from orchestrator.store import schema

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
