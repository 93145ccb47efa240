"""A recipe of launched fake servers, for tests of commands and of the Python interface."""

from typing import Any


def recipe_data(name: str = "made", *, n: int = 6, **changes: Any) -> dict[str, Any]:
    """Return the data of a recipe over `n` items; keywords replace parts of it."""
    return {
        "name": name,
        "models": {
            "weak": {"server": "scripted", "weights": "a:0.2"},
            "strong": {"server": "scripted", "weights": "b:0.9"},
            "judge": {"server": "scripted", "weights": "j:1.0"},
        },
        "dataset": {"kind": "demo", "n": n},
        "methods": [{"kind": "pairwise_ranking", "judges": ["judge"], "answer": {"max_tokens": 4}}],
        "statistics": {"n_resamples": 50},
        **changes,
    }
