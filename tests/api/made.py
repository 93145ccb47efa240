"""Recipes that run on the fake server in a second."""

from typing import Any

from orchestrator import Recipe

MODELS = {
    "weak": {"server": "scripted", "weights": "a:0.2"},
    "strong": {"server": "scripted", "weights": "b:0.9"},
    "judge": {"server": "scripted", "weights": "j:1.0"},
}
METHODS = [{"kind": "pairwise_ranking", "judges": ["judge"], "answer": {"max_tokens": 4}}]
ROWS = [{"question": f"Question {n}?", "answer": str(n), "level": n} for n in range(8)]


def recipe(dataset=None, **settings):
    given: dict[str, Any] = {"name": "made", "models": MODELS, "methods": METHODS, "probe": False}
    given |= {"statistics": {"n_resamples": 50}, **settings}
    return Recipe(dataset=ROWS if dataset is None else dataset, **given)


def slow(n=40, **settings):
    """Requests that take a while, so that there is time to stop."""
    server = {"kind": "scripted", "rules": [{"latency_s": 0.05}]}
    models = {
        name: {**entry, "server": server, "limits": {"max_in_flight": 1}}
        for name, entry in MODELS.items()
    }
    rows = [{"question": f"Question {number}?"} for number in range(n)]
    return recipe(rows, models=models, **settings)
