"""Metamorphic runs of methods that are no pairwise ranking: five of them in one run."""

import pytest

from tests.oracles.verdicts import relations
from tests.oracles.verdicts.runs import BACKEND, started
from tests.oracles.verdicts.studies import NAMES, Prompt

pytestmark = pytest.mark.timeout(300)

N_ITEMS = 9
QUALITIES = {"ash": 0.0, "birch": 0.3, "cedar": 0.6}
ANSWER = {"max_tokens": 4, "temperature": 0}
SCALED = ("pointwise", "pairwise_scoring")


def methods(scale=(1, 9)):
    return [
        *({"kind": kind, "judges": ["judge"], "answer": ANSWER, "scale": scale} for kind in SCALED),
        {"kind": "probdiff", "answer": ANSWER, "revision": ANSWER},
        {"kind": "glass_box", "answer": ANSWER, "features": ["vocabulary"]},
        {"kind": "peer_elo", "answer": ANSWER, "similarity": {"kind": "rouge_l"}},
    ]


def prompts():
    return [Prompt(f"i{content:02}", content, f"kind{content % 2}") for content in range(N_ITEMS)]


def run(folder, items=None, models=("ash", "birch", "cedar"), names=None, **changes):
    """Run all methods; models answer by what they are and not by what they are called."""
    called = names or {}
    entries = {
        called.get(model, model): {
            "base_url": "http://127.0.0.1:9",
            "model": model,
            "backend": {"kind": str(BACKEND), "quality": QUALITIES[model]},
        }
        for model in models
    }
    entries["judge"] = {"base_url": "http://127.0.0.1:9", "backend": str(BACKEND)}
    rows = [
        {"id": one.key, "prompt": one.text, "category": one.category, "reference": "w7 w3"}
        for one in items or prompts()
    ]
    made = started(folder, rows, entries, methods(**changes))
    return relations.conclusions(made, {own: model for model, own in called.items()})


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return run(tmp_path_factory.mktemp("base"))


def test_every_method_concludes_something(base):
    said = {place.split()[1] for place in base if place.split()[0] in ("brief", "table")}
    assert {one["kind"] for one in methods()} <= said


def keys(change):
    return [Prompt(change(at), one.content, one.category) for at, one in enumerate(prompts())]


CHANGES = {
    "other names of prompts": {"items": keys(lambda at: f"q{(7 * at + 3) % 11:02}")},
    "another order of prompts": {"items": prompts()[::-1]},
    "another order of models": {"models": ("cedar", "ash", "birch")},
    "other names of models": {"names": dict(zip(QUALITIES, NAMES[:4:-1], strict=True))},
    "copies": {
        "items": [
            Prompt(f"{one.key}-{n}", one.content, one.category)
            for n in range(3)
            for one in prompts()
        ]
    },
}


# Elo depends on the order of the matches, which is drawn for prompts and models by their place, and
# on their number: it comes nearer to its end with copies. It says which model is first and at the
# top where votes are nearly even.
DRAWN = tuple(f"table peer_elo peer_elo.{name} " for name in ("elo", "wins", "nearest"))
# A row is about the first model of a pair.
OF_FIRST = "table probdiff probdiff.pairs"


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_says_nothing_new(change, base, tmp_path):
    left_out = (*DRAWN, OF_FIRST) if change == "another order of models" else DRAWN
    found = relations.differing(base, run(tmp_path, **CHANGES[change]))
    assert [place for place in found if not place.startswith(left_out)] == []


def test_a_scale_that_begins_elsewhere(base, tmp_path):
    found = run(tmp_path, scale=(11, 19))
    moved = {place: value for place, value in found.items() if place.endswith("| mean score")}
    assert len(moved) == len(SCALED) * len(QUALITIES)
    for place, value in moved.items():
        assert value == pytest.approx(tuple(10.0 + one for one in base[place]))
    verdicts = [place for place in base if place.startswith("comparison") or "verdict" in place]
    assert (
        relations.differing(
            {place: base[place] for place in verdicts}, {place: found[place] for place in verdicts}
        )
        == []
    )
