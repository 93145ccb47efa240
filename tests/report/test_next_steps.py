"""What to do next: each cause gives its sentence, no sentence stands without its cause."""

import json
import shlex
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.report.brief import _REMEDIES, CUT, THINKING, brief
from orchestrator.report.brief_text import brief_text
from orchestrator.report.html import page as html
from orchestrator.report.progress import Completeness
from orchestrator.report.text import escaped, safe_line
from orchestrator.statistics.bounded_mean import intervals, p_values
from orchestrator.statistics.student import MOST, units_needed
from orchestrator.store import FailureCount
from orchestrator.tables import Column, Comparison, Measured, ModelPair, make_table
from tests.oracles.verdicts import reading
from tests.oracles.verdicts.facts import Even
from tests.report import hostile
from tests.report.samples import an_analysis, printed

MODELS = ("ash", "birch", "cedar")
LABELS = "orchestrator labels RUN"
AGAIN = "un the same command again"
SEE = "`orchestrator view RUN --open --items 'where=failed>0'`"


@cache
def analysed(apart, n_items, coverage):
    strengths = {name: apart * place for place, name in enumerate(MODELS)}
    return an_analysis(strengths, n_items, coverage=coverage)


@st.composite
def states(draw):
    """A run: strengths of its models, its judge's form, units, failures, notes, references."""
    n_items = draw(st.sampled_from([4, 12, 40]))
    apart = draw(st.sampled_from([0.0, 0.05, 0.4, 3.0]))
    coverage = draw(st.sampled_from([None, None, 0.1]))
    analysis = analysed(apart, n_items, coverage)
    ended = draw(st.sampled_from([100, 90]))
    failed = draw(st.sampled_from([0, 0, 5]))
    others = ["bad_request", "method", *(cause for of, *_ in _REMEDIES for cause in of.split())]
    causes = draw(st.lists(st.sampled_from(others), max_size=3))
    said = ["so", *(f"it {part} then" for _, part, _ in _REMEDIES if part)]
    failures = [
        FailureCount(permanent=draw(st.booleans()), model=draw(st.sampled_from(MODELS)),
                     cause=cause, status=0, n=3, last_message=draw(st.sampled_from(said)))
        for cause in causes
    ]  # fmt: skip
    shares = ": ash 3 of 40"
    notes = [f"{CUT}, and judged as far as they go{shares}", f"{THINKING}, which so{shares}; do"]
    notes = draw(st.sampled_from([[], notes]))
    exact = draw(st.sampled_from([{}, dict.fromkeys(MODELS, 0.5)]))
    analyses = draw(st.sampled_from([[], [{"kind": "human_labels", "labels": "l.csv"}]]))
    made = brief(
        name="run",
        rankings=[analysis],
        exact_match=exact,
        completeness=Completeness(100, ended, failed),
        notes=notes,
        failures=failures,
        settings={"analyses": analyses},
    )
    return made, analysis, failures, notes, bool(exact or analyses)


@given(states())
def test_each_cause_has_its_sentence_and_no_sentence_is_without_its_cause(state):
    made, analysis, failures, notes, is_checked = state
    said = [step.text() for step in made.next_steps]
    question = made.questions[0]
    is_short = (
        "90 of" in made.checks[0].says.text() or "none failed" not in made.checks[0].says.text()
    )
    is_left = bool(made.incomplete)
    is_failed = "none failed" not in made.checks[0].says.text()
    blamed = {
        (remedy, one.permanent, one.cause, one.model)
        for one in failures
        for remedy in [
            *(way for of, part, way in _REMEDIES
              if one.cause in of.split() and part in f"candidate: {one.last_message}"),
        ][:1]
        if is_short
    }  # fmt: skip
    for remedy, permanent, cause, model in blamed:
        about = [one for one in said if one.startswith(remedy) and model in one]
        again = f"`--retry {cause}`. What failed: {SEE}" if permanent else AGAIN
        assert any(again in one for one in about)
    for way in {way for *_, way in _REMEDIES}:
        of_way = {model for remedy, *_, model in blamed if remedy == way}
        about = [one for one in said if one.startswith(way)]
        assert bool(of_way) == bool(about)
        assert all(model in of_way for model in MODELS for one in about if model in one)
    is_again = any(not permanent for _, permanent, *_ in blamed)
    assert any(one.startswith(f"R{AGAIN}") for one in said) == (is_left and not is_again)
    assert any(one.startswith("See why") for one in said) == (
        is_failed and not is_left and not blamed
    )
    assert any(one.startswith("Raise `max_tokens`") for one in said) == bool(notes)
    assert any(one.startswith("Set `thinking`") for one in said) == bool(notes)
    assert any(one.startswith("Try ") for one in said) == bool(analysis.warning or analysis.caution)
    is_open = question.state in ("open", "tied") and not analysis.caution
    assert any(one.startswith("More prompts") for one in said) == is_open
    is_unchecked = question.state in ("answered", "open", "tied") and not is_checked
    assert any(LABELS in one for one in said) == (is_unchecked and not analysis.caution)
    assert " Try " not in question.detail
    assert len(set(said)) == len(said)


@pytest.mark.parametrize(
    ("read", "left"), [("", "a 3 of 9, b 2 of 9"), ("b", "a 3 of 9"), ("ab", "")]
)
def test_answers_that_are_read_from_a_file_are_not_drawn_longer(read, left):
    models = {name: {"answers": "x.jsonl"} if name in read else {} for name in "ab"}
    notes = [f"{CUT}, and judged as far as they go: a 3 of 9, b 2 of 9"]
    made = brief(name="run", rankings=[], notes=notes, settings={"models": models})
    said = [step.text() for step in made.next_steps if "max_tokens" in step.text()]
    assert said == [f"Raise `max_tokens` of the answers that were cut: {left}."] * bool(left)


@given(states())
def test_no_sentence_contradicts_the_verdict(state):
    made, analysis, *_ = state
    even = {frozenset((one.better, one.worse)) for one in analysis.pairs if not one.resolvable}
    said = [step.text() for step in made.next_steps]
    found = [one for text in said for one in reading.stated(text, MODELS, "next") if text]
    assert {frozenset((one.first, one.second)) for one in found if isinstance(one, Even)} <= even
    is_asked = any(text.startswith("More prompts") for text in said)
    assert is_asked == any(isinstance(one, Even) for one in found)
    if made.questions[0].state in ("answered", "withheld"):
        assert not is_asked


@given(states())
def test_every_format_has_every_sentence(state):
    made, *_ = state
    text = " ".join(printed(brief_text(made, None), width=400).split())
    markdown = made.to_markdown()
    document = json.loads(json.dumps(made.as_json()))["brief"]
    assert document["next_steps"] == [step.text() for step in made.next_steps]
    assert ("What to do next" in text) == ("What to do next" in markdown) == bool(made.next_steps)
    for step in made.next_steps:
        assert step.text() in text
        assert step.text(escaped) in markdown


def test_the_page_and_the_notebook_have_it_with_commands_as_code():
    analysis = an_analysis(dict.fromkeys(MODELS, 0.0))
    about = hostile.material(rankings=[analysis], brief=brief(rankings=[analysis]))
    for shown in (html.render(about), html.summary(about)):
        assert "More prompts to tell <bdi>" in shown
        assert "<code>orchestrator labels RUN --to labels.csv</code>" in shown


def test_two_measured_models_are_told_how_many_prompts_they_need():
    cell = Measured(0.02, -0.02, 0.06, 50)
    pair = ModelPair("ash", "birch", cell, 0.3, 0.3, resolvable=False, level=0.95)
    rows = [("ash", Measured(0.5, 0.4, 0.6, 50)), ("birch", Measured(0.48, 0.4, 0.6, 50))]
    table = make_table("m", "Mean", [Column("model"), Column("mean", "number")], rows)
    compared = Comparison("", 0.95, (pair,))
    table = type(table)(**{
        field: getattr(table, field) for field in table.__struct_fields__
    } | {"source": "m", "comparisons": (compared,)})  # fmt: skip
    (said,) = (step.text() for step in brief(tables=[table]).next_steps)
    needed = units_needed(0.02, -0.02, 50, 0.95)
    assert said.startswith(
        f"More prompts to tell ash from birch: about {float(f'{needed:.2g}'):,.0f} instead of 50."
    )


def test_two_methods_that_leave_the_same_models_open_say_it_once():
    even = an_analysis(dict.fromkeys(MODELS, 0.0))
    both = [replace(even, source="one"), replace(even, source="two")]
    said = [step.text() for step in brief(rankings=both).next_steps]
    assert sum(one.startswith("More prompts") for one in said) == 1


def test_a_difference_of_nothing_is_no_plan():
    assert units_needed(0.0, -1.0, 10, 0.95) == MOST + 1
    assert units_needed(1e-9, -1.0, 10, 0.95) == MOST + 1


@pytest.mark.parametrize("spread", [0.2, 0.4])
def test_so_many_units_tell_the_difference_in_four_of_five_samples(spread):
    """The estimate from a pilot of which the spread is known, against the rule itself."""
    rng = np.random.default_rng(0)
    shift, n = 0.08, 60

    def sample(size, of):
        return np.clip(0.5 + shift + spread * rng.standard_normal((of, size)), 0.0, 1.0)

    true = float(sample(200_000, 1).mean()) - 0.5
    found = []
    for totals in sample(n, 40):
        low, _ = intervals(totals[None], np.ones((1, n)), 0.05)
        found.append(float(totals.mean() - low[0]))
    needed = units_needed(true, true - float(np.mean(found)), n, 0.95)
    told = p_values(sample(needed, 300), np.ones((300, needed)), 0.5) <= 0.05
    assert 0.68 < told.mean() < 0.92


@given(st.text(max_size=12))
def test_commands_name_the_folder_of_the_run_wherever_they_can_be_copied(folder):
    run = shlex.quote(f"runs/{folder}")
    is_plain = safe_line(run) == run and "`" not in run
    made = brief(run=run, completeness=Completeness(10, 10, 1))
    (said,) = (step.text() for step in made.next_steps)
    command = ["orchestrator", "view", f"runs/{folder}" if is_plain else "RUN", "--open"]
    command += ["--items", "where=failed>0"]
    assert shlex.split(said.split("`")[1]) == command
