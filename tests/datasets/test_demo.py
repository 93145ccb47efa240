from collections import Counter

import pytest

from orchestrator.datasets import demo


def _expected(category: str, symbols: list[str]) -> list[str]:
    if category == "swap":
        return [symbols[-1], *symbols[1:-1], symbols[0]]
    return {
        "reverse": symbols[::-1],
        "sort": sorted(symbols),
        "repeat": symbols,
        "rotate": symbols[1:] + symbols[:1],
        "first": symbols[:1],
        "last": symbols[-1:],
    }[category]


def test_same_seed_gives_same_items():
    assert demo.generate(50, seed=3) == demo.generate(50, seed=3)
    assert demo.generate(50, seed=3) != demo.generate(50, seed=4)


@pytest.mark.parametrize("seed", [-1, 0, 1, 12345, 2**40])
def test_any_seed_gives_distinct_held_out_items(seed):
    items = demo.generate(400, seed=seed)
    assert len({item.prompt for item in items}) == 400
    assert len({item.key for item in items}) == 400
    assert all(demo.is_held_out(item.prompt) for item in items)


def test_categories_are_balanced():
    counts = Counter(item.category for item in demo.generate(400, seed=0))
    assert set(counts) == set(demo.CATEGORIES)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_references_are_right():
    for item in demo.generate(700, seed=5):
        symbols = item.prompt.split(": ")[1].split(" ")
        assert item.reference.split(" ") == _expected(item.category, symbols)
        assert demo.MIN_LENGTH <= len(symbols) == len(set(symbols)) <= demo.MAX_LENGTH
        assert item.key.startswith(f"{item.category}-")


def test_about_one_prompt_in_eight_is_held_out():
    prompts = [f"Reverse: {number}" for number in range(8000)]
    assert 850 < sum(map(demo.is_held_out, prompts)) < 1150


def test_the_division_never_changes():
    held_out = [letter for letter in demo.LETTERS if demo.is_held_out(f"Sort: {letter} 1 2")]
    assert "".join(held_out) == "befnrsvy"


def test_no_items_and_too_few():
    assert demo.generate(0, seed=1) == []
    with pytest.raises(ValueError, match="negative"):
        demo.generate(-1, seed=1)
