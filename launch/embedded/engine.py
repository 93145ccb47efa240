"""One model's batching loop: requests join and leave between steps.

A thread takes requests from a queue, computes prompts in batches of similar length, at most
`prefill_tokens` between two decoding steps, and lets all running answers advance by one token a
step. Rows live in pools by length, so that short rows never attend over a long one's length.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from launch.embedded import MAX_ROWS, PREFIX_BYTES
from launch.embedded.jobs import Answer, Drawn, Job, Sampler
from launch.embedded.layout import Account, Pool
from launch.embedded.prefill import Prefiller, Prefixes
from launch.embedded.protocol import ClientGoneError, internal, overloaded
from launch.embedded.runner import Runner
from launch.embedded.tokens import Tokens


@dataclass(slots=True, eq=False)
class Row:
    """An answer that decodes: `length` tokens are in the cache, `last` is to be fed next.

    A spoilt row has met logits that are not numbers.
    """

    job: Job
    answer: Answer
    length: int
    last: int = 0
    spoilt: bool = False


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
            self.pool.copy(len(self.rows), slot, last.length)
            self.rows[slot] = last
        if not self.rows:
            self.pool.release()

    def clear(self) -> None:
        """Drop all rows."""
        self.rows.clear()
        self.sampler = None
        self.pool.release()


_log = logging.getLogger(__name__)
_SMALLEST_POOL = 256
_POOL_GROWTH = 4
# A step reads all weights for each pool that has rows, so pools begin where this many rows of their
# length read as much again: to decode short rows apart costs more than their padding.
_ROWS_WORTH_A_POOL = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings for loading and running models; bounds are those of each.

    Attributes:
        max_len: Longest sequence, in tokens; 0 takes the model's own where it is loaded.
        max_rows: Answers that decode at the same time.
        max_waiting: Requests that may wait; more are refused.
        prefill_tokens: Prompt tokens computed between two decoding steps.
        prefix_bytes: Size of the prefix cache; 0 turns it off.
        attention_tokens: Longest sequence whose attention may be asked for.
        kv_bytes: Keys and values of the requests under way; 0 takes a share of what is free once
            the model is loaded, and bounds nothing in an engine that is made without that.
        dtype: Of weights and activations; log-probabilities are float32 whatever it is.
        device: Where they run.
        n_models: Models that share what is free.
        weight_noise: Standard deviation of noise in each weight matrix, relative to its own.
        noise_seed: Of that noise.
        skip_layers: Numbers of layers that are left out.
    """

    max_len: int = 0
    max_rows: int = MAX_ROWS
    max_waiting: int = 4096
    prefill_tokens: int = 1024
    prefix_bytes: int = PREFIX_BYTES
    attention_tokens: int = 4096
    kv_bytes: int = 0
    dtype: str = "float32"
    device: str = "cpu"
    n_models: int = 1
    weight_noise: float = 0.0
    noise_seed: int = 0
    skip_layers: tuple[int, ...] = ()


class Engine:
    """Runs jobs of one model on a thread of its own.

    Args:
        runner: The model.
        tokens: Its tokenizer, for stop strings.
        limits: Bounds.
        before_step: Called on the thread before each round of work (to share out threads).

    Attributes:
        totals: Counts since the start by name; read from other threads without a lock.
        n_waiting: Requests that wait for their first pass.
        n_running: Requests under way.
    """

    def __init__(
        self,
        runner: Runner,
        tokens: Tokens,
        limits: Settings,
        before_step: Callable[[], None] = lambda: None,
    ) -> None:
        self.limits = limits
        self.totals: Counter[str] = Counter()
        self._runner = runner
        self._tokens = tokens
        self._before_step = before_step
        token_bytes = runner.token_bytes
        self._prefiller = Prefiller(runner, Prefixes(limits.prefix_bytes, token_bytes))
        pools = [Pool(runner.layout, n, runner.like) for n in capacities(limits.max_len, runner)]
        self._batches = [Batch(pool) for pool in pools]
        self._account = Account(limits.kv_bytes or sys.maxsize, token_bytes, pools)
        self._shots: deque[Job] = deque()
        self._texts: deque[Job] = deque()
        self._started: list[Job] = []
        self._wake = threading.Condition()
        self._inbox: list[Job] = []
        self._sweep = False
        self._closed = False
        self.n_waiting = 0
        self.n_running = 0
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def busy(self) -> bool:
        """True if there is any request."""
        return self.n_waiting + self.n_running > 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Fail what is under way and end the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, *jobs: Job) -> None:
        """Queue jobs, all of them or none.

        Raises:
            ApiError: 503 when too many wait.
        """
        with self._wake:
            if self._closed:
                raise overloaded(self.n_waiting)
            if self.n_waiting + len(jobs) > self.limits.max_waiting:
                self.totals["refused"] += 1
                raise overloaded(self.n_waiting)
            for job in jobs:
                self.totals["requests"] += 1
                job.arrival = self.totals["requests"]
            self._inbox += jobs
            self.n_waiting += len(jobs)
            self._wake.notify()

    def cancel(self, job: Job) -> None:
        """Drop a job between two steps; `on_done` gets `ClientGoneError`."""
        with self._wake:
            job.cancelled = True
            self._sweep = True
            self._wake.notify()

    def _run(self) -> None:
        with torch.inference_mode():
            while self._collect():
                self._before_step()
                try:
                    self._work()
                except Exception as error:  # noqa: BLE001 (boundary: one bad step must not end the server)
                    _log.exception("a step failed")
                    self._fail_all(internal(f"the engine failed: {type(error).__name__}"))
        self._fail_all(internal("the server is shutting down"))

    def _collect(self) -> bool:
        """Take what was submitted and cancelled; wait where there is nothing to do."""
        with self._wake:
            while not (self._inbox or self._closed or self._sweep or self.n_running):
                if self._shots or self._texts:
                    break
                self._wake.wait()
            for job in self._inbox:
                (self._texts if job.n_rows else self._shots).append(job)
            self._inbox.clear()
            sweep, self._sweep = self._sweep, False
        if sweep:
            self._drop_cancelled()
        return not self._closed

    def _work(self) -> None:
        # Compute a bounded share of what is asked, oldest first.
        self._start_jobs()
        jobs = [job for job in self._started if not job.held]
        for group in self._prefiller.groups(jobs, self.limits.prefill_tokens):
            logits = self._prefiller.compute(group)
            if logits is not None:
                self._first_tokens([job for job in group if not job.n_left], logits)
            for job in group:
                if job.answer is None and not job.n_left:
                    self._finish(job)
        self._started = [job for job in self._started if job.n_left]
        for place, batch in enumerate(self._batches):
            if batch.rows:
                self._decode(batch)
                self._promote(place)

    def _start_jobs(self) -> None:
        """Begin as many jobs as a round's share holds.

        A job whose first unknown block is being computed for another one is held until that one's
        prompt is whole: the two orders of a pair come together and share most of their prompt.
        """
        claimed = {job.claim for job in self._started if job.claim and not job.held}
        budget = self.limits.prefill_tokens
        budget -= sum(job.n_left for job in self._started if not job.held)
        held = deque(job for job in self._started if job.held)
        while budget > 0:
            job = held.popleft() if held else self._next_job()
            if job is None:
                break
            self._prefiller.begin(job)
            if not job.held:
                self._started.append(job)
            job.held = job.claim in claimed
            if job.held:
                continue
            claimed |= {job.claim} - {b""}
            self.totals["prompt_tokens"] += job.n_prompt
            self.totals["cached_tokens"] += job.n_cached
            budget -= job.n_left

    def _next_job(self) -> Job | None:
        """The oldest job that can start now: one that draws longer texts needs free rows.

        One that needs more memory than is left keeps all others waiting, or it might never start.
        """
        queues = [self._shots] if self._shots else []
        if self._texts and self._account.n_rows < self.limits.max_rows:
            queues.append(self._texts)
        if not queues:
            return None
        queue = min(queues, key=lambda queue: queue[0].arrival)
        if not self._account.fits(queue[0]):
            return None
        job = queue.popleft()
        self._account.add(job)
        with self._wake:
            self.n_waiting -= 1
            self.n_running += 1
        return job

    def _first_tokens(self, jobs: list[Job], logits: torch.Tensor) -> None:
        rows = [Row(job, job.answer, job.n_prompt) for job in jobs if job.answer is not None]
        sampler = Sampler([row.answer.draw for row in rows], self._runner.device)
        drawn = sampler.draw(logits, [0] * len(rows))
        for place, row in enumerate(rows):
            if self._take(row, drawn[place]):
                batch = next(b for b in self._batches if row.length < b.pool.capacity)
                slot = batch.add(row)
                start = 0
                for flat in row.job.known:
                    batch.pool.write(slot, start, flat)
                    start += flat.shape[0]
        for job in jobs:
            job.known.clear()
            if not job.reported:
                self._account.computed(job)

    def _decode(self, batch: Batch) -> None:
        rows = batch.rows
        if batch.sampler is None:
            batch.sampler = Sampler([row.answer.draw for row in rows], self._runner.device)
        ids, places = [row.last for row in rows], [row.length for row in rows]
        logits = self._runner.step(batch.pool, ids, places)
        drawn = batch.sampler.draw(logits, [len(row.answer.ids) for row in rows])
        self.totals["steps"] += 1
        for slot in range(len(rows) - 1, -1, -1):
            row = rows[slot]
            row.length += 1
            if not self._take(row, drawn[slot]):
                batch.drop(slot)

    def _take(self, row: Row, drawn: Drawn) -> bool:
        """Give a row its token; False when it needs no further one."""
        job, answer = row.job, row.answer
        token, logprob, listed = drawn
        if logprob != logprob:
            row.spoilt = True
            self._finish(job, internal("the model gave logits that are not numbers"))
        if job.reported:
            return False
        self.totals["generated_tokens"] += 1
        ended = answer.add(token, logprob, listed, self._tokens)
        row.last = token
        if ended:
            self._finish(job)
        return not ended

    def _promote(self, place: int) -> None:
        """Move rows that fill their pool's length to the next pool."""
        batch = self._batches[place]
        for slot in range(len(batch.rows) - 1, -1, -1):
            row = batch.rows[slot]
            if row.length >= batch.pool.capacity:
                longer = self._batches[place + 1]
                batch.pool.copy(slot, longer.add(row), row.length, longer.pool)
                batch.drop(slot)

    def _finish(self, job: Job, error: Exception | None = None) -> None:
        """Report a job once; its row ends at its next step."""
        if job.reported:
            return
        job.reported = True
        job.known.clear()
        self._account.drop(job)
        with self._wake:
            self.n_running -= 1
        if error is not None and not isinstance(error, ClientGoneError):
            self.totals["failed"] += 1
        job.on_done(error)

    def _drop_cancelled(self) -> None:
        for queue in (self._shots, self._texts):
            gone = [job for job in queue if job.cancelled]
            for job in gone:
                queue.remove(job)
                with self._wake:
                    self.n_waiting -= 1
                    self.n_running += 1
                self._finish(job, ClientGoneError())
        for job in [job for job in self._started if job.cancelled]:
            self._started.remove(job)
            self._finish(job, ClientGoneError())
        for batch in self._batches:
            for slot in range(len(batch.rows) - 1, -1, -1):
                job = batch.rows[slot].job
                if job.cancelled:
                    batch.drop(slot)
                    self._finish(job, ClientGoneError())

    def _fail_all(self, error: Exception) -> None:
        with self._wake:
            jobs = [*self._inbox, *self._shots, *self._texts]
            self._inbox.clear()
            self.n_waiting -= len(jobs)
            self.n_running += len(jobs)
        self._shots.clear()
        self._texts.clear()
        jobs += self._started
        self._started.clear()
        for batch in self._batches:
            jobs += [row.job for row in batch.rows]
            batch.clear()
        for job in jobs:
            self._finish(job, error)


def capacities(max_len: int, runner: Runner) -> list[int]:
    """Lengths of the pools of a model, the longest sequence last."""
    size, found = _SMALLEST_POOL, []
    while size * _POOL_GROWTH * _ROWS_WORTH_A_POOL * runner.token_bytes <= runner.weight_bytes:
        size *= _POOL_GROWTH
    while size < max_len:
        found.append(size)
        size *= _POOL_GROWTH
    return [*found, max_len]
