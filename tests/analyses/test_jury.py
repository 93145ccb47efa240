import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from orchestrator.analyses import jury
from orchestrator.contracts.context import Context, Source
from orchestrator.errors import UsageError
from orchestrator.methods import pairwise_ranking, pointwise
from tests.core.fakes import method_in
from tests.summaries import judged
from tests.tables import lines

STRENGTHS = {"x": 0.2, "y": 0.0, "z": -0.2}
RNG = np.random.default_rng(5)


def noisy(judge, spread, n_items=30, sign=1):
    rows = []
    for k in range(n_items):
        # On every fourth item the order is the other way round, so that decisions vary.
        side = -sign if k % 4 == 3 else sign
        drawn = {m: side * s + spread * RNG.uniform(-1, 1) for m, s in STRENGTHS.items()}
        rows += judged.all_pairs(f"i{k}", drawn, judge=judge)
    return rows


ALIKE = [*noisy("one", 0.02), *noisy("two", 0.02), *noisy("three", 0.02)]


def tables(rows, config=None, judges=("one", "two", "three"), module=pairwise_ranking):
    frame = judged.frame(module, rows)
    method = method_in(module)(module.Config(judges=judges))
    name = frame["method"][0]
    sources = [Source(name, name, method, method.frame)]
    frames = {method.frame: frame}
    context = Context("jury", frames, pl.DataFrame(), sources, 0.95, 200, 0)
    analysis = jury.Kind(config or jury.Config())
    return {table.key: table for table in analysis.summarise(context)}


def test_judges_who_see_the_same_agree():
    rows = lines(tables(ALIKE)["jury.members"])
    assert [row["agrees with the others"].value for row in rows] == [1.0, 1.0, 1.0]


def test_a_judge_who_sees_the_opposite_disagrees_with_the_others():
    rows = [*noisy("one", 0.02), *noisy("two", 0.02), *noisy("three", 0.02, sign=-1)]
    found = {row["judge"]: row for row in lines(tables(rows)["jury.members"])}
    assert found["three"]["agrees with the others"].value == 0.0
    assert found["one"]["agrees with the others"].value < 1.0


def test_the_jury_is_the_weighted_mean_of_its_judges():
    rows = [*noisy("one", 0.0), *noisy("two", 0.0, sign=-1)]
    even = lines(tables(rows, judges=("one", "two"))["jury.ratings"])
    assert [row["jury"].value for row in even] == pytest.approx([1000.0] * 3)
    config = jury.Config(weights={"two": 0.0})
    alone = lines(tables(rows, config, judges=("one", "two"))["jury.ratings"])
    assert [row["model"] for row in alone] == ["x", "y", "z"]
    assert [row["jury"].value for row in alone] == pytest.approx([row["one"] for row in alone])


def test_pairs_that_one_judge_did_not_judge_are_left_out():
    one_less = [row for row in ALIKE if (row["item"], row["judge"]) != ("i0", "two")]
    assert "3 not judged by all" in tables(one_less)["jury.ratings"].basis


def test_the_order_of_the_judges_does_not_change_the_jury():
    one = lines(tables(ALIKE)["jury.ratings"])
    two = lines(tables(ALIKE, judges=("three", "one", "two"))["jury.ratings"])
    for a, b in zip(one, two, strict=True):
        assert a["model"] == b["model"]
        assert a["jury"].value == pytest.approx(b["jury"].value)


def test_ratings_of_single_answers_can_have_a_jury_too():
    rows = [
        judged.score_row(f"i{k}", model, judged.around(centre), judge=judge)
        for k in range(5)
        for model, centre in {"x": 7.0, "y": 4.0}.items()
        for judge in ("one", "two")
    ]
    found = lines(tables(rows, judges=("one", "two"), module=pointwise)["jury.ratings"])
    assert [row["model"] for row in found] == ["x", "y"]


@pytest.mark.parametrize(
    "config",
    [{"weights": {"nobody": 1}}, {"method": "no such"},
     {"weights": dict.fromkeys(("one", "two", "three"), 0)}],
)  # fmt: skip
def test_a_jury_that_can_not_sit_is_refused(config):
    with pytest.raises(UsageError):
        tables(ALIKE, jury.Config(**config))


def test_a_negative_weight_is_refused_with_the_recipe():
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        jury.Config(weights={"one": -1})


def test_one_judge_is_no_jury():
    with pytest.raises(UsageError, match="several judges"):
        tables(noisy("one", 0.1), judges=("one",))


def test_ties_on_equal_answers_are_no_agreement():
    even = judged.leaning(0.5)
    same = [
        {**judged.pair_row(f"s{k}", "x", "y", even, even, judge=judge), "same_text": True}
        for k in range(40)
        for judge in ("one", "two")
    ]
    rows = [*noisy("one", 0.02), *noisy("two", 0.02, sign=-1), *same]
    found = tables(rows, judges=("one", "two"))
    assert {row["agrees with the others"].value for row in lines(found["jury.members"])} == {0.0}
    assert found["jury.members"].basis.startswith("90 pairs of different answers")
