"""Memory for keys and values: how much is free, and how much the requests under way may take."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import psutil
import torch

from launch.embedded.jobs import Job
from launch.embedded.layout import clean_length, grown

_SHARE: Final = 4
_GROUP: Final = Path("/sys/fs/cgroup")
# Of control groups of versions 2 and 1: limit, what is taken, and what of that are cached files.
_GROUP_FILES: Final = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)
_MANY: Final = 1 << 62
_PROMPT_COPIES: Final = 2
"""Of a prompt's keys and values: its own, and one beside the others of its batch."""


def free_bytes(device: torch.device) -> int:
    """Free memory of a device; of the CPU's no more than the control group leaves."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min(int(psutil.virtual_memory().available), _left_in_group(_GROUP))


def usual_bytes(device: torch.device, n_models: int) -> int:
    """Return the bytes for keys and values of one of `n_models`: together a quarter of the free."""
    return free_bytes(device) // (_SHARE * n_models)


def _left_in_group(folder: Path) -> int:
    """Bytes that the control group of a container may still take; many without a limit."""
    left = _MANY
    for limit, taken, statistics, cached in _GROUP_FILES:
        try:
            most = int((folder / limit).read_text(encoding="ascii"))
            used = int((folder / taken).read_text(encoding="ascii"))
            lines = (folder / statistics).read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):
            continue
        # Files that were read count as used until the room is needed.
        held = dict(line.split(maxsplit=1) for line in lines if " " in line)
        left = min(left, max(0, most - used + int(held.get(cached, 0))))
    return left


class Held(Protocol):
    """The size of a pool."""

    @property
    def capacity(self) -> int: ...  # noqa: D102
    @property
    def slots(self) -> int: ...  # noqa: D102
    @property
    def n_clean(self) -> int: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class _Empty:
    """A pool before its first row."""

    capacity: int
    slots: int = 0
    n_clean: int = 0


class Need(NamedTuple):
    """Sequences of a job.

    Attributes:
        tokens: To compute before anything is drawn; 0 when that is done.
        rows: Answers to draw.
        first: Tokens in the cache when drawing begins.
        last: Most tokens there when it ends.
    """

    tokens: int
    rows: int = 0
    first: int = 0
    last: int = 0

    @classmethod
    def of(cls, job: Job) -> Need:
        """The need of a job before it starts."""
        most = max((answer.stop.max_tokens for answer in job.answers), default=0)
        return cls(len(job.ids), job.n_rows, job.n_prompt, job.n_prompt + max(0, most - 1))


class Account:
    """Keys and values of the jobs under way, and of all that they may still come to draw.

    Args:
        most: Bytes to stay within.
        token_bytes: Of one token.
        pools: In which rows decode, the shortest first.
    """

    def __init__(self, most: int, token_bytes: int, pools: Sequence[Held]) -> None:
        self._most = most
        self._token_bytes = token_bytes
        self._pools = pools
        self._needs: dict[Job, Need] = {}

    @property
    def n_rows(self) -> int:
        """Answers that are being drawn or will be."""
        return sum(need.rows for need in self._needs.values())

    def fits(self, job: Job) -> bool:
        """Return whether a job can be added; the first one always can."""
        needs = (*self._needs.values(), Need.of(job))
        return not self._needs or self.n_bytes(needs) <= self._most

    def add(self, job: Job) -> None:
        """Count a job."""
        self._needs[job] = Need.of(job)

    def computed(self, job: Job) -> None:
        """Count no longer what a job needed before it drew."""
        self._needs[job] = self._needs[job]._replace(tokens=0)

    def drop(self, job: Job) -> None:
        """Count a job no longer; one that is not counted is let be."""
        self._needs.pop(job, None)

    def n_bytes(self, needs: Iterable[Need]) -> int:
        """Return the most bytes that these jobs take together, with the pools as they are now."""
        needs = tuple(needs)
        n_tokens = _PROMPT_COPIES * sum(need.tokens for need in needs)
        below = 0
        for pool in self._pools:
            # A row begins in the first pool that is longer than it, and moves on as it grows.
            inside = [need for need in needs if need.first < pool.capacity and need.last >= below]
            rows = sum(need.rows for need in inside)
            longest = max((need.last for need in inside if need.rows), default=0)
            length = clean_length(min(longest, pool.capacity), pool.capacity)
            n_tokens += grown(pool.slots, rows) * max(pool.n_clean, length)
            below = pool.capacity
        return n_tokens * self._token_bytes


def bytes_of(need: Need, token_bytes: int, capacities: Sequence[int]) -> int:
    """Return the bytes that a job takes which is alone."""
    return Account(0, token_bytes, [_Empty(n) for n in capacities]).n_bytes([need])


def longest_sequence(most: int, token_bytes: int, capacities: Sequence[int]) -> int:
    """Return the longest sequence whose keys and values fit into `most` bytes, 0 if none does."""

    def fits_not(length: int) -> bool:
        return bytes_of(Need(length, 1, 1, length), token_bytes, capacities) > most

    return bisect_left(range(1, capacities[-1] + 1), x=True, key=fits_not)
