"""The first screen says which answers were cut, may not be whole, are empty, or hold thinking."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.probing.checks import CLOSING, OPENING, mark_in
from orchestrator.records import GIVEN
from orchestrator.runner.results.frames import answer_notes


def notes(*rows):
    columns = ("model", "text", "finish_reason")
    frame = pl.DataFrame([dict(zip(columns, row, strict=True)) for row in rows], strict=False)
    frame = frame.with_row_index("item").with_columns(pl.col("item") // 2)
    return answer_notes({"answers": frame.with_columns(turn=1, exact_match=None)})


def test_answers_that_are_whole_need_no_word():
    assert notes(("a", "x", "stop"), ("b", "y", GIVEN)) == []


def test_those_without_a_text_are_counted():
    (said,) = notes(("a", "x", "stop"), ("a", "", "stop"), ("b", "\n", "stop"), ("c", "y", "stop"))
    assert said == "answers without a text, and judged as such: a 1 of 2, b 1 of 1"


def test_those_cut_by_their_length_are_counted_by_model():
    rows = [("a", "x", "length"), ("a", "y", "stop"), ("b", "z", "length"), ("c", "w", "stop")]
    (said,) = notes(*rows, ("a", None, None))
    assert said == "answers cut by max_tokens, and judged as far as they go: a 1 of 2, b 1 of 1"


def test_of_many_models_a_few_are_named():
    (said,) = notes(*((f"m{k}", "x", "length") for k in range(30)))
    assert said.endswith("m0 1 of 1, m1 1 of 1, m2 1 of 1 and 27 more models")


def test_an_end_that_nobody_knows_is_named():
    (said,) = notes(("a", "x", "cloudy"), ("a", "y", "stop"))
    assert said == "answers that ended by 'cloudy', which may not be whole: a 1 of 2"


@pytest.mark.parametrize(
    "text",
    [
        "<think>\nhm\n</think>\n\nFour.",
        "\n<think>hm",
        "hm\n</think>\nFour.",
        "[THINK]hm[/THINK]4",
        "<|channel|>analysis<|message|>hm<|end|>",
        "analysis hm assistantfinal Four.",
    ],
)
def test_thinking_in_answers_is_said_with_the_setting(text):
    (said,) = notes(("a", text, "stop"), ("a", "Four.", "stop"))
    assert "a 1 of 2" in said
    assert "`thinking`" in said


@pytest.mark.parametrize(("n", "others"), [(10, 0), (10, 10), (40, 7), (30_000, 20_000)])
def test_one_text_to_many_items_is_said(n, others):
    (said,) = notes(
        *(("a", "I can't help.", "stop") for _ in range(n)),
        *(("a", f"answer {k}", "stop") for k in range(others)),
    )
    expected = f"a {n:,} of {n + others:,}"
    assert said == f"answers of one and the same text to different items: {expected}"


@pytest.mark.parametrize(("n", "others"), [(8, 0), (10, 11), (1, 40), (20, 30)])
def test_one_text_to_few_items_or_to_less_than_half_needs_no_word(n, others):
    """Two rows are of one item here."""
    texts = ["yes"] * n + [f"answer {k}" for k in range(others)]
    assert notes(*(("a", text, "stop") for text in texts)) == []


MARK = st.sampled_from([*OPENING, *CLOSING])


@given(st.text("ab <>/\n", max_size=6), st.just("") | MARK, st.text("ab <>/\n", max_size=6))
def test_a_column_is_read_as_single_texts_are(before, mark, after):
    text = f"4{before}{after}" if not mark else before + mark + after
    assert bool(notes(("a", text, "stop"))) == bool(mark_in(text))
