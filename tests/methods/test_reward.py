"""Reward models as judges: what is asked, rows, and outputs of other shapes."""

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.special import expit

from orchestrator.ask import AskFailed, GenerateAsk, RewardAsk
from orchestrator.backend import Capabilities
from orchestrator.methods._reward import Reward, RewardPairs
from orchestrator.records import Generation, Rewards
from orchestrator.runner.models.identity import missing
from tests.methods.harness_judge import PAIR, SINGLE, rows_of


class RewardModel:
    """Answers "MODEL says TURN", and rates conversations by `outputs` of the last answer."""

    def __init__(self, outputs, *, by_place=False):
        self.outputs, self.by_place = outputs, by_place
        self.rated = []

    def __call__(self, ask):
        if isinstance(ask, GenerateAsk):
            return Generation(f"{ask.model} says {ask.turn}", "stop")
        assert isinstance(ask, RewardAsk)
        self.rated.append(ask)
        values = self.outputs(ask.messages[-1].content)
        return Rewards(np.array(values, dtype=np.float32), self.by_place, "fake")


def by_name(text):
    return [[{"a": 2.0, "b": -1.0}[text[0]] + int(text[-1])]]


def config(method, **changes):
    return method.Config.model_validate({"judges": ["judge"], **changes})


def test_an_answer_is_the_last_turn_of_the_conversation_that_is_rated():
    model = RewardModel(by_name)
    first, second = rows_of(Reward, config(Reward), SINGLE, model)
    assert [ask.model for ask in model.rated] == ["judge", "judge"]
    assert [tuple(turn) for turn in model.rated[1].messages] == [
        ("user", "What is 2+2?"),
        ("assistant", "a says 1"),
        ("user", "And 3+3?"),
        ("assistant", "a says 2"),
    ]
    assert (first["turn"], first["reward"], first["outputs"]) == (1, 3.0, [3.0])
    assert (second["turn"], second["reward"], second["n_characters"]) == (2, 4.0, 8)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_a_pair_is_compared_by_the_difference_of_its_rewards(temperature):
    settings = config(RewardPairs, temperature=temperature)
    rows = rows_of(RewardPairs, settings, PAIR, RewardModel(by_name))
    assert [(row["reward_a"], row["reward_b"]) for row in rows] == [(3.0, 0.0), (4.0, 1.0)]
    assert [row["prefer_a"] for row in rows] == pytest.approx([expit(3 / temperature)] * 2)
    assert not rows[0]["same_text"]


def test_weights_make_one_reward_of_several_outputs():
    model = RewardModel(lambda _: [[1.0, 2.0, 5.0]])
    (row, _) = rows_of(Reward, config(Reward, weights=[1, 0, -1]), SINGLE, model)
    assert (row["reward"], row["outputs"], row["n_places"]) == (-4.0, [1.0, 2.0, 5.0], 1)


def test_the_steps_of_a_process_reward_model_are_aggregated():
    model = RewardModel(lambda _: [[1.0], [-2.0]], by_place=True)
    (row, _) = rows_of(Reward, config(Reward, places="min"), SINGLE, model)
    assert (row["reward"], row["outputs"], row["n_places"]) == (-2.0, None, 2)


@pytest.mark.parametrize("method", [Reward, RewardPairs])
def test_outputs_of_an_unexpected_shape_fail_the_unit_and_are_told(method):
    unit = SINGLE if method is Reward else PAIR
    with pytest.raises(AskFailed, match="gave 2 outputs: set 'output'") as failed:
        rows_of(method, config(method), unit, RewardModel(lambda _: [[1.0, 2.0]]))
    assert (failed.value.failure.cause, failed.value.failure.permanent) == ("reward_shape", True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"output": 0, "weights": [1.0]}, "exclude each other"),
        ({"output": -1}, "greater than or equal to 0"),
        ({"temperature": 0}, "greater than 0"),
        ({"temperature": float("inf")}, "finite"),
        ({"weights": []}, "at least 1"),
        ({"judges": []}, "at least 1"),
    ],
)
def test_settings_that_can_not_be_meant_are_refused(changes, said):
    with pytest.raises(ValidationError, match=said):
        config(RewardPairs, **changes)


def test_a_server_that_rates_nothing_is_refused_with_what_to_do():
    (stage,) = Reward(config(Reward)).stages(("a",))
    assert missing(stage, Capabilities(reward=True)) == ""
    said = missing(stage, Capabilities())
    assert said.startswith("it cannot rate answers; serve the weights of a reward model on vLLM")


def test_both_methods_ask_for_the_same_ratings():
    of_answers = Reward(config(Reward)).stages(("a", "b"))
    of_pairs = RewardPairs(config(RewardPairs, temperature=3)).stages(("a", "b"))
    assert of_answers == of_pairs
    assert [(one.ask, one.per_item) for one in of_answers] == [("reward", 2)]
