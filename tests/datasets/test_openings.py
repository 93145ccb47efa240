"""Items that begin alike are found, and instructions, short ones or to all, are none of them."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.datasets._openings import OPENING, alike_openings
from orchestrator.datasets.demo import generate
from tests.conftest import SHARED

LONG = "Read this and answer with a word. " * 10


def passage(n):
    return "".join(random.Random(n).choices("abcdefgh ", k=OPENING + 50))


def numbered(texts):
    return [(str(n), text) for n, text in enumerate(texts)]


def test_questions_on_one_passage_are_found():
    texts = numbered(f"{passage(n // 3)}\nQuestion {n}?" for n in range(30))
    found = alike_openings(texts)
    assert found is not None
    assert [len(group) for group in found.groups] == [3] * 10
    assert found.groups[0] == ["0", "1", "2"]
    assert "30 of 30 items" in found.words()
    assert "cluster: COLUMN" in found.words()


def test_an_instruction_before_all_of_them_is_no_passage():
    assert alike_openings(numbered(f"{LONG}{passage(n)}" for n in range(30))) is None


def test_an_instruction_before_most_of_them_is_no_passage():
    texts = [f"{LONG}{passage(n)}" if n % 5 else passage(n) for n in range(30)]
    assert alike_openings(numbered(texts)) is None


def test_passages_are_found_behind_an_instruction():
    texts = numbered(f"{LONG}{passage(n // 3)} {n}" for n in range(30))
    found = alike_openings([*texts, ("other", "Say x.")])
    assert found is not None
    assert len(found.groups) == 10


def test_short_instructions_that_many_share_are_none():
    texts = [f"Translate the sentence into {'Czech' if n % 2 else 'German'}:\n{passage(n)}"
             for n in range(40)]  # fmt: skip
    assert alike_openings(numbered(texts)) is None


def test_a_few_pairs_among_many_items_are_no_reason_to_warn():
    texts = [passage(n) for n in range(200)]
    assert alike_openings(numbered([*texts, *texts[:5]])) is None


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_items_are_no_reason_to_warn(n):
    assert alike_openings(numbered([LONG + passage(1)] * n)) is None


def test_the_demo_does_not_begin_alike():
    assert alike_openings((item.key, item.prompt) for item in generate(2000, 0)) is None


@pytest.mark.parametrize("name", ["mt_bench", "vicuna_bench"])
def test_published_questions_do_not_begin_alike(name):
    path = SHARED / "data" / name / "question.jsonl"
    if not path.exists():
        pytest.skip("../shared is absent")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    texts = [row["turns"][0] if "turns" in row else row["text"] for row in rows]
    assert len(texts) == 80
    assert alike_openings(numbered(texts)) is None


@given(st.lists(st.text(max_size=600), max_size=30))
def test_any_texts_can_be_looked_at(texts):
    found = alike_openings(numbered(texts))
    if found is not None:
        keys = [key for group in found.groups for key in group]
        assert len(keys) == len(set(keys)) <= found.n_items
