"""The page that leads from a URL to a ranking, followed at endpoints of three manners."""

from typing import Final

import pytest

from tests.docs.reader import Reader
from tests.e2e.manners import KEY, MANNERS, endpoint

PAGE: Final = "how_to/your_endpoint"
ADDRESS: Final = "https://api.example.com/v1"
"""As the page shows it."""
PROBE, WRITE, RUN = "1. See what it does", "2. Write a recipe", "3. Check, plan, run"
TEXTS, GATEWAY = "Without log-probabilities", "Behind a gateway"
ROOM: Final = 1000
"""Tokens, more than probes ask for."""
N_JUDGMENTS: Final = 20
N_ANSWERS: Final = 20 * (2 + 2)


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """Make a reader who has another address than the page, and the key in the variable."""
    monkeypatch.setenv("MY_KEY", KEY)
    made = []

    def start(url):
        folder = tmp_path / "mine"
        folder.mkdir()
        made.append(Reader(folder, {ADDRESS: url}))
        return made[0]

    yield start
    for one in made:
        one.end()


def read(reader, *parts):
    reader.follow(PAGE, under=parts)
    reader.interrupt()


@pytest.mark.slow
def test_five_alternatives_and_no_seed_give_a_ranking(reader):
    with endpoint(MANNERS["capped"]) as given:
        read(reader(given.url), PROBE, WRITE, RUN)
    taken = [body for body in given.bodies if body.get("top_logprobs") == 5]
    assert not any("seed" in body for body in taken[-N_JUDGMENTS:])


@pytest.mark.slow
def test_a_query_a_header_for_the_key_and_another_name_for_max_tokens_give_a_ranking(reader):
    with endpoint(MANNERS["azure"]) as given:
        read(reader(given.url), PROBE, WRITE, RUN)
    taken = [body for body in given.bodies if "max_completion_tokens" in body]
    assert len(taken) > N_ANSWERS


@pytest.mark.slow
def test_a_recipe_with_headers_gives_a_ranking(reader):
    with endpoint(MANNERS["azure"]) as given:
        read(reader(given.url), GATEWAY)
    assert {one["X-Team"] for one in given.headers} == {"evals"}


@pytest.mark.slow
def test_texts_alone_after_reasoning_give_a_ranking(reader):
    with endpoint(MANNERS["thinking"]) as given:
        at = reader(given.url)
        read(at, PROBE, WRITE)
        assert at.run("orchestrator check --online first.yaml")[0] == 2
        n_before = len(given.bodies)
        read(at, TEXTS)
    answers = [one for one in given.bodies[n_before:] if one.get("max_tokens", 0) > ROOM]
    assert len(answers) == N_ANSWERS
    assert not any("logprobs" in one for one in answers)


def test_each_manner_refuses_what_the_others_take():
    assert len({(one.place, one.most, one.refused) for one in MANNERS.values()}) == len(MANNERS)
