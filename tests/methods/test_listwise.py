"""The method `listwise`: what is asked, what is read, and what is missing."""

import math

import msgspec
import pytest
from pydantic import ValidationError

from orchestrator.ask import Ask, AskFailed, ChooseAsk
from orchestrator.contracts.rows import RowContract
from orchestrator.errors import UsageError
from orchestrator.judgment.listwise import judge_list
from orchestrator.judgment.pairwise import judge_pair
from orchestrator.methods.listwise import Config, Listwise
from orchestrator.records import Choice, Failure, Generation, Row, Unit
from tests.core.fakes import answered
from tests.methods.judging import ITEM, choice

MODELS = ("m", "n", "o")
UNIT = Unit(ITEM, MODELS, "j")
WORTH = {"m": 1.0, "n": 3.0, "o": 6.0}
EXAMPLE = {"shown": {"prompt": "2 + 2?"}, "answers": ["5", "4", "6"], "reply": "B > A > C"}


def config(**given):
    return Config(judges=("j",), **given)


def rows(settings, respond, unit=UNIT):
    method = Listwise(settings)
    found = answered(method.evaluate(unit, Ask()), respond)
    return RowContract("listwise", method).check(found, unit)


def letters_of(ask):
    """The answers that a prompt shows, by letter: each says its model's name."""
    asked = [message.content for message in ask.messages if "answer of" in message.content]
    shown = asked[0].split("[Start of Assistant ")[1:]
    return {block[0]: block.split("\n")[1].split()[-1] for block in shown}


def judge(worth=WORTH, seen=None, bias=0.0):
    """A judge that draws letters by the worth of the answers, and by what it is shown first."""

    def respond(ask):
        if not isinstance(ask, ChooseAsk):
            return Generation(f"answer of {ask.model}", "stop")
        if seen is not None:
            seen.append(ask)
        named = letters_of(ask)
        weights = [worth[named[label.name]] for label in ask.labels]
        return choice([weight + bias * (at == 0) for at, weight in enumerate(weights)], 0.8)

    return respond


def test_preferences_of_consistent_choices_are_those_of_the_worths():
    found = rows(config(), judge())
    assert [(row["model_a"], row["model_b"]) for row in found] == [
        ("m", "n"), ("m", "o"), ("n", "o"),
    ]  # fmt: skip
    for row in found:
        a, b = WORTH[row["model_a"]], WORTH[row["model_b"]]
        for name in ("prefer_a", "prefer_a_ab", "prefer_a_ba"):
            assert row[name] == pytest.approx(a / (a + b))
        assert row["preferences"] == pytest.approx([a / (a + b)] * 2)
        assert row["mode_post"] == -1.0
        assert row["coverage_ab"] == row["coverage_ba"] == pytest.approx(0.8)
        assert (row["exact"], row["same_text"], row["n_listed"], row["turn"]) == (True, False, 3, 1)
        assert row["shown_a"] == [4 - place for place in reversed(row["shown_a"])]
    first = found[0]
    assert (first["places_a"], first["places_b"]) == ([3.0, 3.0], [2.0, 2.0])
    assert first["ranks_a"] == pytest.approx([1 + 3 / 4 + 6 / 7] * 2)


def test_two_answers_are_judged_as_a_comparison_of_two():
    unit = Unit(ITEM, ("m", "n"), "j")
    (row,) = rows(config(), judge(bias=2.0), unit)
    # Shown first: 1 + 2 against 3; shown second: 3 + 2 against 1.
    pair = judge_pair((1 / 2, 0.0, 1 / 2), (5 / 6, 0.0, 1 / 6))
    assert row["prefer_a_ab"] == pytest.approx(pair.prefer_ab)
    assert row["prefer_a_ba"] == pytest.approx(pair.prefer_ba)
    for name in ("mean_pre", "mean_post"):
        assert row[name] == pytest.approx(getattr(pair, name))
    assert row["prefer_a"] == pytest.approx(pair.prefer)


def test_a_list_is_one_reply_that_goes_on_with_the_likeliest_letter():
    seen: list[ChooseAsk] = []
    rows(config(), judge(seen=seen))
    assert len(seen) == 4
    for begun in ("", "of"):
        lists = [ask for ask in seen if bool(ask.prefix.text) == bool(begun)]
        assert len(lists) == 2
        for ask in lists:
            best = next(letter for letter, model in letters_of(ask).items() if model == "o")
            left = [letter for letter in "ABC" if not begun or letter != best]
            assert [label.name for label in ask.labels] == left
            assert ask.prefix.text == (f"{best} >" if begun else "")
    orders = {tuple(letters_of(ask).values()) for ask in seen}
    one, other = orders
    assert one == other[::-1]
    assert "3 AI assistants" in seen[0].messages[0].content


def test_as_turns_every_place_is_a_question_with_a_reply_of_its_own():
    seen: list[ChooseAsk] = []
    by_turns = rows(config(form="turns"), judge(seen=seen))
    assert not any(ask.prefix.text for ask in seen)
    second = next(ask for ask in seen if len(ask.labels) == 2)
    best = next(letter for letter, model in letters_of(second).items() if model == "o")
    assert [message.role for message in second.messages] == ["user", "assistant", "user"]
    assert second.messages[1].content == best
    left = ", ".join(label.name for label in second.labels)
    assert f"({left})" in second.messages[2].content
    assert by_turns == rows(config(), judge())


def test_a_begun_reply_stands_before_the_list():
    seen: list[ChooseAsk] = []
    rows(config(prefix="Ranking:", orders=2), judge(seen=seen))
    assert seen[0].prefix.text == "Ranking:"
    assert {ask.prefix.text for ask in seen[2:]} <= {f"Ranking: {one} >" for one in "ABC"}


def test_each_order_is_drawn_for_its_item_and_stays():
    def first(key):
        seen: list[ChooseAsk] = []
        item = msgspec.structs.replace(ITEM, key=key)
        rows(config(), judge(seen=seen), Unit(item, MODELS, "j"))
        return tuple(letters_of(seen[0]).values())

    keys = [f"k{n}" for n in range(60)]
    assert len({first(key) for key in keys}) == 6
    assert [first(key) for key in keys] == [first(key) for key in keys]


def test_favour_for_the_first_answer_shown_is_averaged_out_and_seen():
    found = rows(config(orders=6), judge(dict.fromkeys(MODELS, 1.0), bias=1.0))
    for row in found:
        assert row["prefer_a"] == pytest.approx(0.5)
        assert row["prefer_a_ab"] > 0.5 > row["prefer_a_ba"]
        assert row["mode_post"] == 0.0
        assert sorted(row["shown_a"]) == [1, 1, 2, 2, 3, 3]


def test_behind_a_place_that_can_not_be_read_pairs_fail_and_others_stay():
    def respond(ask):
        if isinstance(ask, ChooseAsk) and ask.prefix.text:
            return Choice((math.nan,) * 2, (math.nan,) * 2, "made")
        return judge()(ask)

    good: list[Row] = []
    bad: list[Row] = []
    for row in rows(config(), respond):
        (good if row["status"] == "ok" else bad).append(row)
    assert [(row["model_a"], row["model_b"], row["cause"]) for row in bad] == [
        ("m", "n", "no_logprobs")
    ]
    assert "2 of 2 lists" in bad[0]["message"]
    assert [row["prefer_a"] for row in good] == pytest.approx([1 / 7, 1 / 3])
    assert good[0]["places_a"] == [None, None]
    assert good[0]["places_b"] == [1.0, 1.0]
    assert good[0]["mode_post"] == -1.0


def test_a_judge_that_names_no_letter_gives_no_order():
    def respond(ask):
        if isinstance(ask, ChooseAsk):
            return Choice((-math.inf,) * 3, (-math.inf,) * 3, "made")
        return judge()(ask)

    found = rows(config(), respond)
    assert [row["cause"] for row in found] == ["no_logprobs"] * 3


def test_an_answer_that_failed_is_not_shown_and_its_pairs_fail():
    failure = Failure("content_filter", "refused", permanent=True)

    def respond(ask):
        if not isinstance(ask, ChooseAsk) and ask.model == "n":
            return failure
        return judge()(ask)

    by = {(row["model_a"], row["model_b"]): row for row in rows(config(), respond)}
    assert by["m", "o"]["prefer_a"] == pytest.approx(1 / 7)
    assert by["m", "o"]["n_listed"] == 2
    assert (by["m", "n"]["cause"], by["m", "n"]["message"]) == ("no_answer", "no answer of n")
    assert by["n", "o"]["status"] == "failed"


@pytest.mark.parametrize("permanent", [True, False])
def test_a_refused_request_fails_all_pairs_for_good_and_a_transient_one_the_unit(permanent):
    failure = Failure("too_long", "no room", permanent=permanent)

    def respond(ask):
        return failure if isinstance(ask, ChooseAsk) else judge()(ask)

    if permanent:
        assert [row["cause"] for row in rows(config(), respond)] == ["too_long"] * 3
        return
    with pytest.raises(AskFailed):
        rows(config(), respond)


def test_labels_beyond_the_alternatives_are_said_to_be_inexact():
    def respond(ask):
        if not isinstance(ask, ChooseAsk):
            return Generation(f"answer of {ask.model}", "stop")
        n = len(ask.labels)
        return Choice((math.log(0.6), math.log(0.3), *[math.nan] * (n - 2)), (math.nan,) * n, "top")

    found = rows(config(), respond)
    assert not any(row["exact"] for row in found)
    assert found[0]["coverage_ab"] == pytest.approx(0.9)


def test_each_turn_has_its_rows():
    item = msgspec.structs.replace(ITEM, followups=("more",))
    seen: list[ChooseAsk] = []

    def respond(ask):
        if isinstance(ask, ChooseAsk):
            seen.append(ask)
            return choice([1.0] * len(ask.labels))
        return Generation("an answer", "stop")

    found = rows(config(), respond, Unit(item, MODELS, "j"))
    assert [row["turn"] for row in found] == [1, 1, 1, 2, 2, 2]
    assert sum("[Turn 2]" in ask.messages[0].content for ask in seen) == len(seen) // 2


@pytest.mark.parametrize("orders", [2, 4, 6, 8])
def test_the_plan_counts_the_requests(orders):
    seen: list[ChooseAsk] = []
    settings = config(orders=orders)
    rows(settings, judge(seen=seen))
    (stage,) = Listwise(settings).stages(MODELS)
    assert (stage.name, stage.per_item) == ("judgments", len(seen))
    assert len({ask.key(b"", 0) for ask in seen}) == len(seen) == min(orders, 6) * 2


@pytest.mark.parametrize(("form", "begun"), [("list", ["", "A >"]), ("turns", ["", ""])])
def test_a_server_is_tried_at_the_first_place_and_behind_a_letter(form, begun):
    (stage,) = Listwise(config(form=form)).stages(MODELS)
    assert [
        example.prefix.text for example in stage.examples if isinstance(example, ChooseAsk)
    ] == begun
    (of_two,) = Listwise(config(form=form)).stages(MODELS[:2])
    assert len(of_two.examples) == 1


def test_there_are_as_many_candidates_as_letters():
    method = Listwise(config())
    many = [f"m{n}" for n in range(27)]
    with pytest.raises(UsageError, match="27 candidates"):
        method.combinations(many)
    with pytest.raises(UsageError, match="1 candidates"):
        method.combinations(many[:1])
    (unit,) = method.combinations(many[:26])
    assert len(unit.models) == 26


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"orders": 3}, "give an even number"),
        ({"chain_of_thought": True, "example_of_dataset": True}, "exclude each other"),
        ({"examples": [{**EXAMPLE, "shown": {"answers": "x"}}]}, "unknown fields answers"),
        ({"examples": [{**EXAMPLE, "answers": ["4"]}]}, "at least 2 items"),
        ({"examples": [{**EXAMPLE, "reply": "B > A"}]}, "does not end with a list of its 3"),
        ({"examples": [{**EXAMPLE, "reply": "B > A > C, since"}]}, "does not end with a list"),
        ({"examples": [EXAMPLE], "prefix": "Ranking:"}, "does not begin with 'Ranking:'"),
        ({"examples": [EXAMPLE], "form": "turns", "chain_of_thought": True}, "has no reasons"),
        (
            {"examples": [{**EXAMPLE, "reply": "So B > A > C"}], "form": "turns"},
            "holds more than its list",
        ),
        ({"prompt": "{{ prompt }}"}, "does not show answers"),
        ({"prompt": "best"}, "unknown prompt"),
    ],
)
def test_bad_settings_are_refused(settings, said):
    with pytest.raises(ValidationError, match=said):
        config(**settings)


def test_a_template_of_ones_own_shows_letters_and_texts():
    seen: list[ChooseAsk] = []
    each = "[Start of Assistant {{ one.letter }}]\n{{ one.text }}\n"
    shown = f"{{% for one in answers %}}{each}{{% endfor %}}"
    rows(config(prompt=shown), judge(seen=seen))
    assert seen[0].messages[0].content.startswith("[Start of Assistant A]\nanswer of ")


def test_rows_hold_what_the_arithmetic_needs():
    (row, *_) = rows(config(), judge(bias=0.5))
    for at, shown in enumerate(zip(row["shown_a"], row["shown_b"], strict=True)):
        other = ({1.0, 2.0, 3.0} - set(shown)).pop()
        worth = [0.0] * 3
        worth[int(shown[0]) - 1], worth[int(shown[1]) - 1] = WORTH["m"], WORTH["n"]
        worth[int(other) - 1] = WORTH["o"]
        first = [w + 0.5 * (n == 0) for n, w in enumerate(worth)]
        choices = [[w / sum(first) for w in first]]
        best = first.index(max(first))
        left = [n for n in range(3) if n != best]
        second = [worth[n] + 0.5 * (n == left[0]) if n in left else 0.0 for n in range(3)]
        choices.append([w / sum(second) for w in second])
        found = judge_list(choices)
        a, b = int(shown[0]) - 1, int(shown[1]) - 1
        assert row["preferences"][at] == pytest.approx(found.before[a][b])
        assert row["ranks_a"][at] == pytest.approx(found.ranks()[a])
        assert row["places_b"][at] == found.places()[b]
