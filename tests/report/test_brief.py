"""A run in brief: the value that every format shows first."""

import json
import math
from dataclasses import replace
from itertools import combinations, pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from orchestrator.report.brief import Brief, brief
from orchestrator.report.brief_text import brief_text
from orchestrator.report.picture import forest
from orchestrator.report.progress import Completeness, Cost
from orchestrator.report.questions import Check
from orchestrator.report.text import safe_names
from orchestrator.report.words import Name, names, phrase, told_apart
from orchestrator.statistics.ranking import Pair
from orchestrator.statistics.trust import Judgments, assess
from orchestrator.tables import Column, Comparison, Measured, ModelPair, make_table
from tests.report.samples import an_analysis, printed

SCRIPTS = ("نموذج كبير", "通义千问-72B-指令", "🦙 llama 👨‍👩‍👧", "Ψηφιακό-μοντέλο", "प्रतिरूप")


def many(n=30):
    """As many models, of names that are long and alike, and of several scripts."""
    alike = "meta-llama/Llama-3.1-70B-Instruct-with-a-very-long-description-of-the-tuning"
    listed = [*SCRIPTS, *(f"{alike}-v{i}-final" for i in range(n - len(SCRIPTS)))]
    return {name: 3.0 * place / n for place, name in enumerate(listed)}


def question(analysis, exact_match=None):
    return brief(rankings=[analysis], exact_match=exact_match).questions[0]


def with_pairs(analysis, resolvable):
    """The ranking where just these pairs can be told apart."""
    pairs = [
        replace(pair, resolvable=(pair.better, pair.worse) in resolvable) for pair in analysis.pairs
    ]
    return replace(analysis, pairs=tuple(pairs))


@pytest.fixture(scope="module")
def clear():
    return an_analysis()


def test_the_best_model_is_named_with_its_lead_and_its_win_rate(clear):
    found = question(clear)
    lead = next(p for p in clear.pairs if (p.better, p.worse) == ("expert", "apprentice"))
    row, column = (clear.wins.models.index(name) for name in ("expert", "apprentice"))
    won = clear.wins.preference[row][column]
    assert found.state == "answered"
    assert found.answer.text() == (
        f"expert is best: {lead.difference:+.0f} [{lead.low:.0f}, {lead.high:.0f}] Elo, win "
        f"rate {100 * won:.0f} % against apprentice."
    )


def test_of_two_models_the_better_one_is_named():
    said = question(an_analysis({"large": 1.5, "small": 0.0})).answer.text()
    assert said.startswith("large is better than small: +")
    assert "Elo, win rate " in said


def test_models_that_lead_together_are_named_together(clear):
    tied = with_pairs(clear, {("expert", "novice"), ("apprentice", "novice")})
    found = question(tied)
    assert found.state == "tied"
    said = found.answer.text()
    assert said.startswith("No single best model: expert and apprentice cannot be told apart (+")
    assert said.endswith("; both are better than novice.")


def test_a_leader_that_is_not_apart_from_all_is_not_called_best(clear):
    found = question(with_pairs(clear, {("expert", "apprentice")}))
    assert found.state == "tied"
    assert "is best" not in found.answer.text()
    found = question(with_pairs(clear, {("expert", "novice")}))
    assert found.answer.text().startswith("No single best model: expert and apprentice")
    assert found.answer.text().endswith("worse than one ranked above it.")


def test_where_nothing_is_apart_there_is_no_winner(clear):
    found = question(with_pairs(clear, set()))
    assert found.state == "open"
    assert found.answer.text().startswith("No winner: none of the 3 models can be told from")


@given(st.sets(st.sampled_from(list(combinations("abcde", 2)))))
def test_no_model_is_called_best_that_is_not_apart_from_every_other(told):
    """`best` is said of the first model alone, and only where each of its pairs is resolved."""
    analysis = with_pairs(FIVE, told)
    found = question(analysis)
    assert ("is best" in found.answer.text()) == all(("a", other) in told for other in "bcde")
    assert found.n_apart == len(told)
    leading = {model for model in "abcde" if all((o, model) not in told for o in "abcde")}
    assert (found.state == "open") == (len(leading) == 5)


FIVE = an_analysis({name: -float(place) for place, name in enumerate("abcde")}, n_items=20)


def test_separate_ratings_that_holm_cannot_tell_apart_are_explained(clear):
    """Few prompts and many pairs: far apart one by one, and not all together."""
    pairs = [
        Pair(pair.better, pair.worse, 841.0, 700.0, 980.0, 0.02, 0.06, resolvable=False)
        for pair in clear.pairs
    ]
    said = told_apart(replace(clear, pairs=tuple(pairs))).text()
    assert said == (
        "Not resolvable: no two models can be told apart when all 3 pairs are tested together "
        "(Holm, 5 %); taken alone, 3 would be."
    )


def test_a_judge_that_is_not_trusted_withholds_the_answer():
    found = question(an_analysis(coverage=0.1))
    assert found.state == "withheld"
    assert found.answer.text() == "No ranking: judge does not answer in the requested form."
    assert not found.is_drawn
    assert forest(found) is None
    assert "is best" not in json.dumps(brief(rankings=[an_analysis(coverage=0.1)]).as_json())


def test_a_ranking_that_holds_comes_before_one_that_is_withheld(clear):
    bad = replace(an_analysis(coverage=0.1), judge="bad", source="other")
    found = brief(rankings=[bad, clear])
    assert [one.state for one in found.questions] == ["answered", "withheld"]
    # It is told whose judgments say nothing, since the others hold.
    (caution,) = [one for one in found.cautions if "No model is better" in one.text()]
    assert "the judgments of other by bad," in caution.text()


def test_without_judgments_it_says_why():
    assert "there are no judgments" in question(an_analysis(n_items=0)).answer.text()
    failed = an_analysis({"a": 1.0, "b": 0.0}, n_items=4, n_failed=4)
    assert question(failed).answer.text() == "No ranking: all 4 judgments failed."


def test_missing_judgments_speak_against_it():
    found = question(an_analysis(n_failed=2))
    (missing,) = [check for check in found.checks if check.about == "missing"]
    assert missing.is_doubtful
    assert missing.says.text() == (
        "2 of 120 judgments missing and not filled in (timeout 2). For example: \x1b[2Jtoo slow"
    )


def test_references_that_order_the_models_otherwise_speak_against_it(clear):
    same = question(clear, {"expert": 0.9, "apprentice": 0.5, "novice": 0.1})
    other = question(clear, {"expert": 0.1, "apprentice": 0.5, "novice": 0.9})

    def says(found):
        return next(check for check in found.checks if check.about == "references")

    assert (says(same).is_doubtful, says(other).is_doubtful) == (False, True)
    assert "the same way" in says(same).says.text()
    assert not any("need not be correct" in line.text() for line in same.cautions)
    assert any("need not be correct" in line.text() for line in question(clear).cautions)


def test_judges_that_name_different_models_are_counted(clear):
    other = an_analysis({"expert": -1.5, "apprentice": 0.0, "novice": 1.5}, judge="second")
    pooled = replace(clear, judge=None, judges=("judge", "second"))
    found = brief(rankings=[clear, other, pooled]).questions
    assert found[0].judge is None
    (judges,) = [check for check in found[0].checks if check.about == "judges"]
    assert judges.is_doubtful
    assert judges.says.text() == (
        "1 of 2 judges rate expert highest; Kendall's tau between their rankings -1.00."
    )


COLUMNS = [Column("model"), Column("mean d", "signed")]


NAMED = {"a": 0.5, "b": 1.5}


def measured(*rows):
    table = make_table("probdiff", "ProbDiff", COLUMNS, rows, basis="12 prompts")
    return brief(tables=[table]).questions


def test_a_measure_with_intervals_is_a_question():
    (found,) = measured(
        ("a", Measured(-0.5, -0.6, -0.4)), ("b", Measured(0.5, 0.4, 0.6)), ("c", Measured(None))
    )
    assert found.answer.text() == (
        "Highest mean d: b +0.500 [+0.400, +0.600], then a -0.500 [-0.600, -0.400]."
    )
    assert [one.model for one in found.standings] == ["b", "a", "c"]
    assert found.n_apart == found.n_pairs == 1


def test_intervals_that_overlap_name_no_leader():
    (found,) = measured(("a", Measured(0.1, 0.0, 0.2)), ("b", Measured(0.15, 0.05, 0.25)))
    assert found.state == "open"
    assert found.answer.text().endswith("; not clearly above a.")


@pytest.mark.parametrize("is_tested", [False, True])
def test_where_lower_is_better_the_lowest_comes_first_and_is_called_so(is_tested):
    values = {"a": 0.1, "b": 0.9, "c": 0.12}
    rows = [(name, "lower", Measured(at, at - 0.05, at + 0.05)) for name, at in values.items()]
    pairs = [
        ModelPair(
            high, low, Measured(values[high] - values[low], -0.01, 0.8, 40), 0.5,
            adjusted_p=0.5, resolvable=high == "b", level=0.95,
        )
        for high, low in (("b", "a"), ("b", "c"), ("c", "a"))
    ]  # fmt: skip
    compared = [Comparison("", 0.95, tuple(pairs))] if is_tested else []
    columns = [Column("model"), Column("better"), Column("mean", "number")]
    table = make_table("loss", "Loss", columns, rows, comparisons=compared)
    found = brief(tables=[table])
    (question,) = found.questions
    assert [one.model for one in question.standings] == ["a", "c", "b"]
    assert question.answer.text() == ("Lowest mean: a 0.100 [0.050, 0.150]; not clearly below c.")
    assert question.n_apart == 2
    steps = [line.text() for line in found.next_steps]
    assert [step.startswith("More prompts to tell a from c: ") for step in steps] == [
        True
    ] * is_tested


def test_a_doubt_stands_beside_the_sentence_and_not_in_it():
    cells = [(name, Measured(at, at - 0.1, at + 0.1, why="skewed")) for name, at in NAMED.items()]
    (found,) = measured(*cells)
    assert "!" not in found.answer.text()
    assert all("!" in one.bounds for one in found.standings)
    assert any(check.about == "values" for check in found.checks)


def test_several_rows_a_model_are_no_question():
    assert measured(("a", Measured(0.1, 0.0, 0.2)), ("a", Measured(0.2, 0.1, 0.3))) == ()


def test_an_incomplete_run_says_so_first_in_every_form(clear):
    found = brief(rankings=[clear], completeness=Completeness(100, 60))
    assert found.incomplete.startswith("Incomplete: 40 of 100 units remain")
    assert found.to_markdown().startswith("> **Incomplete: 40 of 100 units remain")
    assert printed(brief_text(found), width=200).startswith("Incomplete: 40 of 100 units remain")
    assert list(found.as_json()["brief"])[:2] == ["name", "incomplete"]
    assert found.checks[0].is_doubtful


def test_the_cost_is_that_of_all_calls():
    words = Cost(1906, 69_332, 5_108, 0.0115, 1.5).words()
    assert words == ("1,906 requests", "69.3k tokens in", "5.1k tokens out", "41 s", "1.50 spent")
    assert Cost().words() == ()


def test_doubts_of_another_question_say_which_one_it_is(clear):
    found = brief(rankings=[clear, clear])
    first, second = found.questions
    doubts = (Check("order", phrase("flips"), is_doubtful=True), Check("form", phrase("fits")))
    second = msgspec.structs.replace(second, subject=phrase("scoring by j"), checks=doubts)
    text = printed(brief_text(msgspec.structs.replace(found, questions=(first, second))), 100)
    assert "scoring by j: flips" in text
    assert "fits" not in text


@pytest.fixture(scope="module")
def thirty():
    analysis = an_analysis(many(), n_items=40)
    rows = [(model, Measured(0.1 * i, 0.1 * i - 1, 0.1 * i + 1)) for i, model in enumerate(many())]
    tables = [make_table(f"t{i}", f"t{i}", COLUMNS, rows, basis="40 prompts") for i in range(6)]
    return brief(
        rankings=[analysis],
        tables=[replace_source(table, f"method-{i}") for i, table in enumerate(tables)],
        completeness=Completeness(1000, 900, 7),
        notes=[f"note {i}: two servers answered" for i in range(5)],
        cost=Cost(1, 2, 3, 0.1),
    )


def replace_source(table, source):
    return msgspec.structs.replace(table, source=source)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_thirty_models_fit_a_screen_and_it_says_where_the_rest_is(thirty, encoding):
    text = printed(
        brief_text(thirty, ["All 9 tables: orchestrator report r --full"]), 100, encoding
    )
    lines = text.splitlines()
    assert 24 <= len(lines) <= 40
    assert max(map(cell_len, lines)) <= 100
    assert "between" in text
    assert "orchestrator report r --full" in text


def test_the_whole_has_every_model_and_question(thirty):
    text = printed(brief_text(thirty, None), 100)
    standings = text.split("Other questions")[0]
    assert all(f"v{i}-final" in standings for i in range(25))
    assert all(name.split()[0] in standings for name in SCRIPTS)
    assert all(f"method-{i}" in text for i in range(6))


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_any_width_holds_it(thirty, width):
    lines = printed(brief_text(thirty), width).splitlines()
    assert max(map(cell_len, lines)) <= width


def test_json_has_the_sentences_and_the_numbers(thirty):
    text = json.dumps(thirty.as_json(), allow_nan=False)
    document = json.loads(text)["brief"]
    first = document["questions"][0]
    assert len(first["models"]) == 30
    assert first["answer"] == thirty.questions[0].answer.text()
    assert first["n_pairs"] == 435


def test_a_plot_holds_every_interval_on_one_axis(thirty):
    drawn = forest(thirty.questions[0])
    assert drawn is not None
    places = [place for mark in drawn[1] for place in (mark.value, mark.low, mark.high)]
    assert all(place is None or 0.0 <= place <= 100.0 for place in places)
    at = [place for place, _ in drawn[0]]
    assert 2 <= len(at) <= 5
    assert min(b - a for a, b in pairwise(at)) >= 15


def test_many_names_are_counted():
    assert phrase(names("abcdefg")).text() == "a, b, c and 4 more"
    assert phrase(names("abcd")).text() == "a, b, c and d"
    assert phrase(names("a")).text(lambda name: f"<{name}>") == "<a>"
    assert not phrase("", Name(""))


@given(
    st.lists(st.text(min_size=1, max_size=60), unique=True, min_size=1, max_size=12),
    st.integers(12, 40),
    st.booleans(),
)
def test_cut_names_stay_different_and_fit(given_names, width, ascii_only):
    shown = safe_names(given_names, width, ascii_only=ascii_only)
    assert list(shown) == given_names
    assert len(set(shown.values())) == len(given_names)
    assert all(cell_len(line) <= width for line in shown.values())


@pytest.mark.parametrize("form", ["{}-" + 60 * "x", 60 * "x" + "-{}", 40 * "x" + "-{}-" + 40 * "y"])
def test_a_cut_name_keeps_what_differs(form):
    listed = [form.format(f"v{i}") for i in range(12)]
    shown = safe_names(listed, 24)
    assert all(f"v{i}" in shown[name] for i, name in enumerate(listed))


def test_nothing_found_is_an_empty_brief():
    silence = "No results yet: no unit of a method that compares or scores answers is done."
    assert brief() == Brief(silence=silence)


def test_a_run_without_results_says_so_and_speaks_of_none():
    found = brief(completeness=Completeness(360, 33))
    assert found.incomplete == "Incomplete: 327 of 360 units remain."
    shown = printed(brief_text(found), width=100), found.to_markdown()
    assert all("No results yet: " in one for one in shown)
    assert found.as_json()["brief"]["silence"] == found.silence


def test_tables_alone_are_no_question():
    table = make_table("t", "t", [Column("feature")], [["a"]])
    found = brief(tables=[table], completeness=Completeness(360, 33))
    assert found.silence == "No method of this run ranks models; its tables are below."
    assert "these results use the 33" in found.incomplete


def test_a_measure_by_a_judge_says_how_far_to_trust_the_judge():
    table = make_table(
        "pointwise.scores", "Scores", [Column("model"), Column("judge"), Column("mean score")],
        [("a", "j", Measured(5.0, 4.0, 6.0)), ("b", "j", Measured(7.0, 6.5, 7.5))],
    )  # fmt: skip
    table = msgspec.structs.replace(table, source="pointwise")
    judgments = Judgments(
        masses=np.array([[0.9]] * 9 + [[0.1]]), decision_ab=np.empty(0), decision_ba=np.empty(0),
        clusters=np.empty(0, np.int64), n_units=12, n_missing=2,
    )  # fmt: skip
    trust = {"pointwise": (assess("j", judgments), assess("other", judgments))}
    (found,) = brief(tables=[table], trust=trust).questions
    assert {check.about: (check.says.text(), check.is_doubtful) for check in found.checks} == {
        "form": (
            "0.82 of the judge's probability is on the labels (mean); 10.0 % of readings have "
            "less than half there.", True,
        ),
        "missing": ("2 of 12 judgments missing and not filled in.", True),
    }  # fmt: skip


def test_one_token_is_one():
    assert Cost(requests=1, completion_tokens=1).words()[1:3] == ("0 tokens in", "1 token out")


def test_one_model_alone_has_a_headline():
    (found,) = measured(("only", Measured(0.5, 0.4, 0.6)))
    assert found.answer.text() == "only: mean d +0.500 [+0.400, +0.600]."
    assert found.n_pairs == 0


def test_equal_answers_are_counted_and_no_effect_of_their_order_is_told(clear):
    same = replace(clear, n_same_text=clear.n_judged)
    nothing = replace(clear.position.consistency, value=math.nan)
    same = replace(same, position=replace(clear.position, consistency=nothing))
    found = question(same)
    assert f"({clear.n_judged:,} of equal answers)" in found.basis
    (order,) = [check for check in found.checks if check.about == "order"]
    assert order.says.text() == "no two different answers to see it by."


def test_why_judges_are_not_trusted_is_said_once():
    doubtful = an_analysis(coverage=3e-5)
    found = brief(rankings=[doubtful, replace(doubtful, source="again")]).questions
    assert found[1].detail == "For the reasons above."
    reasons = found[0].detail.partition(" (")[0]
    checks = " ".join(check.says.text() for one in found for check in one.checks)
    assert reasons
    assert reasons not in checks


def test_what_not_to_conclude_names_the_judge_that_is_not_trusted():
    """Another judge of the same method may be trusted, and its ranking stand above."""
    made = brief(rankings=[an_analysis(judge="j", coverage=0.1), an_analysis(judge="k")])
    said = [one.text() for one in made.cautions if "whatever they say" in one.text()]
    assert said
    assert all(" by j, " in one for one in said)
