"""Near-copies are found, and prompts of their own behind an instruction are none."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.datasets.demo import generate
from orchestrator.runner.planning.similar_items import PASSAGE, near_copies
from tests.conftest import SHARED

LONG = "Read this and answer with a word. " * 10


def passage(n):
    return "".join(random.Random(n).choices("abcdefgh ", k=PASSAGE + 50))


def numbered(texts):
    return [(str(n), text) for n, text in enumerate(texts)]


def test_questions_on_one_passage_are_found():
    texts = numbered(f"{passage(n // 3)}\nQuestion {n}?" for n in range(30))
    found = near_copies(texts)
    assert found is not None
    assert [len(group) for group in found.groups] == [3] * 10
    assert found.groups[0] == ["0", "1", "2"]
    assert "30 of 30 items" in found.words()
    assert "cluster: COLUMN" in found.words()


def words(n, k):
    known = ["lorem", "ipsum", "dolor", "sit", "amet", "elit", "sed", "eius"]
    return " ".join(random.Random(n).choices(known, k=k))


def drawn(n, k):
    return "".join(random.Random(n).choices("abcdefghijklmnopqrstuvwxyz ", k=k))


def filled(n):
    return f"Write a {drawn(n, 6)} story about {drawn(-n, 9)}, who lives in a town by the sea."


def one_of_six(n, around):
    return f"{drawn(900 + n % 6, around)} {drawn(n, 12)} {drawn(950 + n % 6, around)}"


def loud(n):
    text = drawn(n // 2, 90)
    return f"{text}  !".upper() if n % 2 else f"{text} !"


# Texts by number, and in how many groups 60 of them are.
KINDS = {
    "the last characters differ": (lambda n: f"{LONG} {n}", 1),
    "the first characters differ": (lambda n: f"{n}. {LONG}", 1),
    "one body": (lambda n: f"{drawn(n, 20)} {passage(0)} {drawn(-n, 20)}", 1),
    "bodies": (lambda n: f"{drawn(n, 90)} {passage(n % 6)} {drawn(-n, 200)}", 6),
    "one template": (filled, 1),
    "several templates": (lambda n: one_of_six(n, 60), 6),
    "templates behind an instruction": (lambda n: f"{LONG} {one_of_six(n, 120)}", 6),
    "case and layout differ": (loud, 30),
}


@pytest.mark.parametrize("kind", KINDS)
def test_near_copies_of_every_kind_are_found(kind):
    text, n_groups = KINDS[kind]
    found = near_copies(numbered(text(n) for n in range(60)))
    assert found is not None
    assert (found.n_alike, found.n_items, len(found.groups)) == (60, 60, n_groups)
    size = 60 // n_groups
    assert f"60 prompts are {n_groups} clusters" in found.words()
    assert f"up to {size**0.5:.2g} times as wide" in found.words()


OWN = {
    "questions": lambda n: drawn(n, 90),
    "questions behind an instruction": lambda n: LONG + drawn(n, 200),
    "questions behind examples": lambda n: words(1, 1500) + drawn(n, 150),
    "questions with a common end": lambda n: drawn(n, 200) + LONG,
    "short questions of one form": lambda n: f"What is {n} + 5?",
}


@pytest.mark.parametrize("kind", OWN)
def test_prompts_of_their_own_are_not(kind):
    assert near_copies(numbered(OWN[kind](n) for n in range(60))) is None


def test_an_instruction_before_all_of_them_is_no_passage():
    assert near_copies(numbered(f"{LONG}{passage(n)}" for n in range(30))) is None


def test_an_instruction_before_most_of_them_is_no_passage():
    texts = [f"{LONG}{passage(n)}" if n % 5 else passage(n) for n in range(30)]
    assert near_copies(numbered(texts)) is None


def test_passages_are_found_behind_an_instruction():
    texts = numbered(f"{LONG}{passage(n // 3)} {n}" for n in range(30))
    found = near_copies([*texts, ("other", "Say x.")])
    assert found is not None
    assert len(found.groups) == 10


def test_short_instructions_that_many_share_are_none():
    texts = [f"Translate the sentence into {'Czech' if n % 2 else 'German'}:\n{passage(n)}"
             for n in range(40)]  # fmt: skip
    assert near_copies(numbered(texts)) is None


def test_a_few_pairs_among_many_items_are_no_reason_to_warn():
    texts = [passage(n) for n in range(200)]
    assert near_copies(numbered([*texts, *texts[:5]])) is None


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_items_are_no_reason_to_warn(n):
    assert near_copies(numbered([LONG + passage(1)] * n)) is None


def test_the_demo_does_not_begin_alike():
    assert near_copies((item.key, item.prompt) for item in generate(2000, 0)) is None


@pytest.mark.parametrize("name", ["mt_bench", "vicuna_bench"])
def test_published_questions_do_not_begin_alike(name):
    path = SHARED / "data" / name / "question.jsonl"
    if not path.exists():
        pytest.skip("../shared is absent")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    texts = [row["turns"][0] if "turns" in row else row["text"] for row in rows]
    assert len(texts) == 80
    assert near_copies(numbered(texts)) is None


@given(st.lists(st.text(max_size=600), max_size=30))
def test_any_texts_can_be_looked_at(texts):
    found = near_copies(numbered(texts))
    if found is not None:
        keys = [key for group in found.groups for key in group]
        assert len(keys) == len(set(keys)) <= found.n_items
