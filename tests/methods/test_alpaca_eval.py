import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.ask import ChooseAsk
from orchestrator.methods import alpaca_eval as method
from orchestrator.methods.alpaca_eval import is_switched
from orchestrator.records import Choice, Generation, Unit
from tests.methods.harness_judge import ITEM, ONE_TURN, rows_of
from tests.oracles.alpaca_eval import preference

UNIT = Unit(ONE_TURN, ("a", "base"), "judge")
TEMPLATE = """<|im_start|>system
You select.
<|im_end|>
<|im_start|>user
{
    "instruction": \"\"\"{instruction}\"\"\",
}
{
    { "m": \"\"\"{output_1}\"\"\" },
    { "M": \"\"\"{output_2}\"\"\" }
}
<|im_end|>"""


@pytest.fixture
def template(tmp_path):
    path = tmp_path / "alpaca_eval_clf.txt"
    path.write_text(TEMPLATE)
    return str(path)


def config(prompts="compact", **changes):
    given = {"judges": ["judge"], "baseline": "base", "prompts": prompts, **changes}
    return method.Config.model_validate(given)


class Judge:
    """Answers with the model's name, and prefers by the place: logprobs of the labels in order."""

    def __init__(self, *logprobs, upper=None, same=False):
        self.logprobs, self.upper, self.same = logprobs, upper or logprobs, same
        self.asked = []

    def __call__(self, ask):
        if isinstance(ask, ChooseAsk):
            self.asked.append(ask)
            return Choice(self.logprobs, self.upper, "fake")
        return Generation("same" if self.same else f"by {ask.model}", "stop")


def test_the_order_is_the_published_one(template):
    for seed in range(6):
        judge = Judge(math.log(0.9), math.log(0.1))
        (row,) = rows_of(method, config(template, seed=seed), UNIT, judge)
        switched = is_switched("Hello?", seed)
        text = judge.asked[0].messages[-1].content
        assert row["model_first"] == switched
        assert (text.index("by a") < text.index("by base")) == switched
        # The judge prefers what is shown first, whoever that is.
        assert row["preference"] == pytest.approx(1.9 if switched else 1.1)


def test_the_chat_mark_up_of_the_template_makes_the_turns(template):
    judge = Judge(-0.1, -3.0)
    rows_of(method, config(template), UNIT, judge)
    system, user = judge.asked[0].messages
    assert system == ("system", "You select.")
    assert '    "instruction": """Hello?""",' in user.content


def test_both_orders_average_a_judge_that_looks_at_places_only(template):
    judge = Judge(math.log(0.9), math.log(0.1))
    (row,) = rows_of(method, config(template, order="both"), UNIT, judge)
    assert row["preference"] == pytest.approx(1.5)
    assert row["preference_baseline_first"] == pytest.approx(1.1)
    assert len(judge.asked) == 2


def test_equal_outputs_are_a_draw_without_asking(template):
    judge = Judge(-0.1, -3.0, same=True)
    (row,) = rows_of(method, config(template), UNIT, judge)
    assert (row["preference"], row["same_text"], judge.asked) == (1.5, True, [])


def test_a_token_that_is_not_listed_counts_as_zero_and_is_bounded(template):
    judge = Judge(math.log(0.6), math.nan, upper=(math.log(0.6), math.log(0.2)))
    (row,) = rows_of(method, config(template), UNIT, judge)
    expected = 2.0 if row["model_first"] else 1.0
    assert row["preference"] == expected
    assert row["exact"] is False
    assert row["preference_high"] - row["preference_low"] == pytest.approx(0.25)


def test_neither_token_is_missing_not_a_draw(template):
    (row,) = rows_of(method, config(template), UNIT, Judge(math.nan, math.nan))
    assert (row.get("preference"), row["status"], row["cause"]) == (None, "failed", "no_logprobs")


@given(st.floats(-9, 0), st.floats(-9, 0))
def test_the_preference_is_alpaca_evals_formula(m, big_m):
    if math.exp(m) + math.exp(big_m) > 1:
        m, big_m = m - 1, big_m - 1
    (row,) = rows_of(method, config({"prompt": {"user": "{output_1}"}}), UNIT, Judge(m, big_m))
    expected = preference(m, big_m)
    assert expected is not None
    assert row["preference"] == pytest.approx(3 - expected if row["model_first"] else expected)


def test_the_bundled_judges_symbols_become_a_preference():
    judge = Judge(*map(math.log, (0.4, 0.2, 0.2, 0.1, 0.1)))
    (row,) = rows_of(method, config(), Unit(with_reference(), ("a", "base"), "judge"), judge)
    assert row["preference"] == pytest.approx(1.7 if row["model_first"] else 1.3)


def with_reference():
    return ITEM.__class__(key="k", messages=ONE_TURN.messages, reference="hi")


def test_lengths_are_those_of_the_outputs(template):
    (row,) = rows_of(method, config(template), UNIT, Judge(-0.1, -3.0))
    assert (row["n_characters"], row["n_characters_baseline"]) == (len("by a"), len("by base"))


def test_each_turn_has_a_preference(template):
    unit = Unit(ITEM, ("a", "base"), "judge")
    rows = rows_of(method, config(template), unit, Judge(-0.1, -3.0))
    assert [row["turn"] for row in rows] == [1, 2]


def test_the_baseline_is_not_compared_with_itself():
    asked = config()
    pairs = [one.models for one in method.Kind(asked).combinations(("a", "base", "c"))]
    assert pairs == [("a", "base"), ("c", "base")]


def test_a_file_of_several_templates_is_refused(tmp_path):
    path = tmp_path / "some.json"
    path.write_text('{"one": "x", "two": "y"}')
    with pytest.raises(ValidationError, match=r"alpaca_eval_clf\.txt in src"):
        config(str(path))
