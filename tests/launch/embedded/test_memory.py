"""Keys and values of the requests under way stay within a number of bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from launch.embedded import layout
from launch.embedded.engine import Engine, Settings, capacities
from launch.embedded.jobs import Answer, Draw, Job, Stop
from launch.embedded.layout import Account, Need, Pool, Slots, longest_sequence
from launch.embedded.model import PackedLinear
from launch.embedded.runner import Chunk, Prefilled, Runner
from launch.embedded.served import Served, load
from orchestrator.errors import LaunchError
from tests.crossed import LONG
from tests.launch.embedded.client import drawn, run, telling

TOKEN = 1024
"""Bytes of a token of the tiny model `bos`."""


def drawing(seed: int, n_prompt: int, n_tokens: int) -> Job:
    rng = random.Random(seed)
    ids = [10 + rng.randrange(200) for _ in range(n_prompt)]
    answer = Answer(Draw(temperature=0), Stop(n_tokens))
    return Job(ids, n_prompt, answer=answer, reuse=n_prompt - 1)


class Weighing:
    """A runner that notes the bytes of keys and values before each pass."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.engine: Engine | None = None
        self.most = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def prefill(self, chunks: Sequence[Chunk]) -> Prefilled:
        longest = max(0 if one.prefix is None else one.prefix.shape[0] for one in chunks)
        self._weigh(longest * len(chunks) * TOKEN)
        return self._runner.prefill(chunks)

    def step(self, pool: Pool, ids: Sequence[int], positions: Sequence[int]) -> torch.Tensor:
        self._weigh(0)
        return self._runner.step(pool, ids, positions)

    def _weigh(self, joined: int) -> None:
        assert self.engine is not None
        known = [flat for job in self.engine._started for flat in job.known]
        pools = sum(batch.pool.n_bytes for batch in self.engine._batches)
        kept = sum(flat.numel() * flat.element_size() for flat in known)
        self.most = max(self.most, pools + kept + joined)


def weighed(bos: Served, jobs: Sequence[Job], **limits: Any) -> int:
    """Run jobs that come together; the most bytes that they took."""
    runner: Any = Weighing(bos.runner)
    engine = Engine(runner, bos.tokens, Settings(max_len=512, **limits))
    runner.engine = engine
    engine.start()
    run(engine, *jobs)
    engine.close()
    assert all(batch.pool.n_bytes == 0 for batch in engine._batches)
    return int(runner.most)


@pytest.mark.parametrize("kv_tokens", [1500, pytest.param(6000, marks=LONG)])
def test_answers_under_way_stay_within_the_bytes(bos: Served, kv_tokens: int) -> None:
    assert bos.runner.token_bytes == TOKEN
    rng = random.Random(3)
    sizes = [(rng.randint(2, 300), rng.randint(1, 40)) for _ in range(40)]
    jobs = [drawing(place, *size) for place, size in enumerate(sizes)]
    free = weighed(bos, jobs, kv_bytes=1 << 40)
    bounded = [drawing(place, *size) for place, size in enumerate(sizes)]
    most = weighed(bos, bounded, kv_bytes=kv_tokens * TOKEN)
    assert most <= kv_tokens * TOKEN < free
    # More than one at a time all the same.
    assert most > 400 * TOKEN
    assert [drawn(job).ids for job in bounded] == [drawn(job).ids for job in jobs]


def test_prompts_with_a_cached_beginning_stay_within_the_bytes(bos: Served) -> None:
    """Little is computed for each, so that very many would fit into a round's share."""
    cached = drawing(1, 400, 1)
    jobs = [Job([*cached.ids, 20 + n], 401, reuse=400) for n in range(40)]
    for job in jobs:
        job.answer = Answer(Draw(temperature=0), Stop(1))
    runner: Any = Weighing(bos.runner)
    kv_bytes = 3000 * TOKEN
    engine = Engine(runner, bos.tokens, Settings(max_len=512, kv_bytes=kv_bytes))
    runner.engine = engine
    engine.start()
    run(engine, cached)
    run(engine, *jobs)
    engine.close()
    assert sum(job.n_cached for job in jobs) >= 39 * 384
    assert runner.most <= kv_bytes


def test_a_job_waits_for_memory_before_later_ones(bos: Served) -> None:
    order: list[str] = []
    jobs = {"long": drawing(1, 300, 100), "longer": drawing(2, 300, 120), "short": drawing(3, 9, 2)}
    for name, job in jobs.items():
        telling(job, partial(order.append, name))
    weighed(bos, list(jobs.values()), kv_bytes=1300 * TOKEN)
    assert order[:100] == ["long"] * 100
    assert set(order[100:102]) <= {"longer", "short"}


def test_a_model_takes_no_longer_sequences_than_fit(folders: dict[str, Path]) -> None:
    place = str(folders["bos"])
    assert load("a", place, Settings(kv_bytes=4 << 20)).max_len == 512
    shorter = load("a", place, Settings(kv_bytes=1 << 20)).max_len
    assert 200 < shorter < 512
    with pytest.raises(LaunchError, match=r"a: 0 MiB for keys and values hold \d+ tokens; free"):
        load("a", place, Settings(kv_bytes=8 * TOKEN))


def test_by_default_models_share_a_quarter_of_what_is_free(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "free_bytes", lambda device: 160 << 20)
    found = load("a", str(folders["bos"]), Settings(n_models=4)).engine.limits
    assert found.kv_bytes == 10 << 20


@pytest.mark.parametrize(
    ("limit", "taken", "statistics", "cached"),
    [
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        (
            "memory/memory.limit_in_bytes",
            "memory/memory.usage_in_bytes",
            "memory/memory.stat",
            "total_inactive_file",
        ),
    ],
)
def test_free_memory_is_that_of_the_control_group(
    tmp_path: Path, limit: str, taken: str, statistics: str, cached: str
) -> None:
    (tmp_path / "memory").mkdir()
    assert layout._left_in_group(tmp_path) == 1 << 62
    (tmp_path / taken).write_text("300\n")
    (tmp_path / statistics).write_text(f"anon 200\n{cached} 90\n")
    (tmp_path / limit).write_text("max\n")
    assert layout._left_in_group(tmp_path) == 1 << 62
    (tmp_path / limit).write_text("1000\n")
    assert layout._left_in_group(tmp_path) == 790
    (tmp_path / limit).write_text("100\n")
    assert layout._left_in_group(tmp_path) == 0


def test_some_memory_is_free() -> None:
    assert 0 < layout.free_bytes(torch.device("cpu")) < 1 << 50


@settings(max_examples=60)
@given(most=st.integers(1, 1 << 20), token=st.integers(1, 512), max_len=st.integers(1, 5000))
def test_the_longest_sequence_fits_and_one_more_token_does_not(
    most: int, token: int, max_len: int
) -> None:
    pools = [*(n for n in (256, 1024, 4096) if n < max_len), max_len]
    found = longest_sequence(most, token, pools)

    def fits(length: int) -> bool:
        account = Account(most, token, [Slots(n) for n in pools])
        return account.n_bytes([Need(length, 1, 1, length)]) <= most

    assert 0 <= found <= max_len
    assert found == 0 or fits(found)
    assert found == max_len or not fits(found + 1)


def test_the_first_job_is_always_let_in(bos: Served) -> None:
    pool = Pool(bos.runner.layout, 512, bos.runner.like)
    account = Account(10, TOKEN, [pool])
    job = drawing(1, 100, 100)
    assert account.fits(job)
    account.add(job)
    assert account.n_rows == 1
    assert not account.fits(drawing(2, 1, 1))
    account.drop(job)
    account.drop(job)
    assert account.fits(drawing(2, 1, 1))


def test_the_fingerprint_names_the_kernels(bos: Served) -> None:
    is_packed = any(isinstance(one, PackedLinear) for one in bos.runner.model.modules())
    kernels = "packed" if is_packed else "plain"
    assert bos.fingerprint.endswith(f"-cpu-{kernels}")


def test_the_fingerprint_of_plain_layers_differs(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launch.embedded.served.can_pack", lambda model: False)
    found = load("a", str(folders["bos"]), Settings())
    assert found.fingerprint.endswith("-cpu-plain")


def test_rows_of_a_large_model_decode_together() -> None:
    """Each pool with rows reads all weights once more."""

    def sized(n_tokens: int) -> Any:
        return SimpleNamespace(weight_bytes=n_tokens * 1000, token_bytes=1000)

    small, large, larger = map(sized, (2_000, 11_700, 10_000_000))
    assert capacities(3000, small) == [256, 1024, 3000]
    assert capacities(3000, large) == [1024, 3000]
    assert capacities(200, large) == [200]
    assert capacities(3000, larger) == [3000]
