"""Texts of judges, good and bad; every parser on every text."""

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.methods import align_bench, auto_j, critique_llm, mt_bench_judge

RATINGS: dict[str, Callable[[str], float | None]] = {
    "mt_bench": lambda text: mt_bench_judge.RATING.read(text).value,
    "auto_j": lambda text: auto_j.RATING.read(text).value,
    "critique_llm": lambda text: critique_llm.SCORE.read(text).value,
    "align_bench": lambda text: align_bench.parse_judgment(text)[0],
}
VERDICTS: dict[str, Callable[[str], object]] = {
    "mt_bench": lambda text: mt_bench_judge.WINNER.read(text).value,
    "auto_j": lambda text: auto_j.DECISION.read(text).value,
    "critique_llm": lambda text: critique_llm.LABEL.read(text).value,
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
    for parse in (*RATINGS.values(), *VERDICTS.values()):
        parse(text)
    for convention in ("auto_j", "selfeval"):
        auto_j.RATING.by(text, convention)[0]
    mt_bench_judge.RATING.by(text, "fastchat")[0]
    critique_llm.SCORE.by(text, "critique_llm")[0]
    align_bench.parse_judgment(text, convention="align_bench")


@given(texts)
def test_a_rating_is_missing_or_on_the_scale(text):
    for name, parse in RATINGS.items():
        value = parse(text)
        assert value is None or 0.0 <= value <= 10.0, name
    assert all(1.0 <= value <= 10.0 for value in align_bench.parse_judgment(text)[1].values())


@given(texts)
def test_a_verdict_is_missing_or_one_of_the_three(text):
    assert mt_bench_judge.WINNER.read(text).value in {None, "A", "B", "tie"}
    assert auto_j.DECISION.read(text).value in {None, 0, 1, 2}
    assert critique_llm.LABEL.read(text).value in {None, 0, 1, 2}


@pytest.mark.parametrize("name", RATINGS)
def test_no_rating_is_missing(name):
    assert RATINGS[name]("I would say it is very good.") is None
    assert RATINGS[name]("") is None


@pytest.mark.parametrize("name", VERDICTS)
def test_no_verdict_is_missing(name):
    assert VERDICTS[name]("Both are fine, A perhaps a little more.") is None


READINGS = {
    "rating": mt_bench_judge.RATING.read,
    "winner": mt_bench_judge.WINNER.read,
    "auto_j": auto_j.RATING.read,
    "decision": auto_j.DECISION.read,
    "critique": critique_llm.SCORE.read,
    "label": critique_llm.LABEL.read,
    "overall": align_bench.read_rating,
}
AMBIGUOUS = [
    # The audit's two texts, and what is like them.
    ("rating", "As shown in [1], the answer is right. Rating: 8"),
    ("rating", "see [1] for details. Rating: 7"),
    ("rating", "It cites [2]."),
    ("winner", "Not [[A]] but [[B]]"),
    ("winner", "It would be wrong to say [[A]]: my final verdict is [[B]]."),
    ("winner", "I would not say [[A]]."),
    ("winner", "I can't give it [[A]] here"),
    ("winner", "Neither [[A]]"),
    ("winner", 'Say "[[A]]" if A is better, "[[B]]" if B is, "[[C]]" for a tie'),
    ("rating", "First [[3]] then final [[9]]"),
    ("rating", "It does not deserve a [[9]]."),
    ("rating", "a [[7]] rather than [[7]]"),
    ("auto_j", 'for example "Rating: [[5]]". Here: Rating: [[8]]'),
    ("decision", "So, the final decision is Response 1. No, the final decision is Tie"),
    ("critique", "综合得分: 3 ... 综合得分: 8"),
    ("critique", "'综合得分': 3 综合得分\uff1a8"),
    ("label", "{'综合比较结果': '助手1'} {'综合比较结果': '助手2'}"),
    ("overall", "{'综合得分': 2} {'综合得分': 9}"),
    ("overall", "综合得分: 2 {'清晰度': 9, '综合得分': 9}"),
]
CLEAR = [
    ("rating", "The answer is correct, as [1] says. Rating: [[8]]", 8.0),
    ("rating", "Rating: [[8]]\nAgain: [[8]]", 8.0),
    ("rating", "see [1]. Rating: [8]", 8.0),
    ("rating", "**Rating:** [6]", 6.0),
    ("rating", " [7]\n", 7.0),
    ("rating", "It is not wrong. [[9]]", 9.0),
    ("rating", "It could not be better, so [[10]]", 10.0),
    ("rating", "It does not answer the second question: [[4]]", 4.0),
    ("winner", "Assistant B is not as good. [[A]]", "A"),
    ("winner", "- B does not follow the instructions\n\n[[A]]", "A"),
    ("winner", "Assistant A never says why, so my final verdict is: [[B]]", "B"),
    ("winner", "[[C]]", "tie"),
    ("auto_j", "In conclusion, it is not great. \n\nRating: [[6]] ", 6.0),
    ("decision", "3. Conclusion: neither is wrong. So, the final decision is Response 2.", "B"),
    ("critique", "回答不错。\n综合得分: 7", 7.0),
    ("label", "助手1更好。{'综合比较结果': '助手1'}", "A"),
    ("overall", "没有错误。{'事实正确性': 9, '综合得分': 8}", 8.0),
]


@pytest.mark.parametrize(("form", "text"), AMBIGUOUS)
def test_a_text_that_says_several_things_or_denies_one_has_no_verdict_and_says_why(form, text):
    read = READINGS[form](text)
    assert (read.value, read.cause) == (None, "ambiguous_verdict")
    assert read.message


@pytest.mark.parametrize(("form", "text", "value"), CLEAR)
def test_an_ordinary_verdict_is_read_at_its_place(form, text, value):
    read = READINGS[form](text)
    assert (read.value, read.cause) == (value, "")
    assert read.match is not None
    label = text[read.match.begin : read.match.end]
    assert str(label).strip("[]'")
    assert text[read.match.end :].startswith(read.match.closing)


@pytest.mark.parametrize("form", READINGS)
def test_a_text_without_anything_like_a_verdict_has_none(form):
    assert READINGS[form]("A fine answer, though short.").cause == "no_verdict"


def test_a_rating_off_the_scale_says_so():
    read = mt_bench_judge.RATING.read("[[100]]")
    assert (read.value, read.cause) == (None, "verdict_off_scale")
    assert "100" in read.message


@given(texts)
def test_where_the_strict_reading_says_something_the_published_one_says_the_same(text):
    """Only what is refused differs; AlignBench, which cuts decimals, is left out."""
    pairs = [
        (mt_bench_judge.RATING.read(text).value, mt_bench_judge.RATING.by(text, "fastchat")[0]),
        (mt_bench_judge.WINNER.read(text).value, mt_bench_judge.WINNER.by(text, "fastchat")[0]),
        (auto_j.RATING.read(text).value, auto_j.RATING.by(text, "auto_j")[0]),
        (auto_j.DECISION.read(text).value, auto_j.DECISION.by(text, "auto_j")[0]),
        (critique_llm.LABEL.read(text).value, critique_llm.LABEL.by(text, "critique_llm")[0]),
    ]
    for strict, published in pairs:
        assert strict is None or strict == published


def test_conventions_of_missing_verdicts_have_names():
    assert mt_bench_judge.RATING.by("none", "fastchat")[0] == -1
    assert mt_bench_judge.WINNER.by("none", "fastchat")[0] is None
    assert auto_j.RATING.by("none", "auto_j")[0] == 0.0
    assert auto_j.RATING.by("none", "selfeval")[0] == 5.0
    assert auto_j.DECISION.by("none", "auto_j")[0] is None
    assert critique_llm.SCORE.by("none", "critique_llm")[0] == 5.0
    assert critique_llm.LABEL.by("none", "critique_llm") == (None, None)
    assert align_bench.SCORE.by("none", "align_bench")[0] == -1


def test_fastchat_checks_no_range_and_we_do():
    assert mt_bench_judge.RATING.by("[[100]]", "fastchat")[0] == 100
    assert mt_bench_judge.RATING.read("[[100]]").value is None
    assert mt_bench_judge.RATING.read("[[0]]").value is None


def test_a_number_too_long_for_a_float_is_missing():
    assert mt_bench_judge.RATING.read("[[" + "9" * 400 + "]]").value is None


def test_by_convention_auto_j_takes_the_last_rating_and_mt_bench_the_first():
    text = 'for example "Rating: [[5]]". Here: Rating: [[ 8 ]]'
    assert auto_j.RATING.by(text, "auto_j")[0] == 8.0
    assert mt_bench_judge.RATING.by(text, "fastchat")[0] == 5.0


def test_auto_j_reads_a_decision_whatever_its_case_and_by_convention_the_last():
    text = "So, the final decision is Response 1 ... no, the final decision is  TIE."
    assert auto_j.DECISION.by(text, "auto_j")[0] == "tie"
    assert auto_j.DECISION.read(text).value is None
    assert auto_j.DECISION.read("the final decision is  TIE.").value == "tie"
    assert auto_j.DECISION.read("the final decision is response 2").value == "B"


def test_align_bench_reads_the_dimensions_of_the_last_dictionary():
    example = "{'事实正确性': 9, '综合得分': 7.5}"
    text = f"例如 {example} 最后 {{'事实正确性': 6, '清晰度': 7.5, '综合得分': 7.5}}"
    found = align_bench.parse_judgment(text)
    assert found == (7.5, {"事实正确性": 6.0, "清晰度": 7.5})
    two = align_bench.parse_judgment(text.replace("7.5}", "2}", 1))
    assert two == (None, {})
    published = align_bench.parse_judgment(text.replace("7.5}", "2}", 1), convention="align_bench")
    assert published[0] == 7.0


def test_align_bench_itself_cuts_decimals_in_the_dictionary_and_not_outside():
    inside = align_bench.parse_judgment("{'综合得分': 7.5}", convention="align_bench")
    over_lines = align_bench.parse_judgment("{\n'综合得分': 7.5\n}", convention="align_bench")
    assert (inside[0], over_lines[0]) == (7.0, 7.5)


@pytest.mark.parametrize(
    "text", ['{"综合得分": 8}', "{\n '综合得分' \uff1a 8\n}", "综合得分\uff1a8"]
)
def test_align_bench_scores_in_other_clothes(text):
    assert align_bench.parse_judgment(text)[0] == 8.0


def test_align_bench_braces_that_do_not_close_hold_nothing():
    found = align_bench.parse_judgment("{'清晰度': 7, '综合得分': 9")
    assert found == (9.0, {})


def test_critique_llm_reads_hundred_as_ten_only_by_its_own_convention():
    assert critique_llm.SCORE.by("综合得分: 100", "critique_llm")[0] == 10.0
    assert critique_llm.SCORE.read("综合得分: 100").value is None
    assert critique_llm.SCORE.read("'综合得分': 0.5").value == 0.5


def test_critique_llm_labels():
    read = [
        critique_llm.LABEL.read(f"{{'综合比较结果': '{name}'}}").value
        for name in critique_llm.LABELS
    ]
    assert read == ["A", "B", "tie"]


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
    assert found[1] == expected


def regex_rating(text):
    """FastChat's own expressions, for short texts."""
    match = re.search(r"\[\[(\d+\.?\d*)\]\]", text) or re.search(r"\[(\d+\.?\d*)\]", text)
    return -1.0 if match is None else float(match.group(1))


@given(st.text("[].0715 x", max_size=30))
def test_the_linear_reading_of_mt_bench_equals_its_expressions(text):
    found = mt_bench_judge.RATING.by(text, "fastchat")[0]
    assert isinstance(found, float)
    assert math.isclose(found, regex_rating(text))
