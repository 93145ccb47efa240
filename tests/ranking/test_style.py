import polars as pl
import pytest

from orchestrator.contracts.context import Context, Source
from orchestrator.methods import pairwise_ranking
from orchestrator.ranking.style import equal_style
from tests.core.fakes import method_in
from tests.summaries import styled
from tests.tables import by_name


def run(texts, bias=0.0, n_items=40, skip=()):
    """The tables by their keys."""
    method = method_in(pairwise_ranking)(pairwise_ranking.Config(judges=("judge",)))
    source = Source("pairwise_ranking", "pairwise_ranking", method, method.frame)
    frames = styled.frames(texts, bias, n_items, skip)
    context = Context("style_control", frames, pl.DataFrame(), [source], 0.95, 200, 0)
    return {table.key: table for table in equal_style(context, source)}


def even(model, k, rng):
    return "w" * int(100 * rng.uniform(0.4, 1.6))


def test_control_gives_back_what_a_love_of_length_took():
    found = run(styled.padded, bias=0.2)
    ratings = by_name(found["style_control"])
    assert list(ratings) == ["x", "y", "z"]
    assert ratings["x"]["rating"].value < ratings["z"]["rating"].value
    assert ratings["x"]["at equal style"].value > ratings["z"]["at equal style"].value
    assert ratings["x"]["change"].low > 0 > ratings["z"]["change"].high
    effect = by_name(found["style_control.effects"])["length"]
    assert effect["effect"].low > 0
    assert effect["p"] < 0.001


def test_a_judge_who_does_not_care_for_length_has_no_effect():
    effect = by_name(run(even)["style_control.effects"])["length"]
    assert effect["effect"].low < 0 < effect["effect"].high


def test_headers_lists_and_bold_parts_are_counted_outside_code():
    prose = "# One\n## Two\n#no\n- a\n* b\n+ c\n 12. d\n1.e\n**bold** and __so__\n"
    text = f"{prose}```\n# code\n- x\n```\n"
    found = run(lambda model, k, rng: text if model == "x" and k % 2 else "plain")
    row = by_name(found["style_control"])["x"]
    assert [row[name] for name in ("headers", "lists", "bold")] == [1.0, 2.0, 1.0]
    assert row["characters"] == pytest.approx((len(text) + len("plain")) / 2)


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (
            lambda model, k, rng: "w" * {"x": 9, "y": 99, "z": 999}[model],
            "models and other features fix",
        ),
        (lambda model, k, rng: "same", "differ in it on no prompt"),
        (lambda model, k, rng: "longer" if (model, k) == ("x", 0) else "w", "on 1 prompt"),
    ],
)
def test_what_can_not_be_told_apart_is_not_controlled(texts, why):
    found = run(texts)
    (note,) = [note for note in found["style_control"].notes if "length is not" in note]
    assert why in note
    for row in by_name(found["style_control"]).values():
        assert row["rating"].value == pytest.approx(row["at equal style"].value)
    assert "style_control.effects" not in found


def test_pairs_without_their_answers_are_left_out_and_said():
    found = run(even, skip={("x", 0)})
    assert "2 pairs are left out: the run lacks an answer" in found["style_control"].notes
