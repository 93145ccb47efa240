"""Requirements read by hand: what they mean, and where they stop making sense."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.gates import MEASURES, MOST, UnreadableError, read


@pytest.mark.parametrize(
    ("text", "left", "right", "operator", "threshold"),
    [
        ("large > medium", ("rating", ["large"]), ("rating", ["medium"]), ">", 0.0),
        ("large>=medium", ("rating", ["large"]), ("rating", ["medium"]), ">=", 0.0),
        ("large ≥ medium", ("rating", ["large"]), ("rating", ["medium"]), ">=", 0.0),
        ("win_rate(large, base) > 0.5", ("win_rate", ["large", "base"]), None, ">", 0.5),
        ("0.5 < win_rate(large, base)", ("win_rate", ["large", "base"]), None, ">", 0.5),
        ("coverage(judge) >= 90%", ("coverage", ["judge"]), None, ">=", 0.9),
        ("large > medium + 20", ("rating", ["large"]), ("rating", ["medium"]), ">", 20.0),
        ("large - 5 > medium + 20", ("rating", ["large"]), ("rating", ["medium"]), ">", 25.0),
        ("score(a) >= score(b) - 0.02", ("score", ["a"]), ("score", ["b"]), ">=", -0.02),
        ("score(a) >= score(b)-0.02", ("score", ["a"]), ("score", ["b"]), ">=", -0.02),
        ("score(a) >= score(b) -.02", ("score", ["a"]), ("score", ["b"]), ">=", -0.02),
        ("failed() <= 1e-2", ("failed", []), None, "<=", 0.01),
        ("gpt-4o.m > llama:3-8b", ("rating", ["gpt-4o.m"]), ("rating", ["llama:3-8b"]), ">", 0.0),
        ("'a, (b)' > \"c > d\"", ("rating", ["a, (b)"]), ("rating", ["c > d"]), ">", 0.0),
        ("模型 > модель", ("rating", ["模型"]), ("rating", ["модель"]), ">", 0.0),
    ],
)  # fmt: skip
def test_a_requirement_is_a_difference_and_a_threshold(text, left, right, operator, threshold):
    found = read(text)
    terms = [(one.measure, [name.text for name in one.names]) for one in found.terms]
    assert terms == [left, *([right] if right else [])]
    assert found.operator == operator
    assert found.threshold == pytest.approx(threshold)


def test_options_name_methods_judges_and_the_older_run():
    found = read("score(large, method=pointwise.score, judge='j 1') >= score(large, old) - 2%")
    assert found.left.option("method") == "pointwise.score"
    assert found.left.option("judge") == "j 1"
    assert [one.run for one in found.terms] == ["new", "old"]
    assert read("rating(large, run=old) > 1000").left.run == "old"
    assert read('win_rate(large, "old") > 0.5').left.names[1].text == "old"


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("", 1, "expected a model, a measure or a number; the requirement ends here"),
        ("large", 6, "expected a comparison"),
        ("large >", 8, "the requirement ends here"),
        ("large > medium > small", 16, "one comparison"),
        ("large = medium", 7, "can't be shown"),
        ("large medium", 7, "expected a comparison"),
        ("> medium", 1, "expected a model"),
        ("1 > 2", 1, "nothing to measure"),
        ("win_rat(large) > 0.5", 1, "did you mean 'win_rate'?"),
        ("frobnicate(large) > 0.5", 1, "measures: rating"),
        ("win_rate() > 0.5", 10, "needs the name of a model"),
        ("win_rate(large, base > 0.5", 22, "expected ',' or ')'"),
        ("win_rate(a, b, c) > 0.5", 16, "at most 2"),
        ("failed(x) > 0.5", 8, "takes no names"),
        ("score(a, metod=b) > 0.5", 10, "did you mean 'method'?"),
        ("score(a, run=older) > 0.5", 14, "there are new and old"),
        ("score(a, judge=j, judge=k) > 0.5", 19, "given twice"),
        ("score(a) > score(b) - c", 23, "expected a number"),
        ("score(a) > win_rate(b)", 12, "can't be compared"),
        ("kappa(a, b) > kappa(c, d)", 15, "only be compared with a number"),
        ("risk(j) < risk(k)", 11, "only be compared with a number"),
        ("large > large", 9, "both sides are the same"),
        ("'large > medium", 1, "not closed"),
        ("'' > medium", 1, "empty"),
        ("large > medium)", 15, "expected the end"),
        ("large > medium\x1b[31m", 15, "control character"),
        ("large > 1e400", 9, "1e400 is too large"),
        ("large > medium - 1e400", 18, "1e400 is too large"),
    ],
)
def test_a_fault_is_said_at_its_column(text, column, said):
    with pytest.raises(UnreadableError) as raised:
        read(text)
    assert raised.value.column == column
    assert said in raised.value.message
    assert str(raised.value).splitlines()[-1] == "-" * (column - 1) + "^"


def test_a_requirement_of_any_length_is_refused():
    with pytest.raises(UnreadableError, match=f"at most {MOST}"):
        read("a" * (MOST + 1))


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_at_a_column_of_it(text):
    try:
        column = len(read(text).text)
    except UnreadableError as error:
        column = error.column
    assert 1 <= column <= len(text) + 1


_NAMES = st.text("abcXYZ019._:-/é模", min_size=1, max_size=8).map(lambda text: f"m{text}")
_NUMBERS = st.integers(-9999, 9999).map(lambda value: value / 100)


@given(a=_NAMES, b=_NAMES, margin=_NUMBERS, operator=st.sampled_from([">", ">=", "<", "<="]))
def test_what_is_written_is_what_is_read(a, b, margin, operator):
    sign = "-" if margin < 0 else "+"
    found = read(f"score({a}) {operator} score({b}, old) {sign} {abs(margin)}")
    assert [one.names[0].text for one in found.terms] == [a, b]
    assert found.operator == operator
    assert found.threshold == pytest.approx(margin)


def test_every_measure_says_what_it_is():
    for name, measure in MEASURES.items():
        assert measure.says
        assert measure.n_least <= len(measure.roles), name
