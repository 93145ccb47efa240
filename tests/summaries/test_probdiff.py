import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.contracts.method import schema_of
from orchestrator.frames import polars_schema
from orchestrator.methods import probdiff
from orchestrator.summaries.probdiff import _gaps
from tests.summaries.told import summarise
from tests.tables import lines

SCHEMA = {"method": pl.String(), **polars_schema(schema_of(probdiff.Kind))}


def row(item, model, d, **more):
    return {
        "method": "probdiff",
        "item": item,
        "model": model,
        "turn": 1,
        "answer": f"a{item}",
        "rewriting": "r",
        "d": d,
        "unchanged": False,
        "n_tokens_first": 2,
        "n_tokens_last": 3,
        **dict.fromkeys(
            ("marker_leak", "empty_answer", "empty_rewriting"), False
        ),
        "truncated_answer": False,
        "truncated_rewriting": False,
        "status": "ok",
        **more,
    }  # fmt: skip


def failed(item, model):
    return {"method": "probdiff", "item": item, "model": model, "status": "failed"}


@pytest.fixture
def tables(context_of):
    def make(rows, **settings):
        frame = pl.DataFrame(rows, schema=SCHEMA)
        config = probdiff.Config.model_validate(settings)
        return {
            table.key: table
            for table in summarise(context_of("probdiff", probdiff, frame, config=config))
        }

    return make


def test_d_at_the_threshold_passes(tables):
    (line,) = lines(tables([row("1", "m", -0.05), row("2", "m", -0.051)])["probdiff"])
    assert line["confidence"].value == 0.5


def test_undefined_counts_as_a_fail_and_is_counted_but_a_failure_is_missing(tables):
    rows = [row("1", "m", 0.1), row("2", "m", None, undefined="empty rewriting"), failed("3", "m")]
    table = tables(rows)["probdiff"]
    (line,) = lines(table)
    assert line["confidence"].value == 0.5
    assert (line["no d"], table.basis) == (1, "3 prompts · 1 failed (m 1)")
    assert line["mean d"].value == pytest.approx(0.1)


def test_unchanged_answers_pass_but_not_over_changed_items(tables):
    rows = [
        row("1", "m", 0.0, unchanged=True),
        row("2", "m", 0.0, unchanged=True),
        row("3", "m", -1.0),
    ]
    (line,) = lines(tables(rows)["probdiff"])
    assert line["confidence"].value == pytest.approx(2 / 3)
    assert line["over changed"].value == 0.0
    assert line["unchanged"] == pytest.approx(2 / 3)


def test_where_nothing_changed_there_is_no_confidence_over_changed_items(tables):
    (line,) = lines(tables([row("1", "m", 0.0, unchanged=True)])["probdiff"])
    assert (line["over changed"].value, line["over changed"].why) == (None, "nothing changed")


def test_confidence_falls_as_the_threshold_rises(tables):
    rows = [row(str(i), "m", -0.02 * i) for i in range(8)]
    found = lines(tables(rows, deltas=[-0.05, 0, -0.1, -0.02])["probdiff.confidence"])
    assert [line["delta"] for line in found] == [0, -0.02, -0.05, -0.1]
    values = [line["confidence"].value for line in found]
    assert values == sorted(values)
    assert values[0] == 1 / 8


def test_turns_of_a_prompt_are_one_cluster(tables):
    rows = [row(str(i // 2), "m", float(i % 3), turn=i % 2 + 1) for i in range(12)]
    table = tables(rows)["probdiff"]
    assert table.basis == "6 prompts"


def test_micro_counts_texts_and_macro_counts_categories(tables):
    rows = [row(str(i), "m", 0.0, category="big") for i in range(9)]
    rows.append(row("9", "m", -1.0, category="small"))
    found = {line["category"]: line for line in lines(tables(rows)["probdiff.categories"])}
    assert found["all (micro)"]["confidence"].value == 0.9
    assert found["all (macro)"]["confidence"].value == 0.5


def test_without_categories_there_is_no_table_of_them(tables):
    assert "probdiff.categories" not in tables([row("1", "m", 0.0)])


def test_wins_ties_and_losses_between_two_models(tables):
    rows = [
        row("1", "a", 0.0), row("1", "b", -0.2),
        row("2", "a", 0.0), row("2", "b", 0.04),
        row("3", "a", None), row("3", "b", -9.0),
        row("4", "a", None), row("4", "b", None),
        row("5", "a", 0.0), failed("5", "b"),
    ]  # fmt: skip
    (line,) = lines(tables(rows)["probdiff.pairs"])
    shares = [line[name].value for name in ("wins", "ties", "losses")]
    assert (shares, line["prompts"]) == ([0.25, 0.5, 0.25], 4)


def test_models_that_split_one_text_differently_are_said_to_be_incomparable(tables):
    rows = [row("1", "a", 0.0), row("1", "b", 0.0, n_tokens_first=5)]
    notes = " ".join(tables(rows)["probdiff"].notes)
    assert "neither d nor one delta is comparable" in notes


def test_equal_tokens_do_not_prove_one_vocabulary(tables):
    notes = " ".join(tables([row("1", "a", 0.0), row("1", "b", 0.0)])["probdiff"].notes)
    assert "only models with the same vocabulary" in notes


def test_colder_rewritings_are_pointed_out(tables):
    one = tables([row("1", "m", 0.0)])["probdiff"].notes
    same = tables([row("1", "m", 0.0)], answer={"temperature": 0.1})["probdiff"].notes
    assert any("lower temperature" in note for note in one)
    assert not any("lower temperature" in note for note in same)


def test_what_became_of_the_texts_is_counted(tables):
    rows = [
        row("1", "m", 0.0, marker_leak=True, truncated_rewriting=True),
        row("2", "m", None, empty_rewriting=True, n_tokens_last=0),
    ]
    answer, rewriting = lines(tables(rows)["probdiff.texts"])
    assert (answer["empty"], answer["cut off"], answer["marker leaks"]) == (0, 0, None)
    assert (rewriting["empty"], rewriting["cut off"], rewriting["marker leaks"]) == (1, 1, 1)
    assert rewriting["longer by"] == 0.5
    assert (answer["tokens"], rewriting["tokens"]) == (2, 3)


def test_a_run_in_which_all_failed_is_summarised_with_nothing_undefined_as_a_number(tables):
    found = tables([failed("1", "m"), failed("2", "m")])
    (line,) = lines(found["probdiff"])
    assert (line["mean d"].value, line["confidence"].value) == (None, None)


def test_no_rows_make_no_tables(tables):
    assert tables([]) == {}


def temperature_notes(table):
    return [note for note in table.notes if "temperature" in note]


def test_the_note_on_temperatures_says_what_each_category_was_drawn_at(tables):
    rows = [
        row("1", "m", 0.0, category="writing"),
        row("2", "m", 0.0, category="math"),
        row("3", "m", 0.0, category="coding"),
        row("4", "m", 0.0, category="stem"),
    ]
    answer = {"temperature": 0.7, "temperature_by_category": "mt_bench"}
    (note,) = temperature_notes(tables(rows, answer=answer)["probdiff"])
    assert "0 and 0.1 (coding, math)" in note
    assert "0.1 and 0.1 (stem)" in note
    assert "0.7 and 0.1 (writing)" in note


def test_what_was_drawn_alike_in_every_category_that_is_there_needs_no_note(tables):
    rows = [row("1", "m", 0.0, category="writing"), row("2", "m", 0.0, category="roleplay")]
    by_category = {"temperature": 0.3, "temperature_by_category": "mt_bench"}
    same = tables(rows, answer=by_category, revision={"temperature": 0.7})["probdiff"]
    assert temperature_notes(same) == []
    (note,) = temperature_notes(tables(rows, answer=by_category)["probdiff"])
    assert note.startswith("answers were drawn at temperature 0.7, rewritings at 0.1: ")
    assert note.endswith("the lower temperature alone raises d")


def test_a_warmer_rewriting_is_not_called_colder(tables):
    rows = [row("1", "m", 0.0)]
    drawn = {"answer": {"temperature": 0}, "revision": {"temperature": 0.5}}
    (note,) = temperature_notes(tables(rows, **drawn)["probdiff"])
    assert note.endswith("the higher temperature alone lowers d")


@given(st.lists(st.sampled_from([None, -1.6, -0.5, -0.5, 0.0, 0.25, 3.0]), min_size=2, max_size=8))
def test_each_changed_text_is_in_a_bar_that_can_be_seen(values):
    """None is an unchanged text, whose d is 0."""
    rows = [
        row(f"{n}", "m", 0.0 if d is None else d, unchanged=d is None) for n, d in enumerate(values)
    ]
    figure = _gaps("probdiff", pl.DataFrame(rows, schema=SCHEMA))
    bars = [] if figure.picture is None else figure.picture.rows
    assert sum(one["value"] for one in bars) * len(values) == pytest.approx(
        sum(d is not None for d in values)
    )
    assert all(one["x2"] > one["x"] for one in bars)
