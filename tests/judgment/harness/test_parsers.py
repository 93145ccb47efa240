"""What judges write, well and badly; every parser on every text."""

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.judgment.harness import align_bench, auto_j, critique_llm, mt_bench

RATINGS: dict[str, Callable[[str], float | None]] = {
    "mt_bench": mt_bench.parse_rating,
    "auto_j": auto_j.parse_rating,
    "critique_llm": critique_llm.parse_score,
    "align_bench": lambda text: align_bench.parse_judgment(text).score,
}
VERDICTS: dict[str, Callable[[str], object]] = {
    "mt_bench": mt_bench.parse_winner,
    "auto_j": auto_j.parse_decision,
    "critique_llm": critique_llm.parse_label,
}
LONG = 400_000
HOSTILE = {
    "digits": "Rating: [[" + "1" * LONG,
    "digits with dots": "Rating: [[" + "1." * LONG,
    "open brackets": "[" * LONG,
    "ratings that never close": "Rating: [[5" * (LONG // 8),
    "open braces": "{" * LONG,
    "closed braces": "{'a': 5}" * (LONG // 8),
    "quotes": "{" + "'" * LONG + "}",
    "quotes and colons": "{" + "': '" * (LONG // 4) + "}",
    "spaces": "综合得分" + " " * LONG + ": 5",
    "decisions": "final decision is " * (LONG // 18),
    "blank after the decision": "final decision is " + " " * LONG,
    "keys": "'综合得分': " * (LONG // 8),
}
pieces = st.sampled_from([
    "[[", "]]", "[", "]", "{", "}", "'", ": ", "7", "8.5", "综合得分", "Rating: [[",
    "final decision is ", "Response 1", "tie", "\n", " ", "[[A]]", "[[C]]", "'综合得分': 6",
    ",", "-", "1e9",
])  # fmt: skip
texts = st.lists(pieces, max_size=40).map("".join) | st.text(max_size=80)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_read_in_linear_time(name):
    text = HOSTILE[name]
    for parse in (*RATINGS.values(), *VERDICTS.values(), mt_bench.parse_scores):
        parse(text)
    for convention in ("auto_j", "selfeval"):
        auto_j.parse_rating(text, convention=convention)
    mt_bench.parse_rating(text, convention="fastchat")
    critique_llm.parse_score(text, convention="critique_llm")
    align_bench.parse_judgment(text, convention="align_bench")


@given(texts)
def test_a_rating_is_missing_or_on_the_scale(text):
    for name, parse in RATINGS.items():
        value = parse(text)
        assert value is None or 0.0 <= value <= 10.0, name
    assert all(
        1.0 <= value <= 10.0 for value in align_bench.parse_judgment(text).dimensions.values()
    )


@given(texts)
def test_a_verdict_is_missing_or_one_of_the_three(text):
    assert mt_bench.parse_winner(text) in {None, "A", "B", "tie"}
    assert auto_j.parse_decision(text) in {None, 0, 1, 2}
    assert critique_llm.parse_label(text) in {None, 0, 1, 2}


@pytest.mark.parametrize("name", RATINGS)
def test_no_rating_is_missing(name):
    assert RATINGS[name]("I would say it is very good.") is None
    assert RATINGS[name]("") is None


@pytest.mark.parametrize("name", VERDICTS)
def test_no_verdict_is_missing(name):
    assert VERDICTS[name]("Both are fine, A perhaps a little more.") is None


def test_conventions_of_missing_verdicts_have_names():
    assert mt_bench.parse_rating("none", convention="fastchat") == -1
    assert mt_bench.parse_winner("none", convention="fastchat") == "error"
    assert auto_j.parse_rating("none", convention="auto_j") == 0.0
    assert auto_j.parse_rating("none", convention="selfeval") == 5.0
    assert auto_j.parse_decision("none", convention="auto_j") == -1
    assert critique_llm.parse_score("none", convention="critique_llm") == 5.0
    assert critique_llm.parse_label("none", convention="critique_llm") == -1
    assert align_bench.parse_judgment("none", convention="align_bench").score == -1


def test_fastchat_checks_no_range_and_we_do():
    assert mt_bench.parse_rating("[[100]]", convention="fastchat") == 100
    assert mt_bench.parse_rating("[[100]]") is None
    assert mt_bench.parse_rating("[[0]]") is None


def test_a_number_too_long_for_a_float_is_missing():
    assert mt_bench.parse_rating("[[" + "9" * 400 + "]]") is None


def test_two_ratings_in_one_text():
    assert mt_bench.parse_scores("so [[8, 6.5]]") == (8.0, 6.5)
    assert mt_bench.parse_scores("so [8,6]") == (8.0, 6.0)
    assert mt_bench.parse_scores("so [[8, 60]]") is None
    assert mt_bench.parse_scores("so [[8]]") is None


def test_auto_j_takes_the_last_rating_and_mt_bench_the_first():
    text = 'for example "Rating: [[5]]". Here: Rating: [[ 8 ]]'
    assert auto_j.parse_rating(text) == 8.0
    assert mt_bench.parse_rating(text) == 5.0


def test_auto_j_reads_the_last_decision_whatever_its_case():
    text = "So, the final decision is Response 1 ... no, the final decision is  TIE."
    assert auto_j.parse_decision(text) == 2
    assert auto_j.parse_decision("the final decision is response 2") == 1


def test_align_bench_reads_the_last_dictionary():
    example = "{'事实正确性': 9, '综合得分': 2}"
    text = f"例如 {example} 最后 {{'事实正确性': 6, '清晰度': 7.5, '综合得分': 7.5}}"
    found = align_bench.parse_judgment(text)
    assert (found.score, found.dimensions) == (7.5, {"事实正确性": 6.0, "清晰度": 7.5})


def test_align_bench_itself_cuts_decimals_in_the_dictionary_and_not_outside():
    inside = align_bench.parse_judgment("{'综合得分': 7.5}", convention="align_bench")
    over_lines = align_bench.parse_judgment("{\n'综合得分': 7.5\n}", convention="align_bench")
    assert (inside.score, over_lines.score) == (7.0, 7.5)


@pytest.mark.parametrize(
    "text", ['{"综合得分": 8}', "{\n '综合得分' \uff1a 8\n}", "综合得分\uff1a8"]
)
def test_align_bench_scores_in_other_clothes(text):
    assert align_bench.parse_judgment(text).score == 8.0


def test_align_bench_braces_that_do_not_close_hold_nothing():
    found = align_bench.parse_judgment("{'清晰度': 7, '综合得分': 9")
    assert (found.score, found.dimensions) == (9.0, {})


def test_critique_llm_reads_hundred_as_ten_only_by_its_own_convention():
    assert critique_llm.parse_score("综合得分: 100", convention="critique_llm") == 10.0
    assert critique_llm.parse_score("综合得分: 100") is None
    assert critique_llm.parse_score("'综合得分': 0.5") == 0.5


def test_critique_llm_labels():
    read = [
        critique_llm.parse_label(f"{{'综合比较结果': '{name}'}}") for name in critique_llm.LABELS
    ]
    assert read == [0, 1, 2]
    assert [critique_llm.swapped(label) for label in (0, 1, 2, None)] == [1, 0, 2, None]


def regex_entries(text):
    """AlignBench's own expressions, for short texts."""
    match = re.search(r"{(.*?)}(?![^{]*{)", text)
    if match is None:
        return {}
    return {key: int(value) for key, value in re.findall(r"'(.*?)': (\d+)", match.group(1))}


@given(st.text("{}':7 ,a\n", max_size=30))
def test_the_linear_reading_of_align_bench_equals_its_expressions(text):
    expected = {key: float(value) for key, value in regex_entries(text).items()}
    expected.pop(align_bench.OVERALL, None)
    found = align_bench.parse_judgment(text, convention="align_bench")
    assert found.dimensions == expected


def regex_rating(text):
    """FastChat's own expressions, for short texts."""
    match = re.search(r"\[\[(\d+\.?\d*)\]\]", text) or re.search(r"\[(\d+\.?\d*)\]", text)
    return -1.0 if match is None else float(match.group(1))


@given(st.text("[].0715 x", max_size=30))
def test_the_linear_reading_of_mt_bench_equals_its_expressions(text):
    found = mt_bench.parse_rating(text, convention="fastchat")
    assert found is not None
    assert math.isclose(found, regex_rating(text))
