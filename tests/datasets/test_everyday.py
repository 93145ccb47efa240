"""The bundled everyday questions: whole, distinct, and in an order that `--limit` can cut."""

import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from orchestrator.datasets import everyday
from orchestrator.records import Item


def questions(**settings: object) -> list[Item]:
    kind = everyday.Kind(everyday.Config.model_validate(settings))
    dataset = kind.open(Path())
    return [dataset.item(index) for index in range(len(dataset))]


def test_every_question_is_asked_once_and_has_a_reference() -> None:
    items = questions()
    assert len(items) == 96
    assert len({item.key for item in items}) == 96
    assert len({item.messages[0].content for item in items}) == 96
    assert all(item.reference for item in items)
    assert set(Counter(item.category for item in items).values()) == {12}


def test_any_first_part_has_the_categories_in_turn() -> None:
    categories = [item.category for item in questions()]
    for start in range(0, 96, 8):
        assert set(categories[start : start + 8]) == set(get_args(everyday.Category))


def test_categories_can_be_chosen_and_none_can_be_invented() -> None:
    items = questions(categories=["facts", "arithmetic"])
    assert {item.category for item in items} == {"facts", "arithmetic"}
    assert len(items) == 24
    with pytest.raises(ValueError, match="categories"):
        everyday.Config.model_validate({"categories": ["cooking"]})


def test_sums_are_right() -> None:
    """Two terms and an operation by its word, computed from the question."""
    operations = {"plus": int.__add__, "minus": int.__sub__, "times": int.__mul__}
    checked = 0
    for item in questions(categories=["arithmetic"]):
        found = re.fullmatch(r"What is (\d+) (plus|minus|times) (\d+)\?", item.messages[0].content)
        if found:
            expected = operations[found[2]](int(found[1]), int(found[3]))
            assert item.reference is not None
            assert item.reference.endswith(f" {expected}.")
            checked += 1
    assert checked == 3
