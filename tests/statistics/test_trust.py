"""The rule that decides whether a judge can be trusted: by coverage, by flips, by what is missing.

A judge that looks only at the order is simulated as two readings that do not depend on the answers.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.statistics.results import Thresholds
from orchestrator.statistics.trust import (
    SETTINGS,
    Judgments,
    OfModel,
    assess,
    followable,
    no_ranking,
    no_ranking_by_judge,
    not_known_yet,
)

STEADY = 0.9 * np.ones((40, 2))


def judged(n_flips, n_pairs, *, masses=STEADY, n_missing=0, clusters=None):
    """Pairs that are all decided in both orders, so many of them for different winners."""
    second = np.where(np.arange(n_pairs) < n_flips, -1.0, 1.0)
    return Judgments(
        masses=masses,
        decision_ab=np.ones(n_pairs),
        decision_ba=second,
        clusters=np.arange(n_pairs) if clusters is None else clusters,
        n_units=n_pairs + n_missing,
        n_missing=n_missing,
    )


@pytest.mark.parametrize(
    ("n_flips", "n_pairs", "verdict"),
    [
        (6, 6, "not trusted"),
        (3, 6, "cannot be said yet"),
        (0, 6, "trusted"),
        (0, 4, "cannot be said yet"),
        (1, 1, "cannot be said yet"),
        (11, 20, "not trusted"),
        (8, 20, "cannot be said yet"),
        (500, 1000, "not trusted"),
        (400, 1000, "trusted"),
        (0, 0, "trusted"),
    ],
)
def test_flips_count_by_their_number_and_not_by_their_share_alone(n_flips, n_pairs, verdict):
    assert assess("j", judged(n_flips, n_pairs)).verdict == verdict


def test_a_judge_without_probability_on_the_labels_is_not_trusted():
    found = assess("j", judged(0, 40, masses=np.full((40, 2), 1e-3)))
    assert found.verdict == "not trusted"
    assert "does not answer in the requested form (in 100 % of its readings" in found.reasons[0]
    assert any("prefix" in line for line in found.advice)


def test_advice_is_left_out_where_a_method_has_no_such_setting():
    found = assess("j", judged(6, 6, masses=np.full((6, 2), 1e-3)))
    assert followable(found, SETTINGS.values()) == found
    assert followable(found, ["examples"]).advice == (
        "another prompt",
        "`examples` of judgments",
        "another judge",
    )
    assert "Try another prompt or another judge." in no_ranking([followable(found, [])])


def test_both_reasons_are_given():
    found = assess("smol", judged(6, 6, masses=np.full((6, 2), 1e-3)))
    assert found.verdict == "not trusted"
    form, order = found.reasons
    assert "in the requested form" in form
    assert order.startswith("contradicts itself by order (its winner flips with the order in 100 %")
    said = no_ranking([found])
    assert said.startswith("No ranking: smol does not answer in the requested form")
    assert "or another judge" in said


def test_several_judges_share_one_sentence_and_its_advice():
    trusts = [assess(name, judged(6, 6)) for name in ("one", "two")]
    said = no_ranking_by_judge(trusts)
    assert list(said) == ["", "one", "two"]
    assert said["one"] == no_ranking(trusts[:1])
    assert said[""].count("No ranking: ") == said[""].count("are meaningless") == 1
    assert "one contradicts itself" in said[""]
    assert "two contradicts itself" in said[""]


def test_a_judge_that_is_silent_on_half_of_the_cases_is_not_trusted():
    assert assess("j", judged(0, 40, n_missing=40)).verdict == "not trusted"
    assert assess("j", judged(0, 40, n_missing=39)).verdict == "trusted"


def test_ties_and_unread_orders_are_no_flips():
    ties = replace(judged(0, 30), decision_ba=np.zeros(30))
    found = assess("j", ties)
    assert (found.verdict, found.n_decided, found.n_pairs) == ("cannot be said yet", 0, 30)
    assert "of 30 pairs none has a winner in both orders" in not_known_yet([found])
    assert np.isnan(found.flips.value)


def test_pairs_of_one_prompt_do_not_count_as_many():
    one_each, of_one = (
        assess("j", judged(0, 30, clusters=clusters)) for clusters in (None, np.zeros(30, int))
    )
    assert (one_each.verdict, of_one.verdict) == ("trusted", "cannot be said yet")


def test_thresholds_are_settings():
    strict = Thresholds(mass=0.95, low_readings=0.1, flips=0.2, usable_flips=0.05, missing=0.01)
    assert assess("j", judged(3, 40), strict).verdict == "not trusted"
    assert assess("j", judged(8, 40, masses=np.ones((40, 2)))).verdict == "trusted"
    assert assess("j", judged(12, 40, masses=np.ones((40, 2))), strict).verdict == "not trusted"


def test_no_word_on_a_judge_that_is_trusted():
    found = assess("j", judged(2, 40))
    assert (no_ranking([found]), not_known_yet([found])) == ("", "")
    assert (found.reasons, found.advice) == ((), ())


@given(st.integers(0, 40), st.integers(1, 40), st.floats(0, 1))
def test_more_flips_never_make_a_judge_more_trusted(n_flips, n_pairs, mass):
    order = ["trusted", "cannot be said yet", "not trusted"]
    few, more = (
        assess("j", judged(min(n, n_pairs), n_pairs, masses=np.full((n_pairs, 2), mass)))
        for n in (n_flips, n_flips + 1)
    )
    assert order.index(few.verdict) <= order.index(more.verdict)


def shares(p_flip, n_pairs, n_runs, rng):
    """Shares of the three verdicts over runs with so many pairs of separate prompts."""
    counts = np.bincount(rng.binomial(n_pairs, p_flip, n_runs), minlength=n_pairs + 1)
    found = dict.fromkeys(("trusted", "cannot be said yet", "not trusted"), 0.0)
    for n_flips in np.flatnonzero(counts):
        found[assess("j", judged(n_flips, n_pairs)).verdict] += counts[n_flips] / n_runs
    return found


def test_an_order_only_judge_flips_in_half_of_the_pairs_or_more():
    """The bound that the threshold rests on, for every bias and every share of ties."""
    rng = np.random.default_rng(0)
    for first in (0.0, 0.2, 0.5, 0.8, 1.0):
        for tie in (0.0, 0.4):
            drawn = rng.random((2, 4000)) < first
            tied = rng.random((2, 4000)) < tie
            both = ~tied.any(axis=0)
            # Shown first in the one order is shown second in the other.
            flips = (drawn[0] == drawn[1])[both].mean()
            assert flips >= 0.5 - 4 * 0.5 / np.sqrt(both.sum())


@pytest.mark.parametrize("n_pairs", [6, 20, 80])
def test_errors_are_bounded_by_the_level(n_pairs):
    """Four standard errors above 5 % for 2,000 runs; steps of small samples only help."""
    rng = np.random.default_rng(n_pairs)
    blind = shares(0.5, n_pairs, 2000, rng)
    usable = shares(0.3, n_pairs, 2000, rng)
    assert blind["trusted"] <= 0.07
    assert usable["not trusted"] <= 0.07


def test_power_grows_with_the_pairs():
    rng = np.random.default_rng(1)
    assert shares(0.9, 6, 1000, rng)["not trusted"] > 0.8
    assert shares(0.5, 80, 1000, rng)["not trusted"] > 0.9
    assert shares(0.1, 20, 1000, rng)["trusted"] > 0.95
    assert shares(0.3, 80, 1000, rng)["trusted"] > 0.9


def test_a_judge_that_calls_nearly_all_ties_is_named_for_that():
    decisions = np.zeros(245)
    decisions[:5] = 1.0
    judgments = Judgments(
        masses=STEADY, decision_ab=decisions, decision_ba=-decisions, clusters=np.arange(245),
        n_units=245, n_missing=0,
    )  # fmt: skip
    found = assess("j", judgments)
    assert (found.verdict, found.grounds) == ("not trusted", ("ties",))
    assert "only 5 of 245 pairs have a winner in both orders" in found.reasons[0]
    assert "contradicts" not in no_ranking([found])


@pytest.mark.parametrize(
    ("n_units", "n_missing", "refused"),
    [((60, 120, 120), (0, 60, 60), True), ((120,) * 3, (0, 59, 59), False),
     # Who has no judgment at all is not ranked: the others are.
     ((120, 120, 60), (0, 50, 60), False)],
)  # fmt: skip
def test_half_of_the_judgments_of_one_model_are_missing(n_units, n_missing, refused):
    of_models = tuple(map(OfModel, "abc", n_units, n_missing))
    judgments = replace(judged(0, 180), n_units=300, n_missing=60, of_models=of_models)
    found = assess("j", judgments)
    assert (found.grounds == ("missing",)) == refused
    assert ("with b" in no_ranking([found])) == refused


@given(st.integers(1, 40), st.integers(1, 3), st.data())
def test_as_many_more_clusters_as_are_said_settle_it(n_prompts, n_each, data):
    n_pairs = n_prompts * n_each
    n_flips = data.draw(st.integers(0, n_pairs))
    clusters = np.repeat(np.arange(n_prompts), n_each)
    judgments = judged(n_flips, n_pairs, clusters=clusters)
    found = assess("j", judgments)
    assume(found.verdict == "cannot be said yet")
    (advice,) = found.advice
    assume("would be needed" not in advice)
    more = int(re.sub(r"\D", "", advice))
    assert more > 0
    n_all = n_prompts + more
    at = np.resize(np.arange(n_pairs), n_all * n_each)
    again = replace(
        judgments,
        decision_ab=judgments.decision_ab[at],
        decision_ba=judgments.decision_ba[at],
        clusters=np.repeat(np.arange(n_all), n_each),
    )
    assert assess("j", again).verdict != "cannot be said yet"
