"""A run never sends more requests than its plan counts."""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ask import Request, digest
from orchestrator.driver import Driver
from orchestrator.methods import (
    answers,
    consistency,
    judged_rewrites,
    pairwise_ranking,
    pointwise,
    probdiff,
    samples,
)
from orchestrator.records import FAULTY, Failure, Generation, Outcome, Scored
from orchestrator.runner.planning.counts import count_plan
from orchestrator.units import Plan, make_part
from tests.core.fakes import Items, answer, method_in

MODULES = (samples, consistency, judged_rewrites, pairwise_ranking, pointwise, probdiff)
MODELS = ("a", "b")
WARM = {"temperature": 0.7}
CHOICES: dict[str, list[dict[str, Any]]] = {
    "probdiff": [
        {},
        {"deltas": [-0.01]},
        {"revision": WARM},
        {"rounds": 3},
        {"answer": {"temperature": 0.2}},
    ],
    "judged_rewrites": [{"judges": ["j"]}, {"judges": ["j", "k"], "revision": WARM, "rounds": 2}],
    "samples": [{"n": 2}, {"n": 3}, {"n": 2, "answer": {"temperature": 0.2}}],
    "consistency": [{"similarity": None}, {"similarity": None, "times": 2}],
    "pointwise": [{"judges": ["j"]}, {"judges": ["j", "k"]}, {"judges": ["j"], "scale": (1, 5)}],
    "pairwise_ranking": [{"judges": ["j"]}, {"judges": ["k"], "chain_of_thought": True}],
}
ENTRIES = st.sampled_from([(kind, own) for kind, some in CHOICES.items() for own in some])


def planned_with_companions(entries, n_items=2) -> Plan:
    """Return the plan of some entries, answers that several of them draw alike as one part."""
    parts: dict[bytes, Any] = {}
    for number, (kind, own) in enumerate(entries):
        module = next(one for one in MODULES if one.__name__.endswith(kind))
        made = method_in(module)(module.Config.model_validate(own))
        for other in made.companions():
            companion = make_part("answers", method_in(answers)(other.config), MODELS, "answers")
            parts.setdefault(companion.fingerprint, companion)
        part = make_part(kind, made, MODELS, f"{kind} {number}")
        parts[part.fingerprint] = part
    identities = {name: digest(name) for name in (*MODELS, "j", "k")}
    return Plan(list(parts.values()), Items(n_items), identities, seed=0)


class Sent(NamedTuple):
    """A run's requests in their order, with their outcomes."""

    requests: list[Request]
    outcomes: dict[bytes, Outcome | Failure]


def replied(request: Request, rate_failed: float, n_texts: int) -> Outcome | Failure:
    """Return an outcome that its key decides; few texts make equal answers."""
    number = int.from_bytes(digest("reply", request.key)[:4], "little")
    if number % 1000 < 1000 * rate_failed:
        return Failure("refused", "no", permanent=True)
    if request.ask.kind == "generate":
        ids = np.array([1], np.int32)
        return Generation(f"text {number % n_texts}", "stop", token_ids=ids)
    if request.ask.kind == "score":
        return Scored(np.array([1], np.int32), np.array([-1.0], np.float32), 3, "separate", "fake")
    return answer(request)


def run(plan, held=None, rate_failed=0.0, n_texts=1000) -> Sent:
    held = held or {}
    driver = Driver(plan, held.get, {})
    sent = Sent([], {})
    for position in range(len(plan)):
        driver.open(position)
    while driver.outbox:
        request = driver.outbox.popleft()
        outcome = replied(request, rate_failed, n_texts)
        sent.requests.append(request)
        sent.outcomes[request.key] = outcome
        driver.deliver(request, outcome)
    assert driver.n_open == 0
    assert all(end.status != FAULTY for end in driver.finished), driver.finished[0].fault
    return sent


def left(plan, held=None) -> Counter[tuple[str, str]]:
    """Return what a plan says is left, by kind of request and model."""
    counted = count_plan(plan, (held or {}).get, {}, {}).stages
    found: Counter[tuple[str, str]] = Counter()
    for (_, stage), count in zip(plan.stages(), counted, strict=False):
        assert 0 <= count.left <= count.total - count.held
        assert count.left == 0 or count.held + count.left <= count.total
        found[stage.ask, stage.model] += count.left
    return found


def by_kind(requests) -> Counter[tuple[str, str]]:
    return Counter((request.ask.kind, request.ask.model) for request in requests)


@settings(max_examples=60, deadline=None)
@given(
    entries=st.lists(ENTRIES, min_size=1, max_size=4),
    rate_failed=st.sampled_from([0.0, 0.0, 0.2]),
    n_texts=st.sampled_from([1, 2, 1000]),
    share=st.floats(0, 1),
)
def test_no_more_is_sent_than_was_planned(entries, rate_failed, n_texts, share):
    plan = planned_with_companions(entries)
    first = run(plan, None, rate_failed, n_texts)
    assert by_kind(first.requests) <= left(plan)
    n_held = round(share * len(first.requests))
    held = {one.key: first.outcomes[one.key] for one in first.requests[:n_held]}
    assert by_kind(run(plan, held, rate_failed, n_texts).requests) <= left(plan, held)
    assert not left(plan, first.outcomes).total(), "all is held, so nothing is left"


def rewritings(*entries):
    plan = planned_with_companions(entries, 4)
    return plan, {
        (one.method, one.model): one
        for one in count_plan(plan, lambda key: None, {}, {}).stages
        if one.name == "rewritings"
    }


def test_rewritings_are_left_before_the_answers_are_there():
    plan, found = rewritings(("probdiff", {}))
    assert [(one.total, one.left, one.exact) for one in found.values()] == [(4, 4, True)] * 2
    assert left(plan)["generate", "a"] == by_kind(run(plan).requests)["generate", "a"] == 8


def test_another_draw_counts_for_each_method_and_the_same_draw_once():
    same, other = ("probdiff", {"deltas": [-0.01]}), ("probdiff", {"revision": WARM})
    plan, found = rewritings(("probdiff", {}), same, other)
    assert {method for method, _ in found} == {"probdiff 0", "probdiff 2"}
    assert {one.left for one in found.values()} == {4}
    assert left(plan)["generate", "a"] == by_kind(run(plan).requests)["generate", "a"] == 12


@pytest.mark.parametrize("kept", ["probdiff 0", "probdiff 1"])
def test_what_the_store_holds_counts_for_its_own_row(kept):
    plan = planned_with_companions([("probdiff", {}), ("probdiff", {"revision": WARM})], 4)
    sent = run(plan)
    held = {
        one.key: sent.outcomes[one.key]
        for one in sent.requests
        if plan.part(one.position).name in {"answers", kept} and one.ask.kind == "generate"
    }
    counted = count_plan(plan, held.get, {}, {}).stages
    found = {
        (one.method, one.model): (one.held, one.left)
        for one in counted
        if one.name in {"answers", "rewritings"}
    }
    for model in MODELS:
        assert found["answers", model] == (4, 0)
        for name in ("probdiff 0", "probdiff 1"):
            assert found[name, model] == ((4, 0) if name == kept else (0, 4))


def test_nothing_is_left_of_a_unit_whose_answer_failed_for_good():
    plan = planned_with_companions([("probdiff", {})])
    failed = run(plan, None, 1.0)
    assert set(by_kind(failed.requests)) == {("generate", "a"), ("generate", "b")}
    assert not left(plan, failed.outcomes).total()
