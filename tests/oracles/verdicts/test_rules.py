"""The checker objects to screens that contradict themselves, and to no other."""

import pytest

from tests.oracles.verdicts import grids, reading, rules
from tests.oracles.verdicts.facts import (
    Apart,
    Best,
    Even,
    Facts,
    Gated,
    Grouped,
    Listed,
    Number,
    Ranks,
    Size,
)

TWO = ("birch", "ash")
THREE = ("ash", "birch", "cedar")


def screen(text, models, *more, trust="trusted"):
    found = Facts(models, trust=trust)
    found.add(reading.pages(grids.of_terminal("screen", text), models, "screen"))
    found.add(more)
    return found


def names_of(facts):
    return {line.partition(":")[0] for line in rules.contradictions(facts)}


AGREEING = """\
ash is best: +95 [25, 165] Elo over birch.
pairwise_ranking, judged by judge · 30 prompts, 90 judgments; 95 % intervals, over prompts

rank  model  rating  95 % interval         900    950    1,000  1,050  1,100
   1  ash     1,086  [1,032, 1,141]                            ╺━━━━━━━●━━━━━━━╸
 2\N{EN DASH}3  birch     991  [952, 1,030]                   ╺━━━━●━━━━━╸
 2\N{EN DASH}3  cedar     923  [858, 987]       ╺━━━━━━━━●━━━━━━━━━╸
2 of 3 pairs of models can be told apart; these cannot: birch and cedar.
"""


def test_a_screen_that_agrees_with_itself_is_let_be():
    found = screen(AGREEING, THREE, Apart("pairs", "ash", "birch"), Apart("pairs", "ash", "cedar"))
    assert rules.contradictions(found) == []
    assert {type(one).__name__ for one in found.said} == {
        "Apart", "Best", "Counted", "Even", "Listed", "Number", "Ranks", "Size",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (("   1  ash ", " 1\N{EN DASH}2  ash "), "ranks_follow_from_pairs"),
        (("[25, 165] Elo", "[-1, 165] Elo"), "intervals_decide"),
        (("cannot: birch and cedar", "cannot: ash and birch"), "one_verdict_a_pair"),
        (("2 of 3 pairs", "1 of 3 pairs"), "counts_follow_from_pairs"),
        (
            ("ash is best", "ash leads, but is not apart from every other model"),
            "best_is_above_all",
        ),
        (("1,086  [1,032", "1,022  [1,032"), "intervals_contain_values"),
        (("   923  [858", "   924  [858"), "numbers_are_one"),
        (
            ("\n 2\N{EN DASH}3  cedar     923  [858, 987]       ╺━━━━━━━━●━━━━━━━━━╸", ""),
            "nothing_vanishes",
        ),
        (("30 prompts", "31 prompts"), "sizes_are_one"),
        (("best: +95", "good: +95"), "best_is_above_all"),
    ],
)
def test_one_changed_statement_is_found(change, rule):
    assert change[0] in AGREEING
    found = screen(
        AGREEING.replace(*change),
        THREE,
        Apart("pairs", "ash", "birch"),
        Apart("pairs", "ash", "cedar"),
        Size("json", 30, 30),
        Number("json", "rating", ("cedar",), 922.6, 857.6, 987.4),
    )
    assert rule in names_of(found)


def test_two_models_that_are_all_ties():
    text = "birch is better than ash: +19 [1, 38] Elo, win rate 53 % [49, 57].\n"
    asked = [
        Gated("gate birch > ash", "rating", *TWO, "holds", 1),
        Gated("gate win_rate(birch, ash) > 0.5", "win_rate", *TWO, "not known yet", 1),
    ]
    found = names_of(screen(text, TWO, *asked))
    assert {"win_rates_of_two_decide", "gates_ask_what_rankings_do"} <= found


def test_all_pairs_apart_over_ranks_that_overlap():
    text = (
        "All 3 pairs of models can be told apart.\n\n"
        "rank  model  rating  95 % interval\n"
        "   1  ash     1,100  [1,050, 1,150]\n"
        " 2\N{EN DASH}3  birch   1,000  [950, 1,050]\n"
        " 2\N{EN DASH}3  cedar     900  [850, 950]\n"
    )
    pairs = [Apart("json", *pair) for pair in (THREE[:2], THREE[1:], THREE[::2])]
    assert "ranks_follow_from_pairs" in names_of(screen(text, THREE, *pairs))


def test_a_leader_that_is_not_clearly_above():
    text = (
        "ash leads: +63 [1, 126] Elo over birch.\n\n"
        "rank  model  rating  95 % interval\n"
        " 1\N{EN DASH}2  ash     1,032  [1,001, 1,063]\n"
        " 1\N{EN DASH}2  birch     968  [937, 999]\n"
        "Not resolvable: the two models cannot be told apart.\n"
    )
    found = names_of(screen(text, ("ash", "birch")))
    assert {"best_is_above_all", "intervals_decide"} <= found


def test_none_apart_beside_a_difference_that_excludes_zero():
    text = (
        "No winner: none of the 3 models can be told from another; ash is +22 [1, 44] over cedar.\n"
    )
    assert "intervals_decide" in names_of(screen(text, THREE))


def test_groups_against_pairs_and_ranks():
    latex = (
        "\\caption{Ranking}\n\\toprule\nrank & model & rating & group \\\\\n\\midrule\n"
        "1 & ash & $1{,}100$ & 1 \\\\\n2--3 & birch & $1{,}000$ & 2 \\\\\n"
        "2--3 & cedar & $900$ & 3 \\\\\n\\bottomrule\n"
    )
    found = Facts(THREE)
    found.add(reading.pages(grids.of_latex("latex", latex), THREE, "latex"))
    found.add([Apart("json", "ash", "birch"), Apart("json", "ash", "cedar")])
    found.add([Even("json", "birch", "cedar"), Best("json", "ash")])
    assert len(found.of(Grouped)) == len(found.of(Ranks)) == len(THREE)
    assert names_of(found) == {"groups_follow_from_pairs"}


def test_letters_say_what_numbers_can_not():
    said: list[object] = [Apart("json", "ash", "cedar")]
    said += [Even("json", *pair) for pair in (THREE[:2], THREE[1:])]
    letters = {"ash": "a", "birch": "ab", "cedar": "b"}
    said += [Grouped("latex", model, frozenset(groups)) for model, groups in letters.items()]
    found = Facts(THREE)
    found.add(said)
    assert names_of(found) == set()


def test_a_verdict_by_a_judge_of_whom_nothing_is_known():
    text = "birch is better than ash: +19 [1, 38] Elo.\n"
    asked = [Gated("gate birch > ash", "rating", *TWO, "holds", 1)]
    found = names_of(screen(text, TWO, *asked, trust="cannot be said yet"))
    assert "trust_is_part_of_the_verdict" in found


def test_an_order_by_three_pairs_that_is_none():
    pairs = [Apart("json", "ash", "birch"), Apart("json", "birch", "cedar")]
    found = Facts(THREE)
    found.add([*pairs, Even("json", "ash", "cedar")])
    assert "better_is_transitive" in names_of(found)


def test_gates_in_both_directions():
    found = Facts(TWO)
    found.add([
        Gated("gate", "win_rate", *TWO, "holds", 1),
        Gated("gate", "win_rate", *TWO[::-1], "not known yet", 1),
    ])  # fmt: skip
    assert "gates_say_one_thing" in names_of(found)


def test_an_interval_without_a_width():
    found = Facts(TWO)
    found.add([Number("json", "category", ("ash", "kind"), 1000.0, 1000.0, 1000.0)])
    assert "intervals_contain_values" in names_of(found)


def test_a_sentence_that_the_reader_does_not_know():
    found = Facts(TWO, unread=["birch wins by a nose over ash."])
    assert "everything_is_read" in names_of(found)


def test_pages_and_markdown_are_read_as_the_terminal_is():
    markdown = (
        "## ash is better than birch: +95 [25, 165] Elo.\n\n"
        "| rank | model | rating | 95 % interval |\n| ---: | :--- | ---: | ---: |\n"
        "| 1 | ash | 1,047 | [1,012, 1,083] |\n| 2 | birch | 953 | [917, 988] |\n"
    )
    html = (
        "<h2>ash is better than birch: +95 [25,\N{NO-BREAK SPACE}165] Elo.</h2><table>"
        "<tr><th>rank</th><th>model</th><th colspan=2>rating</th></tr>"
        "<tr><td>1</td><td><bdi>ash</bdi></td><td>1,047</td><td>[1,012, 1,083]</td></tr>"
        "<tr><td>2</td><td><bdi>birch</bdi></td><td>953</td><td>[917, 988]</td></tr></table>"
    )
    models = ("ash", "birch")
    read = [
        reading.pages(grids.of_markdown("x", markdown), models, "x"),
        reading.pages(grids.of_html("x", html)[0], models, "x"),
    ]
    kinds = [sorted(type(one).__name__ for one in part) for part in read]
    for kind in (Apart, Ranks, Listed, Number):
        assert kinds[0].count(kind.__name__) >= kinds[1].count(kind.__name__) > 0


def test_intervals_of_ratings_that_lie_apart_where_nothing_is():
    found = Facts(THREE)
    found.add([
        Even("json", "ash", "cedar"),
        Number("json ratings", "rating", ("ash",), 1035.0, 989.0, 1074.0),
        Number("json ratings", "rating", ("cedar",), 923.0, 883.0, 973.0),
    ])  # fmt: skip
    rule = "intervals_of_ratings_say_that_they_stand_alone"
    assert rule in names_of(found)
    found.says_alone = True
    assert rule not in names_of(found)
