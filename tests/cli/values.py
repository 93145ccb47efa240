"""Statements that change what a store holds: other values in each place of a few tables."""

import json
from itertools import product

from tests.crossed import squared

_PLAN = (
    ("id", "hash", "n_units", "current", "stamp"),
    ("'x'", "x'00'", "1e300", "1000000000000000", "{column}+1", "-1"),
)
_META = (
    ("units", "frames", "roles", "rule", "spent", "not_needed", "revision", "limits"),
    ("'x'", "'[]'", "'7'", "'{}'", "'null'", "''", "'1e99'", "x'ff'", "7"),
)
VALUES = (
    "UPDATE meta SET value='1 999' WHERE key='not_needed'",
    "INSERT OR REPLACE INTO meta VALUES ('not_needed', '1 x')",
    """INSERT OR REPLACE INTO meta VALUES ('rule', '{"n_items": 1000000000000000}')""",
    "UPDATE name SET text=7 WHERE id=1",
    "UPDATE name SET text=x'ff' WHERE id=2",
    "UPDATE server SET provenance='[]'",
    "UPDATE tally SET n='x'",
    "UPDATE place SET position='x' WHERE position=3",
    "UPDATE place SET unit='x' WHERE position=3",
    "UPDATE place SET plan=7 WHERE position=3",
    "UPDATE unit SET status='x' WHERE id=2",
    "UPDATE unit SET rows=7 WHERE id=2",
    "UPDATE unit SET frame=99 WHERE id=2",
    "DELETE FROM plan",
    "DELETE FROM place WHERE position=2",
    "DELETE FROM unit WHERE id=2",
)


def in_plan(column: str, value: str) -> str:
    return f"UPDATE plan SET {column}={value.format(column=column)}"  # noqa: S608 (our own text)


def in_meta(key: str, value: str) -> str:
    return f"UPDATE meta SET value={value} WHERE key='{key}'"  # noqa: S608 (our own text)


# Each place with each value is long; the fast tests have each place and each value.
PARTS = {
    "plan": [in_plan(*pair) for pair in squared(*_PLAN)],
    "meta": [in_meta(*pair) for pair in squared(*_META)],
    "other tables": VALUES[::2],
    "records": VALUES[1::2],
    "plan, all": [in_plan(*pair) for pair in product(*_PLAN)],
    "meta, all": [in_meta(*pair) for pair in product(*_META)],
}


def results_of(report: str) -> tuple[object, object]:
    """Return the rankings and tables of a report in JSON; other parts tell when it was made."""
    document = json.loads(report)
    return document["rankings"], document["tables"]
