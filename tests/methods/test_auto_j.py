import pytest
from pydantic import ValidationError

from orchestrator.ask import AskFailed
from orchestrator.methods import auto_j, self_generation
from orchestrator.records import Unit
from tests.methods.harness_judge import ITEM, PAIR, SINGLE, Judge, rows_of

# The form of Auto-J's own file, with other words.
FILE = '''
import os
single = """Query {prompt} Response {response}"""
pairwise_tie: str = "Query {prompt} One {response} Two {response_another}"
mapping = {"single": single}
'''


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "constants_prompt.py"
    path.write_text(FILE)
    return str(path)


def config(**changes):
    return auto_j.Config.model_validate({"judges": ["judge"], **changes})


def test_the_papers_wording_shows_question_and_answer():
    judge = Judge(lambda text: "Good. Rating: [[9]]")
    row = rows_of(auto_j, config(), SINGLE, judge)[0]
    assert row["rating"] == 9.0
    text = judge.judged[0].messages[-1].content
    assert "# [Query]: What is 2+2?\n# ***\n# [Response]: a says 1\n" in text
    assert text.endswith('"[[rating]]", for example: "Rating: [[5]]".')


def test_the_papers_wording_numbers_the_turns():
    judge = Judge(lambda text: "Rating: [[9]]")
    rows_of(auto_j, config(), SINGLE, judge)
    text = judge.judged[1].messages[-1].content
    assert "# [Query 1]: What is 2+2?\n# ***\n# [Response 1]: a says 1\n# ***\n" in text
    assert "# [Query 2]: And 3+3?\n# ***\n# [Response 2]: a says 2\n# ***\n# [END DATA]" in text


def test_a_rating_in_the_first_line_is_read_there_alone():
    judge = Judge(lambda text: "8\nIt is 10 times better than a [[3]].", {"8": 0.5, "10": 0.5})
    asked = config(prompts="first_line", distribution=True)
    one, two = rows_of(auto_j, asked, SINGLE, judge)
    assert (one["rating"], two["rating"]) == (8.0, 8.0)
    assert one["expected"] == pytest.approx(9.0)
    assert judge.chosen[0].prefix.text == ""
    first, second = (ask.messages[-1].content for ask in judge.judged)
    assert "[Question]\nWhat is 2+2?\n[The Start of Assistant's Answer]\na says 1\n" in first
    assert "### User:\nAnd 3+3?\n### Assistant:\na says 2\n" in second


@pytest.mark.parametrize("text", ["Score: 8\nGood.", "8 or 9\nGood.", "", "Good.\n8"])
def test_another_first_line_is_no_rating(text):
    row = rows_of(auto_j, config(prompts="first_line"), SINGLE, Judge(lambda _: text))[0]
    assert (row["rating"], row["cause"]) == (None, "no_verdict")


def test_a_rating_off_the_scale_is_missing():
    judge = Judge(lambda _: "85\nGood.")
    row = rows_of(auto_j, config(prompts="first_line"), SINGLE, judge)[0]
    assert (row["rating"], row["cause"]) == (None, "verdict_off_scale")


def test_a_third_turn_has_no_rating_in_a_first_line():
    three = Unit(ITEM.__class__(key="k", messages=ITEM.messages, followups=("b", "c")), ("a",), "j")
    with pytest.raises(AskFailed, match="shows 2 turns, this item has 3"):
        rows_of(auto_j, config(prompts="first_line"), three, Judge(lambda _: "8"))


def test_conventions_are_for_the_other_form():
    with pytest.raises(ValidationError, match="not for prompts: first_line"):
        config(prompts="first_line", convention="selfeval")


def test_two_ratings_are_no_rating_but_by_the_convention_the_last_counts():
    judge = Judge(lambda text: "Good. Rating: [[5]] no, Rating: [[9]]")
    row = rows_of(auto_j, config(), SINGLE, judge)[0]
    assert (row["rating"], row["status"], row["cause"]) == (None, "failed", "ambiguous_verdict")
    row = rows_of(auto_j, config(convention="auto_j"), SINGLE, judge)[0]
    assert (row["rating"], row["status"]) == (9.0, "ok")


@pytest.mark.parametrize(("convention", "rating"), [("auto_j", 0.0), ("selfeval", 5.0)])
def test_conventions_count_what_is_missing(convention, rating):
    rows = rows_of(auto_j, config(convention=convention), SINGLE, Judge(lambda text: "fine"))
    assert {(row["rating"], row["parsed"], row["status"]) for row in rows} == {
        (rating, False, "ok")
    }


def test_without_a_convention_it_is_missing():
    row = rows_of(auto_j, config(), SINGLE, Judge(lambda text: "fine"))[0]
    assert (row["rating"], row["status"]) == (None, "failed")


def test_decisions_are_read_in_both_orders(file):
    judge = Judge(
        lambda text: (
            "So, the final decision is Response "
            + ("1" if text.index("a says") < text.index("b says") else "2")
        )
    )
    row = rows_of(auto_j, config(mode="pairwise", prompts=file), PAIR, judge)[0]
    assert (row["winner_ab"], row["winner_ba"], row["winner"]) == ("A", "A", "A")
    assert judge.judged[0].messages[-1].content == "Query What is 2+2? One a says 1 Two b says 1"


def test_the_distribution_over_decisions_is_read_after_the_announcement(file):
    judge = Judge(lambda text: "the final decision is  Tie.", {"Tie": 0.4, "Response 1": 0.4})
    asked = config(mode="pairwise", prompts=file, distribution=True)
    row = rows_of(auto_j, asked, PAIR, judge)[0]
    # White space before a label belongs to its spelling: it is cut, and both forms count.
    assert judge.chosen[0].prefix.text == "the final decision is"
    assert judge.chosen[0].labels[0].spellings == ("  Response 1", "Response 1")
    assert row["prefer_a"] == pytest.approx(0.5)
    assert row["p"] == pytest.approx([0.5, 0.0, 0.5])


def test_the_papers_wording_has_no_pairs():
    with pytest.raises(ValidationError, match="no wording for mode pairwise"):
        config(mode="pairwise")


def test_a_model_rates_its_own_answers():
    asked = self_generation.Config()
    (one, two) = self_generation.Kind(asked).combinations(("a", "b"))
    assert (one.models, one.judge) == (("a",), "a")
    judge = Judge(lambda text: "Rating: [[7]]" if "b says" in text else "no")
    rows = rows_of(self_generation, asked, Unit(ITEM, two.models, two.judge), judge)
    assert [row["rating"] for row in rows] == [7.0, 7.0]
    assert {ask.model for ask in judge.judged} == {"b"}


def test_python_that_is_none_is_a_fault(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("single = (")
    with pytest.raises(ValidationError, match="it is no Python"):
        config(prompts=str(path))
