"""Plans in the store: which is the current one, and where stored units stand in it.

Units are stored by their hash, once for all plans; a plan only says at which of its positions a
unit stands. Each step here is one transaction; a plan whose adoption was cut off is not `adopted`,
and adopting it again goes on.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.store.values import put

UNITS_AT_ONCE: Final = 20_000

_CURRENT: Final = "SELECT adopted FROM plan WHERE current AND hash=?"
_OPEN: Final = """INSERT INTO plan (hash, n_units, adopted, current, stamp) VALUES (?,?,?,1,0)
    ON CONFLICT(hash) DO UPDATE SET n_units=excluded.n_units, adopted=excluded.adopted, current=1"""
# Units are found by hash only here, so the index of their hashes lives only as long.
_BY_HASH: Final = "CREATE INDEX IF NOT EXISTS unit_by_hash ON unit (hash, status)"
_NO_MORE: Final = "DROP INDEX IF EXISTS unit_by_hash"
# Most units of a changed plan stand where they stood in the one before.
_BEFORE: Final = """SELECT p.position, u.hash, p.unit FROM place p JOIN unit u ON u.id=p.unit
    WHERE p.plan=(SELECT max(id) FROM plan WHERE id<>?) AND p.position BETWEEN ? AND ?
    AND u.status=0 ORDER BY p.position"""
_ALL_STAY: Final = """INSERT OR REPLACE INTO place SELECT ?1, position, unit FROM place
    WHERE plan=(SELECT max(id) FROM plan WHERE id<>?1) AND position BETWEEN ?2 AND ?3"""
_STAY: Final = "INSERT OR REPLACE INTO place (plan, position, unit) VALUES (?,?,?)"
_PLACE: Final = """INSERT OR REPLACE INTO place
    SELECT ?, ?, id FROM unit WHERE hash=? AND status<2 ORDER BY status LIMIT 1"""
_FORGET: Final = """DELETE FROM place
    WHERE plan=? AND unit IN (SELECT id FROM unit WHERE status>=2)"""
_UNPLACED: Final = "DELETE FROM unit WHERE status>=2 AND id NOT IN (SELECT unit FROM place)"
_N_ENDED: Final = """SELECT count(*) FROM place p JOIN unit u ON u.id=p.unit
    WHERE p.plan=? AND u.status<2"""


def open_plan(
    connection: sqlite3.Connection, plan_hash: bytes, n_units: int, values: Mapping[str, str]
) -> int:
    """Number of the plan, which is the current one from now on, with its values of the run."""
    found = connection.execute(_CURRENT, (plan_hash,)).fetchone()
    # What other plans ended meanwhile is not in this one: it has to adopt again.
    adopted = found[0] if found is not None else not has_units(connection)
    connection.execute("UPDATE plan SET current=0 WHERE current")
    connection.execute(_OPEN, (plan_hash, n_units, adopted))
    put(connection, values)
    (number,) = connection.execute("SELECT id FROM plan WHERE hash=?", (plan_hash,)).fetchone()
    _reopen(connection, number)
    return int(number)


def _reopen(connection: sqlite3.Connection, plan_id: int) -> None:
    """Forget the units that failed for the moment: this call evaluates them again.

    If it ends before it does, they are units that remain, not units with a cause of an earlier
    call, which may be gone.
    """
    if connection.execute(_FORGET, (plan_id,)).rowcount:
        connection.execute(_UNPLACED)
        connection.execute("UPDATE plan SET stamp=stamp+1 WHERE id=?", (plan_id,))


def has_units(connection: sqlite3.Connection) -> bool:
    """Return True if any unit is stored."""
    return connection.execute("SELECT 1 FROM unit LIMIT 1").fetchone() is not None


def place(connection: sqlite3.Connection, plan_id: int, units: Sequence[tuple[int, bytes]]) -> None:
    """Give those of the units that are stored their positions in the plan.

    Args:
        connection: Within a transaction.
        plan_id: Number of the plan.
        units: Neighbours in the plan: position and hash, in order.
    """
    span = units[0][0], units[-1][0]
    found = connection.execute(_BEFORE, (plan_id, *span)).fetchall()
    if [row[:2] for row in found] == list(units):
        connection.execute(_ALL_STAY, (plan_id, *span))
        return
    before = {(position, unit_hash): unit for position, unit_hash, unit in found}
    stay = [(plan_id, unit[0], before[unit]) for unit in units if unit in before]
    connection.executemany(_STAY, stay)
    if len(stay) < len(units):
        connection.execute(_BY_HASH)
        moved = [(plan_id, *unit) for unit in units if unit not in before]
        connection.executemany(_PLACE, moved)


def end_adoption(connection: sqlite3.Connection, plan_id: int) -> int:
    """Mark a plan as having adopted all; return its units that are done or failed for good."""
    connection.execute(_NO_MORE)
    connection.execute("UPDATE plan SET adopted=1, stamp=stamp+1 WHERE id=?", (plan_id,))
    (n,) = connection.execute(_N_ENDED, (plan_id,)).fetchone()
    return int(n)
