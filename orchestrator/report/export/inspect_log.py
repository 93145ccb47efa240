"""Answers as logs of Inspect (`inspect_ai.log.EvalLog`, version 2), which its viewer opens.

A log is about one model, so there is one for each method that has answers and each model. The
format is the JSON of https://inspect.aisi.org.uk/reference/inspect_ai.log.html.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import polars as pl

_VERSION: Final = 2
COLUMNS: Final = (
    "method", "item", "model", "turn", "prompt", "text", "reference", "exact_match",
    "mean_logprob", "n_tokens", "finish_reason", "status", "cause", "message", "category",
)  # fmt: skip
"""Columns of answers that logs are made of, by the names of their roles."""
_SCORES: Final = ("mean_logprob", "n_tokens")
_REASONS: Final = {"stop": "stop", "length": "max_tokens"}
_OK: Final = "ok"


def logs(answers: pl.DataFrame, about: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and content of each log.

    Args:
        answers: The rows, with those of `COLUMNS` that they have.
        about: "recipe", "version", "created" (ISO 8601), "dataset" and "complete" of the run.
    """
    if not {"item", "model", "text"} <= set(answers.columns):
        return
    keys = [name for name in ("method", "model") if name in answers.columns]
    for values, rows in answers.group_by(keys, maintain_order=True):
        named = dict(zip(keys, map(str, values), strict=True))
        method, model = named.get("method", "answers"), named["model"]
        yield f"{method}-{model}", _log(rows, method, model, about)


def _log(rows: pl.DataFrame, method: str, model: str, about: Mapping[str, Any]) -> dict[str, Any]:
    samples = [
        _sample(str(item), turns.to_dicts(), model)
        for (item,), turns in rows.group_by(["item"], maintain_order=True)
    ]
    task = f"{about['recipe']}/{method}"
    identity = hashlib.sha256(f"{task}/{model}".encode()).hexdigest()[:22]
    kept = [sample for sample in samples if "error" not in sample]
    return {
        "version": _VERSION,
        "status": "success" if about["complete"] else "cancelled",
        "eval": {
            "eval_id": identity,
            "run_id": identity,
            "created": about["created"],
            "task": task,
            "task_id": identity,
            "dataset": {
                "name": about["dataset"],
                "samples": len(samples),
                "sample_ids": [sample["id"] for sample in samples],
            },
            "model": f"selfeval-orchestrator/{model}",
            "config": {"epochs": 1},
            "packages": {"selfeval-orchestrator": about["version"]},
        },
        "results": {
            "total_samples": len(samples),
            "completed_samples": len(kept),
            "scores": _totals(kept),
        },
        "samples": samples,
    }


def _sample(item: str, turns: Sequence[Mapping[str, Any]], model: str) -> dict[str, Any]:
    ordered = sorted(turns, key=lambda row: row.get("turn") or 0)
    last = ordered[-1]
    messages: list[dict[str, str]] = []
    for row in ordered:
        messages.append({"role": "user", "content": row.get("prompt") or ""})
        if row["text"] is not None:
            messages.append({"role": "assistant", "content": row["text"], "source": "generate"})
    sample: dict[str, Any] = {
        "id": item,
        "epoch": 1,
        "input": ordered[0].get("prompt") or "",
        "target": ordered[0].get("reference") or "",
        "messages": messages,
        "metadata": {"category": last.get("category") or "", "turns": len(ordered)},
    }
    failed = next((row for row in ordered if row.get("status", _OK) != _OK), None)
    if failed is not None:
        said = f"{failed.get('cause') or ''}: {failed.get('message') or ''}"
        return {**sample, "error": {"message": said, "traceback": "", "traceback_ansi": ""}}
    reason = _REASONS.get(last.get("finish_reason") or "", "unknown")
    choice = {
        "message": {"role": "assistant", "content": last["text"] or "", "source": "generate"},
        "stop_reason": reason,
    }
    return {**sample, "output": {"model": model, "choices": [choice]}, "scores": _scores(last)}


def _scores(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scores of an answer; what is undefined is left out, never 0."""
    found: dict[str, Any] = {}
    if (matches := row.get("exact_match")) is not None:
        found["exact_match"] = {"value": "C" if matches else "I", "answer": row["text"]}
    for name in _SCORES:
        value = row.get(name)
        if value is not None and math.isfinite(value):
            found[name] = {"value": value}
    return found


def _totals(samples: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for name in ("exact_match", *_SCORES):
        values = [sample["scores"][name]["value"] for sample in samples if name in sample["scores"]]
        if not values:
            continue
        numbers = [float(value == "C") if isinstance(value, str) else value for value in values]
        metric = "accuracy" if name == "exact_match" else "mean"
        mean = math.fsum(numbers) / len(numbers)
        found.append({
            "name": name,
            "scorer": name,
            "scored_samples": len(values),
            "unscored_samples": len(samples) - len(values),
            "metrics": {metric: {"name": metric, "value": mean}},
        })  # fmt: skip
    return found
