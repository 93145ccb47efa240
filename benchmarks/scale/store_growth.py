"""Measure what the size of a store costs: a new outcome in a store that holds many already.

    python -m benchmarks.scale.store_growth [--keys N …] [--outcomes M] [--write]

The index of keys is filled with N made-up keys; then M outcomes are looked up and stored, as a run
does. The more keys there are, the more of the filter's answers are wrong and need a query. Keys
pass levels on their way into the index (`orchestrator.store.lookup`), which are filled as far as a
run of so many outcomes has filled them.
"""

import argparse
import json
import math
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import _page
from orchestrator.ask import digest
from orchestrator.backend import Provenance
from orchestrator.records import Choice
from orchestrator.store import Store
from orchestrator.store.lookup import FAN_OUT, LEVELS, n_levels

_SECTION = "scale-store"
_AT_ONCE = 100_000
FILTER_BITS = 1 << 25
"""Of `orchestrator.store.lookup.KeyFilter`."""
_SORTED_TOGETHER = 16_384
_PAGE_BYTES = 8192
# A key, its row's number and their lengths; pages that random inserts split are 69 % full.
_ENTRY_BYTES = 16 + 4 + 5
_KEYS_A_PAGE = round(math.log(2) * _PAGE_BYTES / _ENTRY_BYTES)


class Measured(NamedTuple):
    """Costs with so many keys in the index.

    Attributes:
        n: Keys.
        cpu_us: Processor time of an outcome: looked up, stored, and sorted into the index.
        written_bytes: Given to the disk for an outcome.
        load_s: Processor time until the first key is looked up, as when a run is resumed.
    """

    n: int
    cpu_us: float
    written_bytes: float
    load_s: float


def wrong(n: float) -> float:
    """Share of new keys that the filter takes for known ones, with n in it."""
    return 0.0 - math.expm1(-n / FILTER_BITS)


def pages(n: float) -> float:
    """Pages of the levels and of the index that a key changes on its way, with n in all."""
    last = n_levels(n, _SORTED_TOGETHER)
    held = [_SORTED_TOGETHER * _slices(level) / 2 for level in range(1, last + 1)]
    # A batch meets all of the first level, and a slice of a level that part of the next one.
    met = [keys / _slices(at) for at, keys in enumerate([*held, max(n - sum(held), 0.0)])]
    return sum(map(_changed, met))


def _changed(n: float) -> float:
    """Pages that a key changes where a batch is sorted into a range of n keys."""
    leaves = max(n / _KEYS_A_PAGE, 1.0)
    return leaves * -math.expm1(-_SORTED_TOGETHER / leaves) / _SORTED_TOGETHER


def _slices(level: int) -> int:
    return int(FAN_OUT**level)


def fill(path: Path, n: int) -> None:
    """Put made-up keys into the index of a new store and its levels, and one outcome numbered n."""
    with Store.open(path):
        pass
    rng = np.random.default_rng(n)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN")
        for keys, level in _keys(rng, n):
            for at in range(len(LEVELS) + 1):
                (where,) = np.nonzero(level == at)
                rows = [(keys[16 * i : 16 * i + 16], 10**12 + int(i)) for i in where]
                if at:
                    sql = "INSERT INTO outcome_key_level (level, key, row) VALUES (?,?,?)"
                    connection.executemany(sql, [(at, *row) for row in rows])
                else:
                    sql = "INSERT INTO outcome_key (key, row) VALUES (?,?)"
                    connection.executemany(sql, rows)
        if n:
            # The next outcome is the one after it.
            sql = "INSERT INTO outcome VALUES (?,?,0,0,0,0,0,0,0,x'',x'',x'')"
            connection.execute(sql, (n, rng.bytes(16)))
        connection.execute("COMMIT")


def _keys(rng: np.random.Generator, n: int) -> Iterator[tuple[bytes, np.ndarray]]:
    """Yield random keys in order, and the level that each has reached, 0 for the index."""
    firsts = rng.integers(0, 1 << 63, size=n, dtype=np.uint64) * np.uint64(2)
    firsts.sort()
    turn = n // _SORTED_TOGETHER
    for start in range(0, n, _AT_ONCE):
        part = firsts[start : start + _AT_ONCE]
        both = np.stack([part, rng.integers(0, 1 << 63, size=len(part), dtype=np.uint64)])
        drawn, passed = rng.random(len(part)) * n, np.zeros(len(part))
        level = np.zeros(len(part), dtype=int)
        for at in range(1, n_levels(n, _SORTED_TOGETHER) + 1):
            # A slice has what came since its turn.
            place = (part >> np.uint64(64 - 4 * at)).astype(int)
            held = (turn - 1 - place) % _slices(at) * _SORTED_TOGETHER
            level[(drawn >= passed) & (drawn < passed + held)] = at
            passed += held
        yield both.T.astype(">u8").tobytes(), level


def measure(folder: Path, n: int, n_outcomes: int) -> Measured:
    """Store outcomes beside n keys."""
    path = folder / f"{n}.sqlite"
    fill(path, n)
    server = Provenance(backend="fake", base_url="http://127.0.0.1:1", model="m", version="1")
    logprobs = (-1.0, -2.0, -3.0)
    choice = Choice(logprobs, logprobs, "top_logprobs", 1063, 1024, 1)
    with Store.open(path) as store:
        number = store.server_id("judge 0", server)
        began = time.process_time()
        store.get(digest("first"))
        load_s = time.process_time() - began
        began, written = time.process_time(), _written()
        for position in range(n_outcomes):
            key = digest(position)
            if store.get(key) is None:
                store.put_outcome(
                    key, "choose", "judge", choice,
                    server=number, prompt_hash=key, attempts=1, latency_s=0.1,
                )  # fmt: skip
        store.flush()
        cpu_s, written = time.process_time() - began, _written() - written
    path.unlink()
    return Measured(n, 1e6 * cpu_s / n_outcomes, written / n_outcomes, load_s)


def _written() -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("write_bytes")).split()[1])


def section(found: Sequence[Measured], n_outcomes: int, command: str, machine: str) -> str:
    """The section of the page."""
    rows = [
        f"| {one.n:,} | {100 * wrong(one.n):.1f} % | {pages(one.n):.2f} | {one.cpu_us:.1f} | "
        f"{one.written_bytes:,.0f} | {one.load_s:.2f} |"
        for one in found
    ]
    return "\n".join(
        [
            "## Stores of many outcomes",
            "",
            f"{n_outcomes:,} outcomes looked up and stored beside keys that the store holds. The "
            "second and third columns are computed.",
            "",
            "| keys | wrong answers of the filter | pages of indexes a key | "
            "CPU of an outcome, us | written, B | CPU until the first look-up, s |",
            "| --: | --: | --: | --: | --: | --: |",
            *rows,
            "",
            f"{machine}. Command: `{command}`",
            "",
            f"<!-- points: {json.dumps([[*map(float, one)] for one in found])} -->",
        ]
    )


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--keys", type=int, nargs="+", default=[0, 1_000_000, 10_000_000, 30_000_000]
    )
    parser.add_argument("--outcomes", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="whose disk is measured")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    options = parser.parse_args()
    machine = _page.machine()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        found = [measure(Path(name), n, options.outcomes) for n in options.keys]
    command = f"python -m benchmarks.scale.store_growth --keys {' '.join(map(str, options.keys))}"
    text = section(found, options.outcomes, command, machine)
    _page.publish(_SECTION, text, {}, write=options.write)


if __name__ == "__main__":
    main()
