"""Temperatures by category: the benchmarks' own, a mapping, and what is in neither."""

import pytest

from orchestrator.methods._base import Drawing


@pytest.mark.parametrize(
    ("benchmark", "category", "temperature"),
    [
        ("mt_bench", "writing", 0.7),
        ("mt_bench", "roleplay", 0.7),
        ("mt_bench", "math", 0.0),
        ("mt_bench", "stem", 0.1),
        ("align_bench", "文本写作", 0.7),
        ("align_bench", "综合问答", 0.7),
        ("align_bench", "数学计算", 0.1),
    ],
)
def test_a_benchmarks_categories_are_drawn_as_its_authors_set(benchmark, category, temperature):
    drawing = Drawing(temperature=1.5, temperature_by_category=benchmark)
    assert drawing.sampling(category).temperature == temperature


def test_a_mapping_of_ones_own_goes_over_the_temperature():
    drawing = Drawing(temperature=0.3, temperature_by_category={"a": 0.9})
    found = [drawing.sampling(category).temperature for category in ("a", "b", None)]
    assert found == [0.9, 0.3, 0.3]


def test_a_temperature_below_zero_is_refused():
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        Drawing(temperature_by_category={"a": -1.0})
