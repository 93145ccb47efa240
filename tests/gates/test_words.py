"""What was measured for a requirement, in words."""

import pytest

from orchestrator.gates import Checked
from orchestrator.numbers import UNDEFINED
from orchestrator.report.gate import measured_words
from tests.crossed import crossed


@pytest.mark.parametrize(
    ("value", "form", "is_difference", "n"),
    crossed((None, 0.0, 0.25), ("number", "signed", "percent", "rating"), (True, False), (None, 8)),
)
def test_a_measure_is_its_number_or_said_to_have_none(value, form, is_difference, n):
    one = Checked(
        "x > 0", "not known yet", value, None, None, 0.0, ">", form, n, is_difference=is_difference
    )
    what, _, number = measured_words(one).partition(" ")
    assert what == ("difference" if is_difference else "measured")
    assert (number == UNDEFINED) is (value is None)
    assert number
