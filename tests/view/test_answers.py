"""Answers in the list of items: what each is worth, and which items a question finds.

Each answer of the page is held against the same question asked of plain rows in Python.
"""

from functools import partial
from itertools import product
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.contracts.method import schema_of
from orchestrator.frames import polars_schema
from orchestrator.methods import answers
from orchestrator.methods.pairwise_ranking import Kind as PairwiseRanking
from orchestrator.methods.pointwise import Kind as PointwiseRating
from tests.view.conftest import Viewer
from tests.view.runs import items_frame, make_run

MODELS = ("one", "two", "x|y & <b>")
JUDGES = ("j", "k")
PAIRS = [(a, b) for i, a in enumerate(MODELS) for b in MODELS[i + 1 :]]
SETTINGS: dict[str, Any] = {
    "name": "made",
    "seed": 0,
    "models": {name: {} for name in (*MODELS, *JUDGES)},
    "methods": [{"kind": "pairwise_ranking", "judges": list(JUDGES), "candidates": list(MODELS)}],
}


def frame(columns, rows):
    lines = [dict.fromkeys(columns) | row for row in rows]
    return pl.DataFrame(lines, schema=polars_schema(columns), orient="row")


def made(path, texts, preferences, *, cut=(), failed=()):
    """A run: `texts` by item and model, `preferences` by item, pair and judge."""
    n = 1 + max((int(item[1:]) for item, _ in texts), default=0)
    given_answers = [
        {
            "method": "answers", "item": item, "model": model, "turn": 1,
            "text": None if (item, model) in failed else text,
            "finish_reason": "length" if (item, model) in cut else "stop",
            "status": "failed" if (item, model) in failed else "ok",
            "cause": "timeout" if (item, model) in failed else None,
        }
        for (item, model), text in texts.items()
    ]  # fmt: skip
    judged = [
        {
            "method": "pairwise_ranking", "item": item, "model_a": a, "model_b": b, "judge": judge,
            "turn": 1, "prefer_a": p, "status": "ok", "prefer_a_ab": 1.0, "prefer_a_ba": 0.0,
            "p_ab": [1.0, 0.0, 0.0, 0.0, 0.0], "p_ba": [0.0, 0.0, 0.0, 0.0, float(item != "i0")],
            "coverage_ab": 1.0, "coverage_ba": 1.0, "mean_pre": 2 * p - 1, "mode_pre": 0.0,
            "exact": True, "same_text": False,
        }
        for (item, a, b, judge), p in preferences.items()
    ]  # fmt: skip
    columns = {"method": "str", **PairwiseRanking.unit_columns, **PairwiseRanking.columns}
    columns |= {"status": "str", "cause": "str", "message": "str"}
    frames = {
        "items": items_frame(n),
        "answers": frame({"method": "str", **schema_of(answers.Kind)}, given_answers),
        "judgments": frame(columns, judged),
    }
    return make_run(path, frames, SETTINGS)


def mean(values):
    return sum(values) / len(values) if values else None


def beats(preferences, item, of, to):
    """P(of beats to) on an item, the mean over the judges; None where nobody judged it."""
    found = [p for (i, a, b, _), p in preferences.items() if (i, a, b) == (item, of, to)]
    found += [1 - p for (i, a, b, _), p in preferences.items() if (i, a, b) == (item, to, of)]
    return mean(found)


cases = st.integers(1, 4).flatmap(
    lambda n: st.tuples(
        st.fixed_dictionaries({
            (f"i{k}", model): st.text("ab \u202e<", max_size=6)
            for k in range(n) for model in MODELS
        }),
        st.fixed_dictionaries({
            (f"i{k}", a, b, judge): st.sampled_from([0.0, 0.25, 0.4999, 0.5, 0.75, 1.0])
            for k in range(n) for a, b in PAIRS for judge in JUDGES
        }),
    )
)  # fmt: skip


def items_of(viewer, **asked):
    """The items of the list of run a, in its order."""
    reply = viewer.client.get("/api/runs/a/items", params=asked)
    assert reply.status_code == 200, reply.text
    return [row["item"] for row in reply.json()["rows"]]


scores = st.dictionaries(
    st.tuples(st.sampled_from(["i0", "i1"]), st.sampled_from(MODELS), st.sampled_from(JUDGES)),
    st.sampled_from([0.0, 1.0, 2.5, 5.0, None]),
)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scores=scores)
def test_answers_that_were_scored_show_their_mean_score(tmp_path_factory, scores):
    folder = tmp_path_factory.mktemp("runs")
    rated = [
        {
            "method": "pointwise", "item": item, "model": model, "judge": judge, "turn": 1,
            "mean": score, "status": "failed" if score is None else "ok",
        }
        for (item, model, judge), score in scores.items()
    ]  # fmt: skip
    answered = [
        {"method": "answers", "item": item, "model": model, "turn": 1, "text": "x", "status": "ok"}
        for item in ("i0", "i1")
        for model in MODELS
    ]
    kept = {"status": "str", "cause": "str", "message": "str"}
    columns = {"method": "str", **PointwiseRating.unit_columns, **PointwiseRating.columns, **kept}
    frames = {
        "items": items_frame(2),
        "answers": frame({"method": "str", **schema_of(answers.Kind)}, answered),
        "scores": frame(columns, rated),
    }
    methods = [{"kind": "pointwise", "judges": list(JUDGES), "candidates": list(MODELS)}]
    make_run(folder / "a", frames, SETTINGS | {"methods": methods})
    viewer = Viewer([folder], folder / "side").enter()

    def worth_of(item, model):
        found = [value for key, value in scores.items() if key[:2] == (item, model)]
        return mean([value for value in found if value is not None])

    for row in viewer.json("/api/runs/a/items?answers=")["rows"]:
        worth = [worth_of(row["item"], model) for model in MODELS]
        assert [cell["worth"] for cell in row["answers"]] == pytest.approx(worth)
        top = max([one for one in worth if one is not None], default=None)
        alone = [top is not None and one == top and worth.count(top) == 1 for one in worth]
        assert [bool(cell["best"]) for cell in row["answers"]] == alone
    given_scores = [one for one in scores.values() if one is not None]
    for of, to in product(MODELS if given_scores else (), ("", MODELS[0])):
        against = [one for one in MODELS if one != of and to in ("", one)]
        gaps = {
            item: [worth_of(item, one) - worth_of(item, of) for one in against
                   if None not in (worth_of(item, one), worth_of(item, of))]
            for item in ("i0", "i1")
        }  # fmt: skip
        expected = [item for item, found in gaps.items() if any(gap > 0 for gap in found)]
        assert items_of(viewer, show="lost", of=of, to=to) == expected


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases, data=st.data())
def test_the_list_finds_what_the_rows_say(tmp_path_factory, case, data):
    texts, preferences = case
    folder = tmp_path_factory.mktemp("runs")
    cut = {one for one in texts if data.draw(st.booleans())}
    made(folder / "a", texts, preferences, cut=cut)
    other = {one: text if data.draw(st.booleans()) else text + "!" for one, text in texts.items()}
    made(folder / "b", other, preferences)
    viewer = Viewer([folder], folder / "side").enter()
    items = sorted({item for item, _ in texts})

    found = partial(items_of, viewer)
    whole = viewer.json("/api/runs/a/items?answers=")
    assert whole["models"] == list(MODELS)
    for row in whole["rows"]:
        item = row["item"]
        worth = []
        for model, cell in zip(MODELS, row["answers"], strict=True):
            others = [beats(preferences, item, model, to) for to in MODELS if to != model]
            assert cell["worth"] == pytest.approx(mean(others))
            assert cell["n"] == len(texts[item, model])
            assert cell["cut"] == ((item, model) in cut)
            assert "\u202e" not in cell["text"]
            worth.append(round(cell["worth"], 2))
        best = [model for model, cell in zip(MODELS, row["answers"], strict=True) if cell["best"]]
        top = max(worth)
        alone = worth.count(top) == 1 and top > 0.5
        assert best == ([MODELS[worth.index(top)]] if alone else [])

    for of in MODELS:
        for to in ("", *(one for one in MODELS if one != of)):
            against = [one for one in MODELS if one != of] if not to else [to]
            for than in ("", "shorter", "longer"):
                expected = []
                for item in items:
                    # As shown, to two decimals: 0.4999 is a tie.
                    lost = [one for one in against if beats(preferences, item, of, one) < 0.495]
                    gaps = [len(texts[item, of]) - len(texts[item, one]) for one in lost]
                    fits = {
                        "": True,
                        "shorter": any(g < 0 for g in gaps),
                        "longer": any(g > 0 for g in gaps),
                    }
                    if lost and fits[than]:
                        expected.append(item)
                assert found(show="lost", of=of, to=to, than=than) == expected, (of, to, than)

    expected = [item for item in items if any(texts[item, m] != other[item, m] for m in MODELS)]
    assert found(show="changed", than="b") == expected
    split = [
        item for item in items
        if any(
            {preferences[item, a, b, j] > 0.5 for j in JUDGES if preferences[item, a, b, j] != 0.5}
            == {True, False}
            for a, b in PAIRS
        )
    ]  # fmt: skip
    assert found(where="pairwise_ranking.split>0") == split
    if cut:
        assert found(where="cut>0") == sorted({item for item, _ in cut})


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases, text=st.text("abB \u202e<=~", max_size=2), limit=st.sampled_from([0.4, 0.5]))
def test_conditions_and_the_order_are_those_of_the_rows(tmp_path_factory, case, text, limit):
    texts, preferences = case
    folder = tmp_path_factory.mktemp("runs")
    made(folder / "a", texts, preferences)
    viewer = Viewer([folder], folder / "side").enter()
    items = sorted({item for item, _ in texts})

    found = partial(items_of, viewer)
    for model in MODELS:
        others = [one for one in MODELS if one != model]
        worth = {k: mean([beats(preferences, k, model, to) for to in others]) for k in items}
        column = f"worth of {model}"
        assert found(where=f"{column}>={limit}") == [k for k in items if worth[k] >= limit]
        assert found(where=f"{column}=") == []
        assert found(sort=column) == sorted(items, key=lambda k: worth[k])
        assert found(sort=f"-{column}") == sorted(items, key=lambda k: -worth[k])
        column = f"answer of {model}"
        said = {k: texts[k, model].strip() for k in items}
        expected = [k for k in items if text.lower() in said[k].lower()]
        assert found(where=f"{column}~{text}") == expected
        # A search that is kept is not changed by what is asked with it.
        assert found(where=f"{column}~{text}", q="what", show="lost", of="one") is not None
        assert found(where=f"{column}~{text}") == expected
        assert found(where=f"{column}={text}") == [k for k in items if said[k] == text.strip()]
        assert found(where=f"{column}=") == [k for k in items if not said[k]]
    assert found(where="prompt~WHAT IS 1 ") == [k for k in items if k == "i1"]
    assert found(where="category=c0", sort="-prompt") == [k for k in ("i3", "i0") if k in items]


def test_a_failed_answer_says_its_cause_and_has_no_text(tmp_path):
    texts = {("i0", model): "x" for model in MODELS}
    made(tmp_path / "runs" / "a", texts, {}, failed={("i0", "two")})
    viewer = Viewer([tmp_path / "runs"], tmp_path / "side").enter()
    (row,) = viewer.json("/api/runs/a/items?answers=")["rows"]
    cell = row["answers"][1]
    assert (cell["failed"], cell["text"], cell["worth"]) == ("timeout", None, None)


@pytest.mark.parametrize(
    "asked",
    ["show=lost&of=nobody", "show=lost&of=one&to=nobody", "show=lost&of=one&than=wider",
     "show=lost&of=one&by=nothing", "show=elsewhere", "show=changed&than=nowhere"],
)  # fmt: skip
def test_what_cannot_be_asked_is_an_error_and_no_empty_list(tmp_path, asked):
    texts = {("i0", model): "x" for model in MODELS}
    made(tmp_path / "runs" / "a", texts, {("i0", "one", "two", "j"): 0.2})
    viewer = Viewer([tmp_path / "runs"], tmp_path / "side").enter()
    reply = viewer.get(f"/api/runs/a/items?{asked}")
    assert reply.status_code in {400, 404}
    assert reply.json()["error"]
