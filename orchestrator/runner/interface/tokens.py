"""Tokens of a run's texts for `Result.tokens`."""

import polars as pl

from orchestrator.runner.interface.result import Result
from orchestrator.runner.results.replayed import Replay
from orchestrator.runner.results.tokens import tokens_frame


def tokens(result: Result, item: str) -> pl.DataFrame:
    """The tokens of all texts of an item; see `Result.tokens`."""
    replay = Replay(result.path, result.frames, allow_code=result.allow_code)
    return tokens_frame(replay, item)
