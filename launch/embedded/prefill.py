"""Computing prompts: known heads from the cache, the rest in chunks of like length together."""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import torch
from torch import Tensor

from launch.embedded.jobs import Job
from launch.embedded.layout import PrefillCache
from launch.embedded.runner import Chunk, Runner

BLOCK = 32


class Prefixes:
    """Blocks of 32 tokens, named by all tokens up to their end.

    Args:
        max_bytes: Size of all blocks together; 0 keeps nothing.
        token_bytes: Size of one token's keys and values.
    """

    def __init__(self, max_bytes: int, token_bytes: int) -> None:
        self._most = max_bytes // (BLOCK * token_bytes)
        self._blocks: OrderedDict[bytes, Tensor] = OrderedDict()

    def names(self, ids: Sequence[int]) -> list[bytes]:
        """Names of the whole blocks of a sequence."""
        if not self._most:
            return []
        found, last = [], b""
        packed = array("q", ids).tobytes()
        size = BLOCK * 8
        for start in range(0, len(packed) - size + 1, size):
            last = blake2b(last + packed[start : start + size], digest_size=16).digest()
            found.append(last)
        return found

    def find(self, ids: Sequence[int], limit: int) -> tuple[Tensor | None, list[bytes]]:
        """The longest known head, at most `limit` tokens; and the names of all blocks."""
        names = self.names(ids)
        hits = []
        for name in names[: max(0, limit) // BLOCK]:
            block = self._blocks.get(name)
            if block is None:
                break
            hits.append(block)
        self._touch(names[: len(hits)])
        return (torch.cat(hits) if hits else None), names

    def missing(self, names: Sequence[bytes]) -> bool:
        """Return True if any of the blocks is not kept yet."""
        return any(name not in self._blocks for name in names)

    def keep(self, names: Sequence[bytes], flat: Tensor) -> None:
        """Keep the blocks of a sequence whose flat keys and values have shape `(n, width)`."""
        for place, name in enumerate(names[: flat.shape[0] // BLOCK]):
            if name not in self._blocks:
                self._blocks[name] = flat[place * BLOCK : (place + 1) * BLOCK].clone()
        self._touch(names)
        while len(self._blocks) > self._most:
            self._blocks.popitem(last=False)

    def _touch(self, names: Sequence[bytes]) -> None:
        # A block is of no use without those before it, so these must be dropped after it.
        for name in reversed(names):
            if name in self._blocks:
                self._blocks.move_to_end(name)


_LOGIT_NUMBERS = 1 << 24
_CACHED_LOGIT_NUMBERS = 1 << 22
_LIKE = 0.7
# Passes of more tokens are slower for each on a CPU, as what passes between layers leaves its cache
# (SmolLM2-135M: 1.56 ms of processor time a token for 4 rows of 256 tokens, 1.32 for one).
_CACHED_BYTES = 1 << 21
_LEAST_TOKENS = 128


class Prefiller:
    """Computes sequences of jobs up to where their answers begin."""

    def __init__(self, runner: Runner, prefixes: Prefixes) -> None:
        self._runner = runner
        self._prefixes = prefixes
        # Tokens whose widest activations fit into a processor's cache; elsewhere there is no bound.
        token_bytes = runner.widest * runner.like.element_size()
        on_cpu = runner.device.type == "cpu"
        self._most_tokens = max(_LEAST_TOKENS, _CACHED_BYTES // token_bytes) if on_cpu else math.inf
        self._plan: dict[Job, int] = {}

    def begin(self, job: Job) -> None:
        """Look up what is known of a job's prompt, and what block it would compute first."""
        job.known.clear()
        job.n_done = job.n_cached = 0
        prompt = job.ids[: job.n_prompt]
        limit = min(job.reuse, job.n_prompt - 1)
        known, job.names = self._prefixes.find(prompt, limit)
        if known is not None:
            job.known.append(known)
            job.n_done = job.n_cached = known.shape[0]
        n_known = job.n_done // BLOCK
        wants = job.names[n_known : limit // BLOCK]
        job.claim = wants[0] if wants else b""

    def groups(self, jobs: Sequence[Job], budget: int) -> Iterator[list[Job]]:
        """Cut what is left of the jobs to chunks, and put chunks of like length together.

        Args:
            jobs: Oldest first.
            budget: Most tokens of a job's chunk. A group of several has no more either, and on a
                CPU no more than its cache is good for.
        """
        self._plan = {job: self._chunk_length(job, budget) for job in jobs}
        watched = [job for job in jobs if _watched(job)]
        others = [job for job in jobs if not _watched(job)]
        yield from ([job] for job in watched)
        ordered = sorted(others, key=lambda job: -self._plan[job])
        group: list[Job] = []
        for job in ordered:
            longest = self._plan[group[0]] if group else 0
            full = longest * (len(group) + 1) > min(budget, self._most_tokens)
            if group and (full or self._plan[job] < _LIKE * longest - 8):
                yield group
                group = []
            group.append(job)
        if group:
            yield group

    def compute(self, group: Sequence[Job]) -> Tensor | None:
        """Compute the planned chunk of each job of a group.

        Returns:
            Logits of the first token of jobs that are now whole and draw answers, float32, shape
            `(jobs, vocabulary)`; None where there are none.
        """
        chunks = [self._chunk(job) for job in group]
        attention = group[0].attention if _watched(group[0]) else None
        if attention is None:
            states, cache = self._runner.prefill(chunks)
        else:
            states, cache = self._runner.watched(chunks[0], attention)
        drawing = []
        for row, (job, chunk) in enumerate(zip(group, chunks, strict=True)):
            self._read(job, row, len(chunk.ids), states)
            self._store(job, row, len(chunk.ids), cache)
            job.n_done += len(chunk.ids)
            if not job.n_left and job.answer is not None:
                drawing.append((row, len(chunk.ids) - 1))
        if not drawing:
            return None
        rows, places = (torch.tensor(part) for part in zip(*drawing, strict=True))
        return self._runner.logits(states[rows, places])

    def _chunk_length(self, job: Job, budget: int) -> int:
        """Tokens of the next chunk; a tree and the token before it are never cut apart."""
        if _watched(job):
            return min(job.n_left, budget, self._runner.watcher.tokens(len(job.ids)))
        if job.attention is not None:
            return min(job.n_prompt - job.n_done, budget)
        tail = 0 if job.tree is None else job.tree.shape[0]
        linear = job.n_left - tail
        return job.n_left if linear <= budget else budget

    def _chunk(self, job: Job) -> Chunk:
        start, stop = job.n_done, job.n_done + self._plan[job]
        places = range(len(job.ids)) if job.positions is None else job.positions
        if len(job.known) > 1:
            job.known[:] = [torch.cat(job.known)]
        prefix = job.known[0] if job.known else None
        tree = job.tree if stop == len(job.ids) else None
        return Chunk(job.ids[start:stop], places[start:stop], prefix, tree)

    def _read(self, job: Job, row: int, n_tokens: int, states: Tensor) -> None:
        """Feed the job's reader the logits of its places in this chunk."""
        if job.reader is None:
            return
        places = job.reader.places
        stop = job.n_done + n_tokens
        wanted: list[int] = []
        while job.n_read + len(wanted) < len(places):
            place = places[job.n_read + len(wanted)]
            if place >= stop:
                break
            wanted.append(place - job.n_done)
        vocabulary = self._runner.vocabulary
        on_cpu = self._runner.device.type == "cpu"
        most = _CACHED_LOGIT_NUMBERS if on_cpu else _LOGIT_NUMBERS
        step = max(1, most // vocabulary)
        for first in range(0, len(wanted), step):
            logits = self._runner.logits(states[row, wanted[first : first + step]])
            job.reader.read(job.n_read, logits)
            job.n_read += logits.shape[0]

    def _store(self, job: Job, row: int, n_tokens: int, cache: PrefillCache) -> None:
        """Keep the chunk's keys and values where a later pass needs them."""
        last = job.n_done + n_tokens == len(job.ids)
        keeps = bool(job.names) and self._prefixes.missing(job.names)
        if last and not keeps and not job.n_rows:
            return
        flat = self._runner.layout.flatten(cache.fresh, row, n_tokens)
        job.known.append(flat)
        if last and keeps:
            self._prefixes.keep(job.names, torch.cat(job.known)[: job.n_prompt])


def _watched(job: Job) -> bool:
    """Return True if the attention of a job's next chunk is wanted; it is then computed alone."""
    return job.attention is not None and job.n_done >= job.n_prompt
