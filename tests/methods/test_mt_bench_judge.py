import json

import numpy as np
import pytest
from pydantic import ValidationError

from orchestrator.ask import AskFailed
from orchestrator.methods import mt_bench_judge as method
from orchestrator.records import Generation, Prefix, Unit
from tests.conftest import SHARED
from tests.methods.harness_judge import ITEM, ONE_TURN, PAIR, SINGLE, Judge, rows_of

FASTCHAT = SHARED / "data" / "judge_prompts.jsonl"
NAMES = (
    "single-v1", "single-math-v1", "single-v1-multi-turn", "single-math-v1-multi-turn",
    "pair-v2", "pair-math-v1", "pair-v2-multi-turn", "pair-math-v1-multi-turn",
)  # fmt: skip


@pytest.fixture
def prompts(tmp_path):
    """A file of FastChat's form, each wording begins with its name."""
    lines = []
    for name in NAMES:
        sides = ("answer_a", "answer_b") if name.startswith("pair") else ("answer",)
        numbers = (1, 2) if "multi" in name else ("",)
        shown = [f"{side}{f'_{n}' if n else ''}" for side in sides for n in numbers]
        shown += [f"ref_answer_{n or 1}" for n in numbers] if "math" in name else []
        text = f"{name} " + " ".join(f"{field}=<{{{field}}}>" for field in shown)
        lines.append({"name": name, "system_prompt": f"as {name}", "prompt_template": text})
    file = tmp_path / "judge_prompts.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    return str(file)


def config(prompts="compact", **changes):
    return method.Config.model_validate({"judges": ["judge"], "prompts": prompts, **changes})


def shown(judge):
    return [ask.messages[-1].content for ask in judge.judged]


def test_each_turn_is_rated_with_the_conversation_up_to_it(prompts):
    judge = Judge(lambda text: "Rating: [[8]]" if "multi" in text else "Rating: [[3.5]] fine")
    rows = rows_of(method, config(prompts), SINGLE, judge)
    assert [(row["turn"], row["rating"], row["status"]) for row in rows] == [
        (1, 3.5, "ok"),
        (2, 8.0, "ok"),
    ]
    assert shown(judge) == [
        "single-math-v1 answer=<a says 1> ref_answer_1=<4>",
        "single-math-v1-multi-turn answer_1=<a says 1> answer_2=<a says 2> "
        "ref_answer_1=<4> ref_answer_2=<6>",
    ]
    assert judge.judged[0].messages[0] == ("system", "as single-math-v1")


def test_only_some_categories_see_a_reference(prompts):
    judge = Judge(lambda text: "[[5]]")
    rows_of(method, config(prompts), Unit(ONE_TURN, ("a",), "judge"), judge)
    assert shown(judge) == ["single-v1 answer=<a says 1>"]


def test_a_category_that_needs_a_reference_fails_without_one(prompts):
    asked = config(prompts, reference_categories=["writing"])
    with pytest.raises(AskFailed, match="ref_answer_1"):
        rows_of(method, asked, Unit(ONE_TURN, ("a",), "judge"), Judge(lambda text: "[[5]]"))


@pytest.mark.parametrize(
    ("ab", "ba", "winner"),
    [("[[A]]", "[[B]]", "A"), ("[[A]]", "[[A]]", "tie"), ("[[B]]", "[[A]]", "B"),
     ("[[C]]", "[[A]]", "tie"), ("[[A]]", "so", None)],
)  # fmt: skip
def test_a_win_counts_where_both_games_agree(prompts, ab, ba, winner):
    judge = Judge(lambda text: ab if text.index("<a ") < text.index("<b ") else ba)
    rows = rows_of(method, config(prompts, mode="pairwise"), PAIR, judge)
    assert [row["winner"] for row in rows] == [winner, winner]
    assert {row["status"] for row in rows} == {"failed" if winner is None else "ok"}


def test_a_text_without_a_verdict_is_missing_and_keeps_the_text(prompts):
    judge = Judge(lambda text: Generation("I can't say", "length"))
    row = rows_of(method, config(prompts), SINGLE, judge)[0]
    assert (row["rating"], row["status"], row["cause"]) == (None, "failed", "no_verdict")
    assert row["message"] == "the judge's text was cut off without a verdict"
    assert row["text"] == "I can't say"


CITES = "As shown in [1], the answer is right. Rating: 8"
DENIES = "It would be wrong to say [[A]], so my final verdict is [[B]]"


def test_a_citation_is_no_rating_but_by_fastchats_convention(prompts):
    judge = Judge(lambda text: CITES, {"1": 1.0})
    row = rows_of(method, config(prompts, distribution=True), SINGLE, judge)[0]
    assert (row["rating"], row["parsed"], row["status"]) == (None, False, "failed")
    assert row["cause"] == "ambiguous_verdict"
    assert row["message"] == "the judge's text has no [[rating]]; [1] may be a citation"
    assert (row["text"], judge.chosen) == (CITES, [])
    published = config(prompts, distribution=True, convention="fastchat")
    row = rows_of(method, published, SINGLE, judge)[0]
    assert (row["rating"], row["parsed"], row["status"]) == (1.0, False, "ok")
    assert judge.chosen[0].prefix.text == "As shown in ["


def test_a_verdict_that_is_denied_does_not_win_but_by_fastchats_convention(prompts):
    judge = Judge(lambda text: DENIES)
    row = rows_of(method, config(prompts, mode="pairwise"), PAIR, judge)[0]
    assert (row["winner_ab"], row["winner"], row["cause"]) == (None, None, "ambiguous_verdict")
    assert row["message"] == "the judge's text holds different verdicts: [[A]], [[B]]"
    published = config(prompts, mode="pairwise", convention="fastchat")
    row = rows_of(method, published, PAIR, judge)[0]
    assert (row["winner_ab"], row["status"]) == ("A", "ok")


def test_a_rating_off_the_scale_is_missing_and_says_so(prompts):
    row = rows_of(method, config(prompts), SINGLE, Judge(lambda text: "[[100]]"))[0]
    assert (row["rating"], row["cause"]) == (None, "verdict_off_scale")
    assert row["message"] == "the judge's text has a rating of 100, outside 1 to 10"


def test_fastchats_convention_is_minus_one_and_left_out(prompts):
    judge = Judge(lambda text: "none" if "multi" in text else "[[100]]")
    one, two = rows_of(method, config(prompts, convention="fastchat"), SINGLE, judge)
    assert (one["rating"], one["status"]) == (100.0, "ok")
    assert (two["rating"], two["parsed"], two["status"]) == (-1.0, False, "failed")


def test_the_distribution_is_read_where_the_verdict_stands(prompts):
    judge = Judge(lambda text: "See. Rating: [[7]] or so", {"7": 0.6, "8": 0.2})
    row = rows_of(method, config(prompts, distribution=True), SINGLE, judge)[0]
    ask = judge.chosen[0]
    assert ask.prefix.text == "See. Rating: [["
    assert [label.spellings for label in ask.labels][-1] == ("10]]",)
    assert row["rating"] == 7.0
    assert row["expected"] == pytest.approx(0.75 * 7 + 0.25 * 8)
    assert row["coverage"] == pytest.approx(0.8)


def test_the_judges_own_tokens_are_gone_on_from(prompts):
    said = Generation(
        "Rating: [[7]]",
        "stop",
        token_ids=np.array([4, 5, 6, 7], np.int32),
        offsets=np.array([0, 7, 10, 11], np.int32),
    )
    judge = Judge(lambda text: said, {"7": 1.0})
    rows_of(method, config(prompts, distribution=True), SINGLE, judge)
    assert judge.judged[0].offsets
    assert judge.chosen[0].prefix == Prefix("Rating: [[", (4, 5))


def test_what_a_judge_thinks_is_no_verdict(prompts):
    judge = Judge(lambda text: "<think>maybe [[2]]</think> Rating: [[7]]", {"7": 1.0})
    row = rows_of(method, config(prompts, distribution=True), SINGLE, judge)[0]
    assert row["rating"] == 7.0
    assert judge.chosen[0].prefix.text.endswith("</think> Rating: [[")
    endless = Judge(lambda text: "<think>maybe [[2]]")
    assert rows_of(method, config(prompts), SINGLE, endless)[0]["rating"] is None


def test_the_preference_of_both_games_is_averaged(prompts):
    judge = Judge(lambda text: "[[A]]", {"A": 0.5, "B": 0.2, "C": 0.3})
    row = rows_of(method, config(prompts, mode="pairwise", distribution=True), PAIR, judge)[0]
    assert row["prefer_a"] == pytest.approx(0.5)
    assert (row["winner_ab"], row["winner_ba"], row["winner"]) == ("A", "B", "tie")


def test_the_bundled_judge_is_asked_in_its_own_words():
    judge = Judge(lambda text: "9")
    rows = rows_of(method, config(), SINGLE, judge)
    assert [row["rating"] for row in rows] == [9.0, 9.0]
    assert shown(judge)[0] == (
        "Rate the answer from 1 to 9. Rating only.\nTask: What is 2+2?\nReference: 4\n"
        "Answer: a says 1"
    )


def test_the_bundled_judges_symbols_are_winners():
    judge = Judge(lambda text: "[[>]]" if text.index("a says") < text.index("b says") else "[[<<]]")
    rows = rows_of(method, config(mode="pairwise"), PAIR, judge)
    assert {row["winner"] for row in rows} == {"A"}


def test_answers_with_braces_and_markers_are_shown_as_they_are(prompts):
    wordings = config(prompts).prompts
    fields = {"answer": "{answer} {{x}} [[10]]", "ref_answer_1": None}
    assert wordings["single-v1"].fill(fields)[1] == "single-v1 answer=<{answer} {{x}} [[10]]>"


def test_fastchats_own_file_has_all_eight():
    if not FASTCHAT.is_file():
        pytest.skip("../shared is absent")
    read = config(str(FASTCHAT)).prompts
    assert set(read) == set(NAMES)
    judge = Judge(lambda text: "[[C]]")
    for mode, unit in (("single", SINGLE), ("pairwise", PAIR)):
        rows_of(method, config(str(FASTCHAT), mode=mode), unit, judge)
    assert not [text for text in shown(judge) if "{" in text]
    assert "### Reference answer:\n6" in shown(judge)[1]


def test_the_glass_box_papers_wordings_have_no_references_and_another_system_prompt():
    judge = Judge(lambda text: "Fine. Rating: [[7]]")
    rows = rows_of(method, config("selfeval"), SINGLE, judge)
    assert [row["rating"] for row in rows] == [7.0, 7.0]
    one, two = (ask.messages for ask in judge.judged)
    assert one[0].content == two[0].content == "You are a helpful assistant."
    assert one[1].content.endswith(
        "[Question]\nWhat is 2+2?\n[The Start of Assistant's Answer]\na says 1\n"
        "[The End of Assistant's Answer]"
    )
    assert "### User:\nAnd 3+3?\n### Assistant A:\na says 2\n" in two[1].content
    # The item is one of mathematics, which FastChat judges against its reference.
    assert "4" not in "".join(message.content for message in one).replace("10", "")
    with pytest.raises(ValidationError, match="no wording for mode pairwise"):
        config("selfeval", mode="pairwise")


def test_a_missing_file_says_where_to_get_it():
    with pytest.raises(ValidationError, match=r"judge_prompts\.jsonl in the repository lm-sys"):
        config("no_such_file.jsonl")


def test_a_file_without_the_wordings_that_are_needed_names_them(tmp_path):
    file = tmp_path / "some.jsonl"
    file.write_text(json.dumps({"name": "single-v1", "prompt_template": "{answer}"}))
    with pytest.raises(ValidationError, match=r"has no single-v1-multi-turn, single-math-v1"):
        config(str(file))


def test_settings_read_from_a_file_load_again_without_it(prompts):
    made = config(prompts)
    again = method.Config.model_validate(made.model_dump(mode="json"))
    assert again == made


def test_a_third_turn_has_no_wording_of_fastchats(prompts):
    three = Unit(ITEM.__class__(key="k", messages=ITEM.messages, followups=("b", "c")), ("a",), "j")
    with pytest.raises(AskFailed, match="show 2 turns"):
        rows_of(method, config(prompts), three, Judge(lambda text: "[[5]]"))


def test_a_baseline_is_compared_with_every_model():
    asked = config(mode="pairwise", baseline="b")
    pairs = [one.models for one in method.Kind(asked).combinations(("a", "b", "c"))]
    assert pairs == [("a", "b"), ("c", "b")]
    with pytest.raises(ValidationError, match="can be used only with mode: pairwise"):
        config(baseline="b")
