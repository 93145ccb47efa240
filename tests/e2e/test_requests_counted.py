"""Every request that an endpoint gets is counted, those too that teach what it takes."""

from pathlib import Path
from typing import Any

import pytest

import orchestrator
from orchestrator import Recipe
from tests.e2e.manners import KEY, Endpoint, Manner, endpoint

PLAIN = {
    "route": Manner("/api/v3"),
    "seed": Manner("/v1", refused=("seed",)),
    "cap": Manner("/v1", most=5),
    "field of max_tokens": Manner("/v1", refused=("max_tokens",)),
    "all": Manner("/api/v3", most=5, refused=("seed", "max_tokens")),
    "nothing": Manner("/v1"),
}
MOST_LESSONS = {"nothing": 0, "all": 5}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a comparison of two models on so many questions; the requests that it says it sent."""
    monkeypatch.setenv("MY_KEY", KEY)

    def begin(given: Endpoint, n: int, **settings: Any) -> int:
        entry = {"base_url": given.url, "backend": "openai", "api_key_env": "MY_KEY"}
        models: dict[str, Any] = {
            name: {**entry, "model": name} for name in ("small", "large", "judge")
        }
        method = {"kind": "pairwise_ranking", "judges": ["judge"], "labels": "two",
                  "answer": {"max_tokens": 8}}  # fmt: skip
        result = orchestrator.run(
            Recipe(
                name="made",
                models=models,
                methods=[method],
                dataset=[{"question": f"What is {i} + 2?"} for i in range(n)],
                statistics={"n_resamples": 50},
                probe=False,
                **settings,
            ),
            run_dir=Path(tmp_path / f"run {n}"),
            display=None,
        )
        assert result.spent is not None
        return result.spent.requests

    return begin


@pytest.mark.parametrize("name", PLAIN)
def test_what_the_endpoint_saw_is_what_the_run_says_and_lessons_do_not_grow_with_it(name, run):
    more = []
    for n in (3, 12):
        with endpoint(PLAIN[name]) as given:
            said = run(given, n)
        assert given.n_posted == said
        more.append(said - 4 * n)
    assert more[0] == more[1] <= 3 * MOST_LESSONS.get(name, 2)


@pytest.mark.parametrize("name", PLAIN)
def test_a_bound_on_requests_is_passed_by_lessons_only(name, run):
    with endpoint(PLAIN[name]) as given:
        said = run(given, 12, budget={"requests": 8})
    assert said == given.n_posted <= 8 + 3 * MOST_LESSONS.get(name, 2)
