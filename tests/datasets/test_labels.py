"""Label files: who said what of which answer; what is no number is no number."""

import json

import polars as pl
import pytest

from orchestrator.errors import DatasetError
from orchestrator.ranking.human_labels import LABELS, read_labels


@pytest.fixture
def labels(tmp_path):
    def read(*rows, name="labels.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return read_labels(path)

    return read


def test_a_rating_has_item_model_label_and_annotator(labels):
    found = labels({"item": "a", "model": "m", "label": 7, "annotator": "x"})
    assert found.schema == pl.Schema(LABELS)
    row = found.row(0, named=True)
    assert (row["item"], row["model"], row["value"], row["annotator"]) == ("a", "m", 7.0, "x")


def test_a_pair_names_both_models_and_its_label_is_a_word(labels):
    row = labels({"item": "a", "model_a": "m", "model_b": "n", "winner": "tie"}).row(0, named=True)
    assert (row["model_a"], row["model_b"], row["label"], row["value"]) == ("m", "n", "tie", None)


def test_keys_that_are_numbers_are_those_of_items(labels):
    assert labels({"question_id": 81, "score": "3.5"})["item"].to_list() == ["81"]


def test_several_annotators_are_several_rows(labels):
    rows = [{"item": "a", "label": n, "annotator": f"x{n}"} for n in range(3)]
    assert labels(*rows)["value"].to_list() == [0.0, 1.0, 2.0]


def test_csv_is_read_too(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("item,model,turn,label,rater\na,m,2,4,x\n", encoding="utf-8")
    assert read_labels(path).row(0) == ("a", 2, "m", None, None, "4", 4.0, "x")


@pytest.mark.parametrize("word", ["nan", "inf", "-inf", "good"])
def test_words_are_no_numbers(labels, word):
    assert labels({"item": "a", "label": word})["value"].to_list() == [None]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"model": "m", "label": 1}, "no column for the item"),
        ({"item": "a", "model": "m"}, "no column for the label"),
        ({"item": "a", "label": 1, "model_a": "m"}, "both 'model_a' and 'model_b'"),
        ({"item": "a", "label": 1, "turn": "x"}, "labels.jsonl:1: the turn must be a number"),
        ({"item": None, "label": 1}, "labels.jsonl:1: the item is missing"),
        ({"item": "a", "label": ""}, "labels.jsonl:1: the label is missing"),
    ],
)
def test_what_is_missing_is_named(labels, row, said):
    with pytest.raises(DatasetError, match=said):
        labels(row)


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(DatasetError, match=r"none\.jsonl: cannot be read"):
        read_labels(tmp_path / "none.jsonl")
