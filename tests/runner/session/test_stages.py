import msgspec
import numpy as np

from orchestrator.contracts.method import Combination
from orchestrator.runner.session.progress import Stages
from orchestrator.units import Plan
from tests.core.fakes import nothing, plan


def two_methods(n_items=4):
    """Answers of two models and one pair of them."""
    one = plan(nothing, ("a", "b"), n_items)
    two = plan(nothing, ("a", "b"), n_items, [Combination(("a", "b"))])
    parts = [one.parts[0], two.parts[0]]
    names = ("answers", "pairs")
    renamed = [msgspec.structs.replace(p, name=n) for p, n in zip(parts, names, strict=True)]
    return Plan(renamed, one.items, one.identities, 0)


def said(stages, not_needed):
    return {s.name: (s.total, s.stored, s.done, s.failed) for s in stages.progress(not_needed)}


def test_units_are_counted_by_the_method_they_belong_to():
    made = two_methods()
    none = np.zeros(3, dtype=np.int64)
    stages = Stages(made, bytearray([1, 1, 0] + [1, 0, 0] + [0] * 6), none)
    stages.ended(2, failed=False)
    stages.ended(4, failed=True)
    assert said(stages, none) == {"answers": (8, 3, 1, 1), "pairs": (4, 0, 1, 0)}


def test_units_that_are_not_needed_are_neither_stored_nor_planned():
    made = two_methods()
    not_needed = np.array([0, 0, 2])
    stages = Stages(made, bytearray([1, 1, 1] * 2 + [0] * 6), not_needed)
    assert said(stages, not_needed) == {"answers": (8, 4, 0, 0), "pairs": (2, 0, 0, 0)}


def test_units_are_counted_by_the_model_that_they_ask_last():
    made = two_methods()
    none = np.zeros(3, dtype=np.int64)
    stages = Stages(made, bytearray([1, 1, 0] + [1, 0, 0] + [0] * 6), none)
    assert stages.of_models(none) == {"a": (0, 2), "b": (0, 7)}
    stages.ended(2, failed=False)
    stages.ended(6, failed=True)
    assert stages.of_models(none) == {"a": (1, 1), "b": (1, 6)}
    # Two units of the pair have turned out not to be needed.
    assert stages.of_models(np.array([0, 0, 2])) == {"a": (1, 1), "b": (1, 4)}
