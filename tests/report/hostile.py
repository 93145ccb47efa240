"""A run whose models, items and answers try whatever text can try in a page."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from orchestrator.contracts.method import schema_of
from orchestrator.frames import polars_schema
from orchestrator.methods import answers, pairwise_ranking, pointwise, probdiff
from orchestrator.probing.record import BAD, Finding, ProbeRecord
from orchestrator.ranking.analysis import analyse_ranking
from orchestrator.ranking.judged import tabulate
from orchestrator.report.brief import brief
from orchestrator.report.html.figures import Material
from orchestrator.report.progress import Completeness
from orchestrator.runner.results.tables import all_sources, summarise
from orchestrator.store import FailureCount

SCRIPT = "<script>window.hacked=1</script>"
ATTACKS = (
    SCRIPT,
    "</pre></script><script>window.hacked=2</script><!--",
    "<img src=x onerror=window.hacked=3><svg onload=window.hacked=4>",
    '"><a href="javascript:window.hacked=5" onmouseover=window.hacked=6>x</a>',
    "[x](javascript:window.hacked=7) {{ 7 * 7 }} {% raw %} ${window.hacked=8}",
    "right \u202eot tfel\u2066 and \u200bhidden\x00\x1b[2J\u2028line",
    "x" * 300_000,
    "<iframe src=//example.org></iframe><style>body{display:none}</style><base href=//example.org>",
    "Z" + "\u0301" * 400,
    "",
)
MODELS = ('<b onmouseover="window.hacked=9">m</b>', "\u202eledom", "plain'\"&<!--")
JUDGE = "</title><script>window.hacked=10</script>"
PROBED = ProbeRecord(
    backend="openai",
    model=SCRIPT,
    version=ATTACKS[5],
    findings=(Finding("bos_twice", SCRIPT, BAD, ATTACKS[3], ATTACKS[1]),),
)
SETTINGS: dict[str, Any] = {
    "name": SCRIPT,
    "description": ATTACKS[3] + ATTACKS[4],
    "seed": 0,
    "models": {MODELS[0]: {"weights": ATTACKS[2]}},
    "dataset": {"kind": "jsonl", "path": SCRIPT},
    "methods": [
        {"kind": "probdiff"},
        {"kind": "pointwise", "judges": ["judge"]},
        {"kind": "pairwise_ranking", "judges": ["judge"]},
        {"kind": "answers"},
    ],
    "statistics": {"confidence_level": 0.95, "n_resamples": 100},
}


def _frame(method: str, schema: Mapping[str, str], rows: list[dict[str, Any]]) -> pl.DataFrame:
    columns = {"method": "str", **schema}
    lines = [dict.fromkeys(columns) | {"method": method, "status": "ok"} | row for row in rows]
    return pl.DataFrame(lines, schema=polars_schema(columns), orient="row")


def frames(n_items: int = 30) -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(5)
    given: list[dict[str, Any]] = []
    rewritten: list[dict[str, Any]] = []
    scored: list[dict[str, Any]] = []
    judged: list[dict[str, Any]] = []
    for item in range(n_items):
        attack = ATTACKS[item % len(ATTACKS)]
        about = {"item": f"{SCRIPT}{item}", "category": ATTACKS[item % 3], "turn": 1}
        for model in MODELS:
            one = about | {"model": model}
            right = bool(rng.random() < 0.5)
            given.append(
                one
                | {"prompt": attack, "text": attack + str(item), "reference": attack}
                | {"exact_match": right, "mean_logprob": -float(rng.random())}
            )
            d = float(rng.normal() / 10)
            rewritten.append(
                one
                | {"answer": attack, "rewriting": attack + "!", "d": d, "unchanged": False}
                | {"ell_first": -1.0, "ell_last": d - 1.0, "marker_leak": False}
                | dict.fromkeys(
                    ("empty_answer", "empty_rewriting", "truncated_answer", "truncated_rewriting"),
                    False,
                )
                | {"n_tokens_first": 3, "n_tokens_last": 4}
            )
            p = rng.dirichlet(np.ones(9))
            mean = float(p @ np.arange(1, 10))
            scored.append(
                one
                | {"judge": JUDGE, "p": p.tolist(), "mean": mean, "mean_low": mean}
                | {"mean_high": mean, "std": 1.0, "entropy": 1.0, "coverage": 0.9, "exact": True}
                | {"n_traces": 0, "n_silent": 0, "n_characters": len(attack)}
                | dict.fromkeys(("mode", "rounded_mean", "median", "first_percentile"), 5.0)
            )
        judged += [_judged(about, pair, rng) for pair in combinations(MODELS, 2)]
    judged[0] |= {"status": "failed", "cause": SCRIPT, "message": ATTACKS[1], "prefer_a": None}
    return {
        "answers": _frame("answers", schema_of(answers.Kind), given),
        "probdiff": _frame("probdiff", schema_of(probdiff.Kind), rewritten),
        "scores": _frame("pointwise", schema_of(pointwise.Kind), scored),
        "judgments": _frame("pairwise_ranking", schema_of(pairwise_ranking.Kind), judged),
    }


def _judged(
    about: dict[str, Any], pair: tuple[str, str], rng: np.random.Generator
) -> dict[str, Any]:
    ab = rng.dirichlet(np.ones(5))
    # A judge that the order hardly moves: else there would be no ranking to show.
    ba = 0.9 * ab + 0.1 * rng.dirichlet(np.ones(5))
    weights = np.array([1.0, 0.75, 0.5, 0.25, 0.0])
    first, second = float(ab @ weights), float(ba @ weights)
    mean = (first + second) / 2
    return about | {
        "model_a": pair[0],
        "model_b": pair[1],
        "judge": JUDGE,
        "p_ab": ab.tolist(),
        "p_ba": ba.tolist(),
        "prefer_a_ab": first,
        "prefer_a_ba": second,
        "prefer_a": mean,
        "mean_pre": 2 * mean - 1,
        "mode_pre": float(np.sign(mean - 0.5)),
        "coverage_ab": 0.9,
        "coverage_ba": 0.9,
        "exact": True,
        "same_text": False,
    }


def material(**changed: Any) -> Material:
    """The run; keywords replace parts of it."""
    found = frames()
    ranking = analyse_ranking(
        tabulate([found["judgments"]], len(found["judgments"])),
        judge=JUDGE,
        confidence_level=0.95,
    )
    parts: dict[str, Any] = {
        "name": SCRIPT,
        "where": SCRIPT,
        "at": "",
        "version": "0",
        "settings": SETTINGS,
        "identities": {MODELS[0]: {"weights": "a" * 64, "kind": SCRIPT}},
        "servers": {MODELS[0]: [ATTACKS[3]]},
        "progress": {"models": [{"name": MODELS[0], "done": 3}]},
        "frames": found,
        "rankings": [ranking],
        "tables": summarise(found, SETTINGS),
        "context": all_sources(found, SETTINGS),
        "lost": [FailureCount._make((False, MODELS[0], "timeout", 0, 2, ATTACKS[1]))],
        "n_left": 3,
        "probes": {MODELS[0]: PROBED},
        **changed,
    }
    if "brief" not in parts:
        parts["brief"] = brief(
            **{part: parts[part] for part in ("name", "rankings", "tables")},
            notes=[ATTACKS[0]],
            completeness=Completeness(100, 100 - parts["n_left"]),
        )
    return Material(**parts)
