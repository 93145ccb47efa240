"""Checks that methods get what they ask for, told from one ask of a made-up item."""

import math

import numpy as np
import pytest

from orchestrator.ask import ChooseAsk, GenerateAsk
from orchestrator.probing import abilities
from orchestrator.probing.abilities import BOUNDED, EXACT, IMPOSSIBLE, NOT_KNOWN, Need, verdict
from orchestrator.probing.record import BAD, GOOD, UNKNOWN, WARNING, Finding, ProbeRecord
from orchestrator.records import Choice, Failure, Generation, Message, Prefix, Sampling, labels
from orchestrator.wire.labels import ADVICE
from orchestrator.wire.parsing import no_logprobs

PROMPT = (Message("user", "Which is better?"),)
ASK = ChooseAsk("judge", PROMPT, labels("A", "B"))
BEGUN = ChooseAsk("judge", PROMPT, labels("A", "B"), Prefix("It is "))
DRAW = GenerateAsk("m", PROMPT, Sampling(temperature=0.7))
LONG = Failure("unsupported", f"label 'A' is more than one token{ADVICE}", permanent=True)


def read(*probabilities):
    logprobs = tuple(math.log(p) if p else math.nan for p in probabilities)
    upper = tuple(value if value == value else -1.0 for value in logprobs)
    return Choice(logprobs, upper, "top_logprobs")


@pytest.mark.parametrize(
    ("ask", "found", "state", "verdict_of_it"),
    [
        (ASK, read(0.6, 0.3), GOOD, EXACT),
        (ASK, read(0.6, 0), WARNING, BOUNDED),
        (ASK, read(0, 0), BAD, IMPOSSIBLE),
        (ASK, read(0.9, 0.9), BAD, IMPOSSIBLE),
        (ASK, LONG, BAD, IMPOSSIBLE),
        (ASK, Failure("timeout", "no reply"), UNKNOWN, NOT_KNOWN),
        (ASK, Failure("too_long", "the prompt is too long", permanent=True), UNKNOWN, NOT_KNOWN),
        # The judge did not write what stands before it.
        (BEGUN, read(0, 0), WARNING, BOUNDED),
        (BEGUN, LONG, BAD, IMPOSSIBLE),
    ],
)
def test_the_labels_of_a_method_are_read_or_it_is_refused(ask, found, state, verdict_of_it):
    finding = abilities.tried_choice(ask, found)
    assert finding.state == state
    record = ProbeRecord(backend="k", model="m", findings=(finding,))
    need = Need("choose", examples=(ask,))
    assert verdict("x", [need], record, frozenset()).verdict == verdict_of_it


def test_what_would_help_fits_what_is_missing():
    assert "labels: two" in abilities.tried_choice(ASK, LONG).remedy
    assert "begun answer" in abilities.tried_choice(BEGUN, LONG).remedy
    assert "probe: false" in abilities.tried_choice(ASK, read(0, 0)).remedy


@pytest.mark.parametrize(
    ("drawn", "state"),
    [
        (Generation("x", "stop", logprobs=np.array([-1.0], np.float32)), GOOD),
        (Generation("x", "stop", logprobs=np.array([-1.0], np.float32), raw=False), BAD),
        (Generation("x", "stop"), BAD),
        (no_logprobs("none come"), BAD),
        (Failure("timeout", "no reply"), UNKNOWN),
    ],
)
def test_log_probabilities_of_draws_are_the_models_own_or_the_method_is_refused(drawn, state):
    finding = abilities.tried_drawing(DRAW, drawn)
    assert finding.state == state
    texts = Finding("generate", "yes", GOOD, "texts come")
    record = ProbeRecord(backend="k", model="m", findings=(texts, finding))
    judged = verdict("x", [Need("generate", examples=(DRAW,))], record, frozenset())
    assert (judged.verdict == IMPOSSIBLE) == (state == BAD)


def test_what_was_not_tried_is_not_known():
    record = ProbeRecord(backend="k", model="m")
    assert verdict("x", [Need("choose", examples=(ASK,))], record, frozenset()).verdict == NOT_KNOWN


def test_the_worst_of_several_places_decides():
    findings = (abilities.tried_choice(ASK, read(0.6, 0.3)), abilities.tried_choice(BEGUN, LONG))
    record = ProbeRecord(backend="k", model="m", findings=findings)
    judged = verdict("x", [Need("choose", examples=(ASK, BEGUN))], record, frozenset())
    assert judged.verdict == IMPOSSIBLE
    assert "behind a begun answer" in judged.why


def test_questions_have_names_of_their_own():
    other = ChooseAsk("judge", (Message("user", "And now?"),), labels("A", "B"))
    warmer = GenerateAsk("m", PROMPT, Sampling(temperature=1.0, top_p=0.9))
    names = [abilities.name_of(one) for one in (ASK, BEGUN, other, DRAW, warmer)]
    assert len(set(names)) == 5
    assert names[4] == "raw log-probabilities at temperature 1, top_p 0.9"
    # Who is asked plays no part: the record is one model's.
    assert abilities.name_of(ChooseAsk("other", PROMPT, labels("A", "B"))) == names[0]


def test_advice_is_given_once():
    found = abilities.tried_choice(ASK, LONG)
    assert "is more than one token" in found.said
    assert "kind embedded" not in found.said
    assert "vLLM" in found.remedy
