"""Answers that exist already: every form of file, found by key or prompt, never the wrong one."""

import itertools
import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.errors import DatasetError
from orchestrator.recipe.settings import GivenAnswers
from orchestrator.records import Failure, Generation, Item, Message, Sampling, labels
from orchestrator.runner.models.answers import AnswerFile, given_answers
from tests.datasets.test_open import opened


def item(key="1", prompt="Why?", **fields):
    return Item(key=key, messages=(Message("user", prompt),), fields=fields)


def ask(of, *, turn=1, repeat=0):
    return GenerateAsk("m", of.messages, Sampling(), of.key, repeat=repeat, turn=turn)


@pytest.fixture
def file(tmp_path):
    def make(*rows, name="answers.jsonl", **settings):
        path = tmp_path / name
        if path.suffix == ".parquet":
            pl.DataFrame(rows).write_parquet(path)
        elif path.suffix == ".json":
            path.write_text(json.dumps(rows), encoding="utf-8")
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return AnswerFile(GivenAnswers(path=str(path), **settings), "m")

    return make


def text(answers, of, **which):
    found = answers.find(of, ask(of, **which))
    assert isinstance(found, Generation), found
    return found.text


def failure(answers, of, **which):
    found = answers.find(of, ask(of, **which))
    assert isinstance(found, Failure)
    assert found.permanent
    return found


# -- forms -------------------------------------------------------------------------------------

MT_BENCH = {
    "question_id": 81,
    "model_id": "gpt-4",
    "choices": [{"index": 1, "turns": ["c", "d"]}, {"index": 0, "turns": ["a", "b"]}],
}


def test_mt_bench_has_turns_and_several_choices(file):
    answers = file(MT_BENCH)
    assert [text(answers, item("81"), turn=turn) for turn in (1, 2)] == ["a", "b"]
    assert text(answers, item("81"), turn=2, repeat=1) == "d"


def test_alpaca_eval_is_a_list_matched_by_prompt(file):
    rows = ({"instruction": "Why?", "output": "So.", "generator": "g"},)
    assert text(file(*rows, name="a.json"), item("0123456789abcdef")) == "So."


LM_EVAL = {
    "doc_id": 3,
    "doc": {"question": "Why?"},
    "arguments": {"gen_args_0": {"arg_0": "Q: Why?\nA:"}},
    "resps": [["first", "second"]],
    "filtered_resps": ["FIRST"],
}


def test_lm_eval_gives_what_was_sampled_and_not_what_a_filter_left(file):
    answers = file(LM_EVAL)
    assert text(answers, item("3")) == "first"
    assert text(answers, item("3"), repeat=1) == "second"


def test_lm_eval_is_matched_by_the_question_of_its_document(file):
    assert text(file(LM_EVAL), item("another key")) == "first"


def test_lm_eval_is_matched_by_what_was_sent_where_the_document_has_no_question(file):
    row = {**LM_EVAL, "doc": {"x": 1}}
    assert text(file(row), item("k", "Q: Why?\nA:")) == "first"
    row = {**row, "arguments": [["Q: Why?\nA:", {"until": []}]]}
    assert text(file(row), item("k", "Q: Why?\nA:")) == "first"


def test_lm_eval_may_hold_filtered_answers_only(file):
    row = {"doc_id": 1, "filtered_resps": ["a"], "doc": {}}
    assert text(file(row), item("1")) == "a"


def test_log_likelihoods_of_lm_eval_are_no_answers(file):
    with pytest.raises(DatasetError, match="only tasks that generate have answers"):
        file({"doc_id": 1, "resps": [[[-1.5, False]]], "doc": {}})


def test_a_frame_of_answers_of_another_run_is_a_file_of_answers(file):
    rows = [
        {"item": "x", "model": m, "turn": t, "prompt": f"q{t}", "text": f"{m}{t}"}
        for m in "ab"
        for t in (1, 2)
    ]
    answers = file(*rows, name="answers.parquet", generator="b")
    assert [text(answers, item("x", "q1"), turn=turn) for turn in (1, 2)] == ["b1", "b2"]


@pytest.mark.parametrize("column", ["text", "answer", "output", "response", "completion"])
def test_a_plain_file_has_a_key_and_a_text(file, column):
    assert text(file({"key": "1", column: "So."}), item()) == "So."


def test_a_list_of_texts_answers_turn_by_turn(file):
    answers = file({"key": "1", "text": ["a", "b"]})
    assert text(answers, item(), turn=2) == "b"
    assert "answers 2 turns of '1', not turn 3" in failure(answers, item(), turn=3).message


def test_columns_may_be_named(file):
    row = {"id": "other", "mine": "1", "answer": "no", "said": "So."}
    assert text(file(row, key="mine", text="said"), item()) == "So."


def test_csv_is_read_too(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("key,text\n1,So.\n", encoding="utf-8")
    assert text(AnswerFile(GivenAnswers(path=str(path)), "m"), item()) == "So."


# -- whose answers -----------------------------------------------------------------------------

TWO = ({"key": "1", "text": "a", "model": "A"}, {"key": "1", "text": "b", "model": "B"})


def test_of_several_generators_one_is_chosen(file):
    assert text(file(*TWO, generator="B"), item()) == "b"


@pytest.mark.parametrize("name", ["7", 7, 0, "a", None, True, 1.5, [7], {"a": 7}], ids=repr)
def test_a_generator_is_a_text_or_a_whole_number(file, name):
    rows = ({"key": "1", "text": "a", "model": name}, TWO[1])
    if isinstance(name, str | int) and name is not True:
        assert text(file(*rows, generator=str(name)), item()) == "a"
    else:
        with pytest.raises(DatasetError, match=r"no answers by .*; there are '', 'B'"):
            file(*rows, generator=str(name))


def test_several_generators_and_none_chosen_is_an_error_that_lists_them(file):
    with pytest.raises(DatasetError, match=r"answers by 'A', 'B'; set models: .* generator: A"):
        file(*TWO)


def test_a_generator_that_is_not_there_is_an_error_that_lists_those_that_are(file):
    with pytest.raises(DatasetError, match="no answers by 'C'; there are 'A', 'B'"):
        file(*TWO, generator="C")


# -- never the wrong one -----------------------------------------------------------------------


def test_an_item_without_answer_is_a_failure_that_says_so(file):
    found = failure(file({"key": "1", "text": "a"}), item("2"))
    assert (found.cause, "has no answer to '2', turn 1" in found.message) == ("no_answer", True)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("cafe\u0301", "caf\u00e9"), ("caf\u00e9", "cafe\u0301"), ("A", "a"), ("a", "A"),
        ("A ", "A"), ("A", "A "), ("A", "\u00a0A"),
    ],
)  # fmt: skip
def test_a_key_that_only_looks_the_same_is_not_taken_and_is_named(file, given, wanted):
    found = failure(file({"key": given, "text": "a"}), item(wanted))
    assert found.cause == "no_answer"
    assert f"it has one to {given!a}, not to {wanted!a}" in found.message


def test_a_key_that_agrees_by_accident_is_not_taken(file):
    answers = file({"id": "1", "prompt": "Another?", "text": "a"})
    assert "has the key '1' but a different prompt" in failure(answers, item("1")).message


def test_a_key_that_the_user_named_is_taken_whatever_the_prompt(file):
    assert text(file({"id": "1", "prompt": "Another?", "text": "a"}, key="id"), item("1")) == "a"


def test_where_a_key_agrees_by_accident_the_prompt_still_finds_the_answer(file):
    rows = (
        {"id": "1", "prompt": "Another?", "text": "wrong"},
        {"id": "2", "prompt": "Why?", "text": "right"},
    )
    assert text(file(*rows), item("1")) == "right"


def test_two_answers_to_one_item_are_an_error_that_names_both_rows(file):
    with pytest.raises(
        DatasetError, match=r":2: '1' was answered at answers.jsonl:1 too; keep one"
    ):
        file({"key": "1", "text": "a"}, {"key": "1", "text": "b"})


def test_the_same_answer_twice_is_one(file):
    assert text(file({"key": "1", "text": "a"}, {"key": "1", "text": "a"}), item()) == "a"


def test_items_with_the_same_words_keep_their_own_answers(file):
    rows = [{"key": key, "prompt": "Why?", "text": key * 2} for key in "ab"]
    answers = file(*rows)
    assert [text(answers, item(key)) for key in "ab"] == ["aa", "bb"]
    assert failure(answers, item("c")).cause == "no_answer"


def test_a_repeat_that_the_file_has_not_is_a_failure(file):
    found = failure(file({"key": "1", "text": "a"}), item(), repeat=1)
    assert "has 1 answers to '1', not 2" in found.message


def test_a_rewriting_is_not_answered_from_a_file(file):
    assert failure(file({"key": "1", "text": "a"}), item(), turn=0).cause == "unsupported"


def test_a_file_neither_scores_nor_judges(file):
    answers, of = file({"key": "1", "text": "a"}), item()
    asks = [
        ScoreAsk("m", of.messages, (), "a"),
        ChooseAsk("m", of.messages, labels("x", "y")),
    ]
    found = [answers.find(of, one) for one in asks]
    assert [one.cause for one in found if isinstance(one, Failure)] == ["unsupported"] * 2


def test_what_was_given_has_no_tokens_and_no_logprobs(file):
    of = item()
    found = file({"key": "1", "text": "a"}).find(of, ask(of))
    assert isinstance(found, Generation)
    assert (found.finish_reason, found.token_ids, found.logprobs) == ("given", None, None)
    assert found.mean_logprob != found.mean_logprob


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"text": "a"}, "neither a key"),
        ({"key": "1"}, "no answer: none of text"),
        ({"key": "1", "text": None}, "no text for an answer, as in all other rows"),
        ({"key": "1", "text": ""}, "no text for an answer, as in all other rows"),
        ({"key": "1", "text": 7}, "'text' must be a text"),
        ({"key": "1", "turn": 0, "text": "a"}, "'turn' must be a number from 1"),
        ({"question_id": 1, "choices": []}, "'choices' must be a list"),
        ({"question_id": 1, "choices": [3]}, "'choices' must be a list"),
        ({"question_id": 1, "choices": [{"turns": "x"}, {}]}, "'choices' must be a text"),
    ],
)
def test_a_row_that_holds_no_answer_is_named_with_its_line(file, row, said):
    with pytest.raises(DatasetError, match=rf"answers.jsonl:1: .*{said}"):
        file(row)


NETWORK = "**NETWORK ERROR DUE TO HIGH TRAFFIC. PLEASE REGENERATE OR REFRESH THIS PAGE.**"


CALL = "Error code: 429 - {'error': {'message': 'Rate limit reached'}}"


@pytest.mark.parametrize(
    "empty",
    [
        None, "nan", "$ERROR$", " $API_ERROR$ ", "$MODERATION$ Your input …", NETWORK,
        "API_ERROR", CALL, f"openai.RateLimitError: {CALL}", "ERROR: rate limit exceeded",
        "Error: Request timed out.", "[ERROR] 500 Internal Server Error",
        "APIConnectionError: Connection error.", "Error: HTTP 502",
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["text", "turns", "resps", "field"])
def test_what_stands_for_an_answer_that_failed_is_no_answer(file, form, empty):
    """One item without an answer costs that item, and no other."""
    whole, turns = "It costs $5 or $ERROR$.", [empty, "b"]
    if form == "field":
        find, *_ = given_answers(GivenAnswers(field="gold"), "m")
        of = item("2", gold=turns)
        found, other = find(of, ask(of)), find(of, ask(of, turn=2))
        assert isinstance(other, Generation)
        assert other.text == "b"
    else:
        rows = {
            "text": [{"key": "1", "text": whole}, {"key": "2", "text": empty}],
            "turns": [{"question_id": 1, "choices": [{"turns": [whole]}]},
                      {"question_id": 2, "choices": [{"turns": turns}]}],
            "resps": [{"doc_id": 1, "resps": [[whole]]}, {"doc_id": 2, "resps": [[empty]]}],
        }[form]  # fmt: skip
        answers = file(*rows)
        found = answers.find(item("2"), ask(item("2")))
        assert text(answers, item("1")) == whole
    assert isinstance(found, Failure)
    assert (found.cause, found.permanent) == ("no_answer", True)


@pytest.mark.parametrize("blank", ["", " \n"])
@pytest.mark.parametrize("name", ["answers.jsonl", "answers.json", "answers.parquet"])
def test_an_empty_text_of_a_file_is_no_answer_and_one_that_was_labelled_is(file, blank, name):
    answers = file({"key": "1", "text": "a"}, {"key": "2", "text": blank}, name=name)
    assert failure(answers, item("2")).cause == "no_answer"
    find, *_ = given_answers(GivenAnswers(field="gold"), "m")
    of = item("2", gold=blank)
    found = find(of, ask(of))
    assert isinstance(found, Generation)
    assert found.text == blank


@pytest.mark.parametrize(
    "said",
    [
        "Error: list index out of range", "TypeError: unsupported operand", "Errors are human.",
        "None", "NaN", "ERROR is what the log says.", "NaN is not a number.",
        "Error bars show 95 %.",
    ],
)  # fmt: skip
def test_an_answer_about_errors_is_an_answer(file, said):
    assert text(file({"key": "1", "text": said}), item("1")) == said


TEXTS = st.text(min_size=1, max_size=8).filter(lambda said: said.strip() not in {"", "nan"})


@given(st.dictionaries(st.text(min_size=1, max_size=8), TEXTS, max_size=20))
def test_every_key_finds_its_own_answer(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("answers") / "a.jsonl"
    rows = [{"key": key, "text": value} for key, value in texts.items()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if not rows:
        return
    answers = AnswerFile(GivenAnswers(path=str(path)), "m")
    assert {key: text(answers, item(key)) for key in texts} == texts


# -- identity and fields -----------------------------------------------------------------------


def test_another_content_is_another_model(file):
    one = file({"key": "1", "text": "a"}).identity
    assert file({"key": "1", "text": "a"}).identity == one
    assert file({"key": "1", "text": "b"}).identity != one
    assert file({"key": "1", "text": "b"}, text="text").identity != one


def test_a_column_of_the_dataset_gives_the_answers_of_labelled_pairs():
    find, identity, _ = given_answers(GivenAnswers(field="response_a"), "m")
    of = item(response_a="So.", response_b=["x", "y"])
    found = find(of, ask(of))
    assert isinstance(found, Generation)
    assert found.text == "So."
    assert identity == {"answers": "field response_a"}


def test_a_column_may_hold_a_text_for_each_turn():
    find, *_ = given_answers(GivenAnswers(field="response"), "m")
    of = item(response=["x", "y"])
    found = find(of, ask(of, turn=2))
    assert isinstance(found, Generation)
    assert found.text == "y"


@pytest.mark.parametrize("value", [None, 7, [], [None], {"a": 1}])
def test_a_column_without_text_is_a_failure(value):
    find, *_ = given_answers(GivenAnswers(field="response"), "m")
    of = item(response=value)
    found = find(of, ask(of))
    assert isinstance(found, Failure)
    assert found.cause == "no_answer"


@pytest.mark.parametrize(
    "settings", [{}, {"path": "a", "field": "b"}, {"field": "b", "generator": "c"}]
)
def test_one_place_is_named(settings):
    with pytest.raises(ValueError, match="'path'"):
        GivenAnswers(**settings)


# -- what could be meant -------------------------------------------------------------------------

TEXT_COLUMNS = ("text", "answer", "output", "response", "completion", "prediction")


@pytest.mark.parametrize("two", list(itertools.combinations(TEXT_COLUMNS, 2)), ids="-".join)
def test_of_two_columns_that_could_be_the_answer_one_must_be_named(file, two):
    row = {"id": 1, two[0]: "gold", two[1]: "said"}
    with pytest.raises(DatasetError, match=f"'{two[0]}' and '{two[1]}' could each be the answer"):
        file(row)
    for name in two:
        assert text(file(row, text=name), item()) == row[name]


@pytest.mark.parametrize("asked", [81, 81.0, "81", "81.0"], ids=repr)
@pytest.mark.parametrize("given_as", [81, 81.0, "81", "81.0"], ids=repr)
def test_a_number_is_the_same_key_in_both_files(tmp_path, file, asked, given_as):
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps({"question_id": asked, "prompt": "Why?"}) + "\n", encoding="utf-8")
    assert text(file({"question_id": given_as, "text": "a"}), opened(path).item(0)) == "a"
