"""The rows that decode: which answer is in which slot of a pool."""

from __future__ import annotations

from dataclasses import dataclass

from launch.embedded.jobs import Answer, Job
from launch.embedded.layout import Pool
from launch.embedded.sampling import Sampler


@dataclass(slots=True, eq=False)
class Row:
    """One answer that decodes: `length` tokens are in the cache, `last` is to be fed next.

    A spoilt row has met logits that are not numbers.
    """

    job: Job
    index: int
    length: int
    last: int
    spoilt: bool = False

    @property
    def answer(self) -> Answer:
        """The answer being drawn."""
        return self.job.answers[self.index]


class Batch:
    """Rows of one pool, in the order of its slots."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.rows: list[Row] = []
        self.sampler: Sampler | None = None

    def add(self, row: Row) -> int:
        """Give a row the next slot."""
        self.pool.reserve(len(self.rows) + 1)
        self.rows.append(row)
        self.sampler = None
        return len(self.rows) - 1

    def drop(self, slot: int) -> None:
        """Free a slot; the last row moves into it, and with no rows left no memory is kept."""
        if self.rows[slot].spoilt:
            self.pool.scrub(slot)
        last = self.rows.pop()
        self.sampler = None
        if slot < len(self.rows):
            self.pool.copy_row(len(self.rows), slot, last.length)
            self.rows[slot] = last
        if not self.rows:
            self.pool.release()

    def clear(self) -> None:
        """Drop all rows."""
        self.rows.clear()
        self.sampler = None
        self.pool.release()
