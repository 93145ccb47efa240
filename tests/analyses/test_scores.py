"""Scores in one shape: one value an item, turn and model."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ranking.scores import Score

_POINTS = st.tuples(
    st.sampled_from(["", "a", "aa", "b"]),
    st.integers(1, 3),
    st.sampled_from(["a", "m", "mm", None]),
    st.sampled_from([0.25, 0.5, -1.0, None]),
)


@given(st.lists(_POINTS, max_size=40))
def test_a_mean_is_over_the_known_values_of_one_item_turn_and_model(rows):
    kinds = {"item": pl.String, "turn": pl.Int64, "model": pl.String, "value": pl.Float64}
    points = pl.DataFrame(rows, schema=kinds, orient="row").with_columns(
        cluster="c" + pl.col("item"), prompt_key=pl.col("item"), category=pl.lit(None, pl.String)
    )
    expected: dict[tuple[object, ...], list[float]] = {}
    for item, turn, model, value in rows:
        if value is not None:
            expected.setdefault((item, f"c{item}", item, None, turn, model), []).append(value)
    means = Score("made.value", 1, points, is_pairwise=False).means()
    assert means.columns == ["item", "cluster", "prompt_key", "category", "turn", "model", "value"]
    assert means.rows() == [(*key, sum(v) / len(v)) for key, v in expected.items()]
