"""AlpacaEval's order of presentation, against the orders that its published judgments record.

The facts below were read from `results/text_davinci_001/weighted_alpaca_eval_gpt4_turbo/
annotations.json` of tatsu-lab/alpaca_eval. A record holds the letter that the judge wrote (`m` is
the output shown first, `M` the one shown second) and the preference after the order was undone:
the baseline was preferred in all of them, so `M` says that the baseline was shown second. The
instructions are Vicuna-Bench's questions, which AlpacaEval contains word for word; they are not
part of the facts and are read from ../shared.
"""

import json

import pytest

from orchestrator.methods.alpaca_eval import is_switched
from tests.conftest import SHARED

QUESTIONS = SHARED / "data" / "vicuna_bench" / "question.jsonl"

MODEL_FIRST = frozenset(
    {5, 7, 8, 11, 20, 22, 23, 25, 27, 28, 33, 35, 38, 39, 42, 43, 46, 76, 77, 79, 80}
)
BASELINE_FIRST = frozenset(
    {6, 9, 10, *range(12, 20), 21, 24, 26, *range(29, 33), 34, 36, 37, 40, 41, 44, 45, 78}
)
"""Question numbers of Vicuna-Bench."""


@pytest.fixture
def questions():
    if not QUESTIONS.is_file():
        pytest.skip("../shared is absent")
    rows = map(json.loads, QUESTIONS.read_text(encoding="utf-8").splitlines())
    return {row["question_id"]: row["turns"][0] for row in rows}


def test_the_order_is_the_one_that_was_recorded(questions):
    recorded = dict.fromkeys(BASELINE_FIRST, False) | dict.fromkeys(MODEL_FIRST, True)
    assert {number: is_switched(questions[number]) for number in recorded} == recorded


def test_no_other_seed_gives_the_recorded_orders(questions):
    recorded = dict.fromkeys(BASELINE_FIRST, False) | dict.fromkeys(MODEL_FIRST, True)
    fitting = [
        seed
        for seed in range(1000)
        if all(is_switched(questions[number], seed) == order for number, order in recorded.items())
    ]
    assert fitting == [0]
