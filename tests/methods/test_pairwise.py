import math

import pytest
from pydantic import ValidationError

from orchestrator.ask import Ask, AskFailed, ChooseAsk
from orchestrator.methods import pairwise_ranking, pairwise_scoring
from orchestrator.records import Generation, Item, Message, Unit
from tests.core.fakes import answered, method_in
from tests.methods.judging import ITEM, choice, trace
from tests.oracles import pairwise

UNIT = Unit(ITEM, ("a", "b"), "j")
SWAPPED = Unit(ITEM, ("b", "a"), "j")
SIGNED = ("mean_pre", "mean_post", "mode_pre", "mode_post", "median_pre", "median_post")


def first_shown(ask):
    """The model whose answer a prompt shows first."""
    text = ask.messages[-1].content
    return "a" if text.index("says a") < text.index("says b") else "b"


def rows(method, config, judge, unit=UNIT):
    def respond(ask):
        return judge(ask) if ask.model == "j" else Generation(f"says {ask.model}", "stop")

    return answered(method_in(method)(config).evaluate(unit, Ask()), respond)


def ranked(judge, unit=UNIT, **settings):
    (row,) = rows(pairwise_ranking, pairwise_ranking.Config(judges=("j",), **settings), judge, unit)
    return row


def scored(judge, unit=UNIT, **settings):
    (row,) = rows(pairwise_scoring, pairwise_scoring.Config(judges=("j",), **settings), judge, unit)
    return row


def biased(ask):
    """Prefers a, and what it sees first."""
    return choice((5, 3, 1, 1, 0) if first_shown(ask) == "a" else (2, 1, 2, 3, 2))


def test_both_orders_are_in_the_view_of_the_first_model():
    row = ranked(biased)
    assert row["p_ab"] == pytest.approx([0.5, 0.3, 0.1, 0.1, 0.0])
    assert row["p_ba"] == pytest.approx([0.2, 0.3, 0.2, 0.1, 0.2])
    assert row["prefer_a"] == pytest.approx(0.5 * (0.85 + 0.6))


@pytest.mark.parametrize("settings", [{}, {"labels": "three"}, {"labels": "two"}])
def test_swapping_the_models_mirrors_the_row(settings):
    weights = {"five": (5, 3, 1, 1, 0), "three": (5, 3, 1), "two": (5, 2)}
    likes = weights[settings.get("labels", "five")]

    def judge(ask):
        return choice(likes if first_shown(ask) == "a" else likes[::-1][:1] + likes[1:])

    one, two = ranked(judge, **settings), ranked(judge, SWAPPED, **settings)
    assert one["prefer_a"] == pytest.approx(1 - two["prefer_a"])
    assert [one[name] for name in SIGNED] == pytest.approx([-two[name] for name in SIGNED])


def test_two_labels_become_three_levels():
    row = ranked(lambda ask: choice((3, 1)), labels="two")
    assert row["p_ab"] == pytest.approx([0.75, 0.0, 0.25])
    assert row["p_ba"] == pytest.approx([0.25, 0.0, 0.75])
    even = ranked(lambda ask: choice((1, 1)), labels="two")
    assert even["p_ab"] == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(("labels", "n"), [("five", 5), ("three", 3), ("two", 2)])
def test_the_prompt_lists_the_labels_that_are_read(labels, n):
    seen = []

    def judge(ask):
        seen.append(ask)
        return choice((1,) * n)

    ranked(judge, labels=labels)
    assert {len(ask.labels) for ask in seen} == {n}
    text = seen[0].messages[-1].content
    assert all(f'"{label.name}" if' in text or f'"{label.name}" for' in text
               for label in seen[0].labels)  # fmt: skip


def test_the_verdict_is_read_after_the_judge_s_own_tokens():
    asks = []

    def judge(ask):
        if isinstance(ask, ChooseAsk):
            asks.append(ask)
            return choice((0, 1, 0, 0, 0))
        return trace("because", " it is", " [[", ">", "]]")

    row = ranked(judge, chain_of_thought=True)
    assert asks[0].prefix.token_ids == (0, 1)
    assert asks[0].labels[1].spellings == (" [[>]]", "[[>]]")
    assert (row["n_traces"], row["n_silent"]) == (2, 0)


def test_traces_are_counted_by_the_side_that_each_prefers():
    # Of a shown first: better, a tie, worse; of b shown first: better three times.
    of_a = [(0, 0.6, 0.4, 0, 0), (0, 0.1, 0.7, 0.2, 0), (0.1, 0.2, 0, 0.4, 0.3)]
    of_b = [(0.6, 0.4, 0, 0, 0)] * 3
    said = {"a": iter(of_a), "b": iter(of_b)}

    def judge(ask):
        if isinstance(ask, ChooseAsk):
            return choice(next(said[first_shown(ask)]))
        return trace(f"because {ask.repeat} ", "[[>]]")

    row = ranked(judge, chain_of_thought=True, traces=3, reasoning={"temperature": 1})
    assert row["traces"] == [1, 1, 4]
    assert row["n_traces"] == 6
    assert ranked(lambda ask: choice((0, 1, 0, 0, 0)))["traces"] is None


def test_one_order_without_a_verdict_is_no_judgment():
    def judge(ask):
        if isinstance(ask, ChooseAsk):
            return choice((1,) * 5)
        return trace("so ", "[[=]]") if first_shown(ask) == "a" else trace("hm")

    with pytest.raises(AskFailed) as failed:
        ranked(judge, chain_of_thought=True)
    assert failed.value.failure.cause == "no_verdict"


def two_scores(ask):
    """Gives a about 8 and b about 3, and the second answer a point less."""
    is_second = ask.prefix.text != ""
    shown = first_shown(ask)
    rated = {"a": "b", "b": "a"}[shown] if is_second else shown
    top = {"a": 8, "b": 3}[rated] - is_second
    return choice(tuple(4 if s == top else 1 if abs(s - top) == 1 else 0 for s in range(1, 10)))


def test_the_second_score_is_read_behind_the_most_likely_first_one():
    asks = []

    def judge(ask):
        asks.append(ask)
        return two_scores(ask)

    scored(judge)
    assert [ask.prefix.text for ask in asks] == ["", "", "8", "3"]
    assert asks[2].labels[4].spellings == (" 5",)


def test_scores_become_levels_as_in_the_released_code():
    row = scored(two_scores)
    levels = pairwise.scoring_levels([row["p_first_ab"], row["p_first_ba"]],
                                     [row["p_second_ab"], row["p_second_ba"]])  # fmt: skip
    assert row["p_ab"] == pytest.approx(levels[0])
    assert row["p_ba"] == pytest.approx(levels[1][::-1])
    both = pairwise.judge_pairs(levels[:1], levels[1:])
    for name in SIGNED:
        assert row[name] == pytest.approx(both[name][0]), name


def test_mean_scores_are_those_of_both_orders():
    row = scored(two_scores)
    assert (row["score_a"], row["score_b"]) == pytest.approx((7.5, 2.5))


def test_swapping_the_models_mirrors_the_scores():
    one, two = scored(two_scores), scored(two_scores, SWAPPED)
    assert (one["score_a"], one["score_b"]) == pytest.approx((two["score_b"], two["score_a"]))
    assert [one[name] for name in SIGNED] == pytest.approx([-two[name] for name in SIGNED])
    assert one["prefer_a"] == pytest.approx(1 - two["prefer_a"])


def test_coverage_is_the_mass_in_both_places():
    row = scored(lambda ask: choice((1,) * 9, 0.5))
    assert row["coverage_ab"] == pytest.approx(0.25)


def test_scores_after_reasoning_go_on_from_the_trace():
    asks = []

    def judge(ask):
        if isinstance(ask, ChooseAsk):
            asks.append(ask)
            return two_scores(ask) if ask.prefix.text == "" else choice((0,) * 6 + (1, 0, 0))
        return trace("fine", ". ", "6", " 3")

    row = scored(judge, chain_of_thought=True)
    assert asks[0].prefix.token_ids == (0, 1)
    assert asks[2].prefix.text == "fine. 7"
    assert row["p_first_ab"][6] == 1.0


def test_a_score_that_can_not_be_read_is_no_tie():
    def judge(ask):
        values = (math.nan,) * 9
        return type(choice((1,)))(values, (0.0,) * 9, "made")

    with pytest.raises(AskFailed) as failed:
        scored(judge)
    assert failed.value.failure.cause == "no_logprobs"


@pytest.mark.parametrize("wrong", [{"scale": (3, 2)}, {"scale": (1, 500)}, {"candidates": ("a",)}])
def test_settings_that_can_not_work_are_refused(wrong):
    with pytest.raises(ValidationError):
        pairwise_scoring.Config(judges=("j",), **wrong)


def test_turns_are_judged_one_by_one():
    item = Item(key="k", messages=(Message("user", "q1"),), followups=("q2",))
    config = pairwise_scoring.Config(judges=("j",))
    found = rows(pairwise_scoring, config, two_scores, Unit(item, ("a", "b"), "j"))
    assert [row["turn"] for row in found] == [1, 2]
