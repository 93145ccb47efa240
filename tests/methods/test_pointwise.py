import msgspec
import pytest
from pydantic import ValidationError

from orchestrator.ask import Ask, AskFailed, ChooseAsk
from orchestrator.methods.pointwise import Config
from orchestrator.methods.pointwise import Kind as PointwiseRating
from orchestrator.records import Generation, Item, Message, Unit
from tests.core.fakes import answered
from tests.methods.judging import ITEM, choice, trace

UNIT = Unit(ITEM, ("m",), "j")
WEIGHTS = (0, 0, 0, 0, 0, 1, 2, 0, 1)


def rows(config, respond, unit=UNIT):
    return answered(PointwiseRating(config).evaluate(unit, Ask()), respond)


def judge(weights=WEIGHTS, coverage=1.0):
    def respond(ask):
        if isinstance(ask, ChooseAsk):
            return choice(weights, coverage)
        return Generation("answer", "stop")

    return respond


def test_the_row_has_every_statistic_of_the_distribution():
    (row,) = rows(Config(judges=("j",)), judge(coverage=0.8))
    assert row["p"] == pytest.approx([0, 0, 0, 0, 0, 0.25, 0.5, 0, 0.25])
    assert row["mean"] == pytest.approx(7.25)
    assert (row["mode"], row["rounded_mean"], row["median"]) == (7, 7, 7)
    assert row["first_percentile"] == 6
    assert row["coverage"] == pytest.approx(0.8)
    assert (row["mean_low"], row["mean_high"]) == pytest.approx((7.25, 7.25))


def test_scores_are_spelled_with_and_without_a_space():
    labels = Config(judges=("j",), scale=(0, 10), verdict="[[SCORE]]").verdicts()
    assert len(labels) == 11
    assert labels[-1].spellings == ("[[10]]", " [[10]]")


def test_the_prompt_names_the_scale():
    seen = []

    def respond(ask):
        seen.append(ask)
        return judge()(ask) if not isinstance(ask, ChooseAsk) else choice((1,) * 5)

    (row,) = rows(Config(judges=("j",), scale=(1, 5)), respond)
    assert "integer score from 1 to 5" in seen[-1].messages[-1].content
    assert row["mean"] == pytest.approx(3.0)


def test_traces_are_averaged_and_those_without_a_verdict_are_counted():
    said = {0: trace("fine. ", "7"), 1: trace("no idea"), 2: trace("poor. ", "1")}

    def respond(ask):
        if isinstance(ask, ChooseAsk):
            good = ask.prefix.text.startswith("fine")
            return choice((0,) * 6 + (1, 0, 0) if good else (1,) + (0,) * 8)
        return said[ask.repeat] if ask.model == "j" else Generation("answer", "stop")

    config = Config(judges=("j",), chain_of_thought=True, traces=3, reasoning={"temperature": 1.0})
    (row,) = rows(config, respond)
    assert (row["n_traces"], row["n_silent"]) == (2, 1)
    assert row["mean"] == pytest.approx(4.0)


def test_no_verdict_at_all_is_a_failure_and_no_score():
    def respond(ask):
        return Generation("answer", "stop") if ask.model == "m" else trace("hm", reason="length")

    with pytest.raises(AskFailed) as failed:
        rows(Config(judges=("j",), chain_of_thought=True), respond)
    assert failed.value.failure.cause == "no_verdict"
    assert "cut off" in failed.value.failure.message


def test_a_verdict_is_not_read_without_the_thinking_before_it():
    def respond(ask):
        if ask.model == "m":
            return Generation("answer", "stop")
        return msgspec.structs.replace(trace("7"), thinking="hm")

    with pytest.raises(AskFailed) as failed:
        rows(Config(judges=("j",), chain_of_thought=True), respond)
    assert failed.value.failure.cause == "thinking_set_aside"


def test_every_turn_is_rated_with_the_conversation_up_to_it():
    item = Item(key="k", messages=(Message("user", "q1"),), followups=("q2",))
    prompts = []

    def respond(ask):
        if isinstance(ask, ChooseAsk):
            prompts.append(ask.messages[-1].content)
        return judge()(ask)

    found = rows(Config(judges=("j",)), respond, Unit(item, ("m",), "j"))
    assert [row["turn"] for row in found] == [1, 2]
    assert "q2" not in prompts[0]
    assert "[Turn 2]\nq2" in prompts[1]


def test_what_a_server_does_not_say_leaves_bounds():
    def respond(ask):
        if isinstance(ask, ChooseAsk):
            whole = choice((1,) * 8 + (2,))
            return type(whole)((*whole.logprobs[:-1], float("nan")), (-5.0,) * 9, "made")
        return Generation("answer", "stop")

    (row,) = rows(Config(judges=("j",)), respond)
    assert row["exact"] is False
    assert row["mean_low"] < row["mean_high"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"scale": (5, 5)},
        {"scale": (-1, 3)},
        {"scale": (1, 1000)},
        {"verdict": "[[]]"},
        {"prompt": "no such"},
        {"prompt": "{{ prompt }}"},
        {"prompt": "{{ answer }} {{ secret }}"},
        {"prompt": "compact", "scale": (1, 5)},
        {"traces": 3},
        {"traces": 3, "chain_of_thought": True},
    ],
)
def test_settings_that_can_not_work_are_refused(wrong):
    with pytest.raises(ValidationError):
        Config(judges=("j",), **wrong)


def test_the_plan_counts_traces():
    config = Config(
        judges=("j", "k"), chain_of_thought=True, traces=4, reasoning={"temperature": 1}
    )
    assert [stage.per_item for stage in PointwiseRating(config).stages(("a", "b", "c"))] == [
        12,
        12,
        12,
        12,
    ]


def test_only_a_prompt_that_shows_the_reference_needs_one():
    assert PointwiseRating(Config(judges=("j",), prompt="compact")).needs() == {"reference"}
    assert PointwiseRating(Config(judges=("j",))).needs() == set()
