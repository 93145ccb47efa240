"""The table of declared orders: what holds of any pairs."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ranking.orders import IDLE, OPEN, SETTLED, UNSETTLED, orders_table
from orchestrator.statistics.sequential import PairOrder

MODELS = ("a", "b", "c")
TOLD = {
    "error": 0.05, "n_items": 90, "n_clusters": None, "block": 10, "of_dataset": False,
    "top": None, "is_finished": True,
}  # fmt: skip
IS_FREE = st.booleans()
COUNTS = st.integers(0, 90)
MEANS = st.floats(-1, 1).map(lambda value: value + 0.0)


@st.composite
def a_pair(draw):
    first, second = draw(st.sampled_from([(0, 1), (0, 2), (1, 2)]))
    n = draw(COUNTS)
    low, mean, high = sorted(draw(MEANS) for _ in range(3)) if n else (-1.0, math.nan, 1.0)
    better = draw(st.sampled_from([-1, 0, 1])) if n else 0
    settled_at = draw(st.integers(1, n)) if better else 0
    matters = bool(better) or draw(IS_FREE)
    n_missing, p = draw(COUNTS), draw(st.floats(0, 1))
    return PairOrder(
        first, second, better, settled_at, matters, mean, low, high, n, n_missing, p
    )  # fmt: skip


def mirrored(pair):
    """The same of its models in the other order."""
    return replace(
        pair, first=pair.second, second=pair.first, better=-pair.better,
        difference=-pair.difference, low=-pair.high, high=-pair.low,
    )  # fmt: skip


def lines(pairs, **told):
    table = orders_table("m", "judge", MODELS, pairs, **{**TOLD, **told})
    return [dict(zip([c.name for c in table.columns], row, strict=True)) for row in table.rows]


@given(a_pair(), IS_FREE)
def test_a_line_says_what_its_pair_holds_with_the_model_ahead_first(pair, is_finished):
    (line,) = lines([pair], is_finished=is_finished)
    assert {line["better"], line["worse"]} == {MODELS[pair.first], MODELS[pair.second]}
    if pair.better:
        assert line["order"] == SETTLED
        assert line["better"] == MODELS[pair.first if pair.better > 0 else pair.second]
    elif not pair.matters:
        assert line["order"] == IDLE
    else:
        assert line["order"] == (UNSETTLED if is_finished else OPEN)
    assert line["settled after"] == (pair.settled_at or None)
    assert line["prompts"] == pair.n + pair.n_missing
    assert line["adjusted p"] == pair.p
    mean = line["mean difference"]
    if not pair.n:
        assert (mean.value, mean.why) == (None, "no comparison")
        return
    sign = 1 if line["better"] == MODELS[pair.first] else -1
    assert mean.value == sign * pair.difference
    assert {mean.low, mean.high} == {sign * pair.low, sign * pair.high}
    assert mean.low <= mean.value <= mean.high
    # Without a settled order the one ahead is the one that the mean says.
    assert pair.better or mean.value >= 0


@given(a_pair().filter(lambda pair: pair.difference != 0))
def test_which_of_two_models_is_named_first_changes_nothing(pair):
    (one,), (other,) = lines([pair]), lines([mirrored(pair)])
    if math.isnan(pair.difference):
        assert {one.pop("better"), one.pop("worse")} == {other.pop("better"), other.pop("worse")}
    assert one == other


@given(st.lists(a_pair(), min_size=1, max_size=6))
def test_settled_pairs_come_first_as_they_were_settled_then_what_still_matters(pairs):
    found = lines(pairs)
    ranks = [(SETTLED, UNSETTLED, IDLE).index(line["order"]) for line in found]
    assert ranks == sorted(ranks)
    times = [line["settled after"] for line in found if line["order"] == SETTLED]
    assert times == sorted(times)
    assert len(found) == len(pairs)


@given(st.lists(a_pair(), min_size=1, max_size=6), st.sampled_from([None, 1, 2]), IS_FREE)
def test_basis_and_notes_count_and_say_about_which_prompts(pairs, top, of_dataset):
    told = {**TOLD, "top": top, "of_dataset": of_dataset}
    table = orders_table("m", "judge", MODELS, pairs, **told)
    n_settled = sum(bool(pair.better) for pair in pairs)
    assert table.basis == f"{n_settled} of {len(pairs)} pairs settled · 90 prompts"
    said = " ".join(table.notes)
    assert "at most 5 %" in said
    assert ("exactly these prompts" in said) == of_dataset
    assert "after every 10 prompts" in said
    n_missing = sum(pair.n_missing for pair in pairs)
    assert (f"{n_missing:,} comparisons failed" in said) == bool(n_missing)
    assert ("the best model;" in said) == (top == 1)
    assert ("the best 2 models (those with fewer than 2 better ones);" in said) == (top == 2)
    assert table.title == "Orders by sequential test, judged by judge"
    alone = orders_table("m", "", MODELS, pairs, **told)
    assert alone.title == "Orders by sequential test"


@given(IS_FREE)
def test_orders_over_clusters_are_about_clusters(of_dataset):
    told = {**TOLD, "n_clusters": 9, "of_dataset": of_dataset}
    table = orders_table("m", "judge", MODELS, [], **told)
    assert table.basis == "0 of 0 pairs settled · 90 prompts in 9 clusters"
    assert "10 prompts in whole clusters; about clusters of prompts like these" in table.notes[0]
