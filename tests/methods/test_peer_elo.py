import numpy as np
import pytest

from orchestrator.ask import Ask, AskFailed, GenerateAsk, SimilarityAsk
from orchestrator.errors import UsageError
from orchestrator.methods import peer_elo
from orchestrator.records import Failure, Generation, Item, Message, PairScores, Unit
from tests.core.fakes import answered

MODELS = ("a", "b", "c", "d")
ITEM = Item(key="k", messages=(Message("user", "q1"),), category="math")
TWO_TURNS = Item(key="k", messages=(Message("user", "q1"),), followups=("q2",))
CONFIG = peer_elo.Config()
(COMBINATION,) = peer_elo.Kind(CONFIG).combinations(MODELS)
COMPARER = COMBINATION.judge
REFUSED = Failure("refused", "no", permanent=True)


def letters(texts):
    """A similarity that a reader can check: the share of one text's letters found in another."""
    found = np.zeros((len(texts), len(texts)), np.float32)
    for row, one in enumerate(texts):
        for column, other in enumerate(texts):
            found[row, column] = sum(c in other for c in one) / len(one) if one else 0.0
    return PairScores(found, found.T.copy(), "letters", 0)


class World:
    """Answers by model and turn; remembers what was compared."""

    def __init__(self, **said):
        self.said = said
        self.compared = []

    def __call__(self, ask):
        if isinstance(ask, SimilarityAsk):
            assert ask.model == COMPARER
            self.compared.append(ask.texts)
            return letters(ask.texts)
        assert isinstance(ask, GenerateAsk)
        said = self.said[ask.model]
        said = said[ask.turn - 1] if isinstance(said, list) else said
        return said if isinstance(said, Failure) else Generation(said, "stop")


def rows_of(world, item=ITEM, config=CONFIG):
    unit = Unit(item, COMBINATION.models, COMPARER)
    return answered(peer_elo.Kind(config).evaluate(unit, Ask()), world)


def row(rows, a, b, turn=1):
    (found,) = [r for r in rows
                if (r["model_a"], r["model_b"], r["turn"]) == (a, b, turn)]  # fmt: skip
    return found


def test_one_row_a_pair_with_the_votes_of_all_others():
    rows = rows_of(World(a="xyz", b="xq", c="xy", d="xyq"))
    assert len(rows) == 6
    found = row(rows, "a", "b")
    assert found["judges"] == ["c", "d"]
    # c = "xy": all of it is in a, half in b. d = "xyq": two thirds in each.
    assert found["votes"] == [1.0, 0.5]
    assert (found["wins_a"], found["wins_b"], found["ties"], found["undefined"]) == (1, 0, 1, 0)
    assert found["prefer_a"] == 0.75
    assert (found["length_a"], found["length_b"]) == (3, 2)


def test_precision_is_that_of_the_judges_text_so_a_longer_answer_can_only_gain():
    short = row(rows_of(World(a="x", b="xy", c="xyz", d="q")), "a", "b")
    assert dict(zip(short["judges"], short["votes"], strict=True))["c"] == 0.0
    longer = row(rows_of(World(a="x" + "abcyz", b="xy", c="xyz", d="q")), "a", "b")
    assert dict(zip(longer["judges"], longer["votes"], strict=True))["c"] == 1.0


def test_with_a_large_beta_recall_decides():
    world = World(a="x", b="xyzpqrs", c="xyz", d="q")
    config = peer_elo.Config(beta=50.0)
    votes = row(rows_of(world, config=config), "a", "b")
    assert dict(zip(votes["judges"], votes["votes"], strict=True))["c"] == 1.0


def test_all_answers_of_a_turn_are_compared_in_one_ask():
    world = World(a="x", b="y", c="z", d="q")
    rows_of(world)
    assert world.compared == [("x", "y", "z", "q")]


def test_a_missing_answer_is_left_out_and_named_never_a_tie():
    rows = rows_of(World(a="x", b="xy", c=REFUSED, d="y"))
    assert {(r["model_a"], r["model_b"]) for r in rows} == {("a", "b"), ("a", "d"), ("b", "d")}
    assert all(r["missing"] == ["c"] for r in rows)
    assert all("c" not in r["judges"] for r in rows)


def test_a_failure_of_the_moment_fails_the_unit_so_that_the_next_call_asks_again():
    world = World(a="x", b="xy", c=Failure("timeout", "slow"), d="y")
    with pytest.raises(AskFailed, match="timeout"):
        rows_of(world)


def test_fewer_than_three_answers_are_a_failure():
    with pytest.raises(AskFailed, match="too_few_answers"):
        rows_of(World(a="x", b="y", c=REFUSED, d=REFUSED))


def test_an_empty_answer_is_an_answer_that_wins_and_votes_nothing():
    rows = rows_of(World(a="", b="xy", c="x", d="y"))
    assert row(rows, "a", "b")["wins_b"] == 2
    found = row(rows, "b", "c")
    assert found["undefined"] == 1
    assert found["votes"][found["judges"].index("a")] is None
    assert found["wins_a"] + found["wins_b"] + found["ties"] == 1


def test_each_turn_has_rows_of_its_own():
    world = World(a=["x", "y"], b=["xy", "q"], c=["x", "y"], d=["y", "yq"])
    rows = rows_of(world, item=TWO_TURNS)
    assert len(rows) == 12
    assert world.compared == [("x", "xy", "x", "y"), ("y", "q", "y", "yq")]
    assert row(rows, "a", "b", turn=2)["votes"] == [1.0, 0.5]


def test_who_fails_in_a_turn_is_missing_from_then_on():
    world = World(a=["x", "y"], b=["xy", REFUSED], c=["x", "y"], d=["y", "q"])
    rows = rows_of(world, item=TWO_TURNS)
    assert [r["missing"] for r in rows] == [[]] * 6 + [["b"]] * 3


def test_a_later_turn_without_votes_keeps_the_earlier_rows():
    world = World(a=["x", "y"], b=["xy", REFUSED], c=["x", REFUSED], d=["y", "q"])
    rows = rows_of(world, item=TWO_TURNS)
    assert [r["status"] for r in rows] == ["ok"] * 6 + ["failed"]
    assert rows[-1]["cause"] == "too_few_answers"


def test_a_baseline_changes_what_is_shown_and_no_vote():
    world = World(a="xyz", b="xq", c="xy", d="xyq")
    plain = row(rows_of(world), "a", "b")
    scaled = row(rows_of(world, config=peer_elo.Config(baseline=0.2)), "a", "b")
    assert scaled["votes"] == plain["votes"]
    assert scaled["f1"] == pytest.approx((plain["f1"] - 0.2) / 0.8)


def test_two_candidates_are_refused_before_anything_is_asked():
    with pytest.raises(UsageError, match="at least 3 are needed"):
        peer_elo.Kind(CONFIG).combinations(("a", "b"))


def test_what_compares_is_named_by_all_that_decides_its_numbers():
    def name(**similarity):
        given = {"kind": "bertscore", **similarity}
        (found,) = peer_elo.Kind(peer_elo.Config.model_validate({"similarity": given})).comparers()
        return found

    names = [name(), name(layer=3), name(idf=True), name(max_length=64), name(encoder="x/y")]
    assert len(set(names)) == 5
    assert name(threads=1) == name(device="cuda") == name()


def test_who_is_no_voter_is_rated_and_gives_no_vote():
    world = World(a="xyz", b="xq", c="xy", d="xyq")
    every, some = rows_of(world), rows_of(world, config=peer_elo.Config(voters=("a", "c")))
    assert [one["judges"] for one in some] == [["c"], [], ["c"], ["a"], ["a", "c"], ["a"]]
    assert [one["undefined"] for one in some] == [0] * 6
    for one, other in zip(some, every, strict=True):
        votes = dict(zip(other["judges"], other["votes"], strict=True))
        assert one["votes"] == [votes[judge] for judge in one["judges"]]
    assert row(some, "b", "c")["prefer_a"] == votes_share(row(some, "b", "c"))
    assert row(some, "a", "c")["prefer_a"] is None


def votes_share(found):
    return sum(found["votes"]) / len(found["votes"]) if found["votes"] else None


def test_voters_are_candidates():
    method = peer_elo.Kind(peer_elo.Config(voters=("a", "x")))
    with pytest.raises(UsageError, match="'x' is among 'voters', but is no candidate"):
        method.combinations(MODELS)
