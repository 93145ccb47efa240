import io
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import polars as pl
from rich.console import Group

from orchestrator.contracts.method import schema_of
from orchestrator.frames import polars_schema
from orchestrator.methods.pairwise_ranking import Kind as PairwiseRanking
from orchestrator.ranking.analysis import analyse_ranking
from orchestrator.ranking.judged import tabulate
from orchestrator.records import Standing
from orchestrator.report.generic import generic_markdown, generic_table
from orchestrator.report.page import print_to
from orchestrator.report.progress import (
    ModelProgress,
    Progress,
    RankingProgress,
)
from orchestrator.report.rankings import tables_of


class Stream(io.StringIO):
    """A text file in memory with an encoding."""

    def __init__(self, encoding: str = "utf-8", *, tty: bool = False) -> None:
        super().__init__()
        self._encoding = encoding
        self._tty = tty

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._tty


def a_model(name: str = "judge", **changed: object) -> ModelProgress:
    fields = {
        "state": "ready",
        "in_flight": 3,
        "limit": 4,
        "queued": 5,
        "done": 10,
        "failed": 0,
        "retried": 0,
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        **changed,
    }
    return ModelProgress(name, **fields)  # type: ignore[arg-type]


def a_progress(elapsed_s: float = 1.0, **changed: object) -> Progress:
    fields = {
        "run_dir": "runs/demo",
        "units_total": 1000,
        "units_stored": 100,
        "units_done": 50,
        "units_failed": 2,
        "units_open": 8,
        "units_aside": 0,
        "requests_sent": 60,
        "asks_found": 30,
        "asks_joined": 4,
        "models": (a_model(),),
        "failures": {"timeout": 2},
        **changed,
    }
    return Progress(elapsed_s=elapsed_s, **fields)  # type: ignore[arg-type]


def a_ranking(names: Sequence[str] = ("expert", "novice")) -> RankingProgress:
    standings = tuple(
        Standing(name, 1100.4 - 200 * i, 12.6 if i else None, 40) for i, name in enumerate(names)
    )
    return RankingProgress("pairwise", 40, standings)


def an_analysis(
    strengths=None, n_items=40, *, n_failed=0, categories=1, judge="judge", coverage=None
):
    """A ranking of simulated judgments; the strengths are natural-log."""
    strengths = (
        {"expert": 1.5, "apprentice": 0.0, "novice": -1.5} if strengths is None else strengths
    )
    rng = np.random.default_rng(3)
    rows = []
    for item in range(n_items):
        for a, b in combinations(strengths, 2):
            noise = 0.7 * rng.normal()
            prefer = 1 / (1 + np.exp(strengths[b] - strengths[a] + noise))
            rows.append(_judged(f"i{item}", f"c{item % categories}", (a, b), judge, prefer))
    for row in rows[:n_failed]:
        row |= {
            "status": "failed",
            "cause": "timeout",
            "message": "\x1b[2Jtoo slow",
            "prefer_a": None,
        }
    for row in rows if coverage is not None else ():
        row |= {"coverage_ab": coverage, "coverage_ba": coverage}
    frame = pl.DataFrame(rows, schema=polars_schema(schema_of(PairwiseRanking)), orient="row")
    return analyse_ranking(tabulate([frame], len(frame)), judge=judge, confidence_level=0.95)


def _judged(item, category, pair, judge, prefer):
    row = dict.fromkeys(schema_of(PairwiseRanking))
    row |= {"item": item, "category": category, "model_a": pair[0], "model_b": pair[1]}
    row |= {"judge": judge, "coverage_ab": 0.9, "coverage_ba": 0.8, "prefer_a": prefer}
    row |= {"prefer_a_ab": prefer, "prefer_a_ba": prefer, "mean_pre": 2 * prefer - 1}
    row |= {"mode_pre": float(np.sign(prefer - 0.5)), "exact": True, "same_text": False}
    return row | {"status": "ok"}


def ranking_text(analysis, exact_match=None):
    """Return the tables of a ranking as a terminal shows them."""
    return Group(*map(generic_table, tables_of(analysis, exact_match)))


def ranking_markdown(analysis, exact_match=None):
    """Return the tables of a ranking as Markdown."""
    return "\n\n".join(map(generic_markdown, tables_of(analysis, exact_match)))


def printed(renderable, width=100, encoding="utf-8"):
    """Return the printed text, without the blanks at the ends of lines."""
    stream = Stream(encoding)
    print_to(stream, renderable, width)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
