"""Prompts are computed together as far as that is faster; loading leaves no helper threads."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from launch.embedded.app import _in_thread
from launch.embedded.jobs import Job
from launch.embedded.prefill import Prefiller, Prefixes
from orchestrator.errors import LaunchError


def groups(lengths: list[int], device: str, widest: int = 1536) -> list[list[int]]:
    """Cut prompts to groups for a model whose widest layer has so many numbers."""
    place = torch.device(device)
    runner: Any = SimpleNamespace(device=place, widest=widest, like=torch.empty(0))
    prefiller = Prefiller(runner, Prefixes(0, 1))
    jobs = [Job([7] * n, n) for n in lengths]
    return [[len(job.ids) for job in group] for group in prefiller.groups(jobs, 1024)]


def test_a_group_fits_the_cache_of_a_processor() -> None:
    # 2 MiB hold 341 tokens of 1,536 numbers.
    assert groups([200, 210, 190], "cpu") == [[210], [200], [190]]
    assert groups([100] * 5, "cpu") == [[100] * 3, [100] * 2]
    assert groups([200, 210, 190], "cpu", widest=512) == [[210, 200, 190]]
    assert groups([200, 210, 190], "cuda") == [[210, 200, 190]]


def test_a_long_prompt_is_a_group_of_its_own() -> None:
    assert groups([900, 20, 20], "cpu") == [[900], [20, 20]]


def test_very_wide_layers_leave_groups_of_some_size() -> None:
    assert groups([64, 64, 64], "cpu", widest=1 << 20) == [[64, 64], [64]]


def test_models_are_loaded_on_a_thread_that_ends() -> None:
    before = torch.get_num_threads()
    name, threads = _in_thread(lambda: (threading.current_thread(), torch.get_num_threads()), 3)
    assert threads == 3
    assert name is not threading.current_thread()
    assert not name.is_alive()
    assert torch.get_num_threads() == before


def test_an_error_of_loading_is_raised() -> None:
    def fail() -> None:
        raise LaunchError("no such model")

    with pytest.raises(LaunchError, match="no such model"):
        _in_thread(fail, 1)
