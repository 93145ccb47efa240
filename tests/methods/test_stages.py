"""What a method says that it asks for an item is what it asks: of each model, each kind of ask."""

from collections import Counter

import numpy as np
import pytest

from orchestrator import contracts
from orchestrator.ask import digest
from orchestrator.contracts.method import Method
from orchestrator.driver import Driver
from orchestrator.records import (
    Choice,
    Generation,
    Item,
    Message,
    PairScores,
    Rewards,
    Scored,
    TopLogprobs,
)
from orchestrator.units import Plan, make_part
from tests.core.fakes import BAD, Items
from tests.fake import judge
from tests.matrix.test_methods_on_servers import METHODS

MODELS = ("a", "b", "c")
ASKED = (*MODELS, "judge", "rouge_l:words")


class Questions(Items):
    """Of which only the first has a reference."""

    def item(self, index):
        messages = (Message("user", f"question {index}"),)
        return Item(key=f"i{index}", messages=messages, reference=None if index else "right")


def listed(n, k):
    return TopLogprobs(
        np.zeros((n, k), np.int32), np.log(np.full((n, k), 1 / (k + 1))).astype(np.float32)
    )


def tokens(ask, ids):
    """Numbers of tokens, with the alternatives that are asked for."""
    logprobs = np.full(ids.shape, -0.5, np.float32)
    return ids, logprobs, listed(len(ids), ask.top_logprobs) if ask.top_logprobs else None


def answer(request):
    """An answer to any request; texts differ, so that no two prompts are alike."""
    ask = request.ask
    match request.ask.kind:
        case "generate":
            prompt = "\n".join(message.content for message in ask.messages)
            verdict = judge.verdict(prompt, judge.read(prompt, ask.model, quality=1.0))
            text = f"{ask.model} {request.key.hex()}{verdict}"
            if "Rating only." in prompt:
                text = verdict[-1]
            ids, logprobs, top = tokens(ask, np.frombuffer(text.encode(), np.uint8).astype("int32"))
            return Generation(text, "stop", token_ids=ids, logprobs=logprobs, top=top)
        case "score":
            given = ask.token_ids or tuple(ask.text.encode())
            ids, logprobs, top = tokens(ask, np.array([*given, *[3] * ask.end_of_turn], np.int32))
            shapes = {"attention_entropy": (2, 2)}
            features = {
                name: np.ones(shapes.get(name, ids.shape), np.float32) for name in ask.features
            }
            return Scored(ids, logprobs, top=top, features=features or None)
        case "choose":
            even = (-float(np.log(len(ask.labels) + 1)),) * len(ask.labels)
            return Choice(even, even, "fake")
        case "similarity":
            same = np.ones((len(ask.texts),) * 2, np.float32)
            return PairScores(same, same, "fake", 0)
        case _:
            return Rewards(np.ones((1, 1), np.float32))


def ran(name, refused=None, n_items=1):
    """Evaluate items; return the plan, how often each kind of ask was sent, and the rows.

    Asks of the kind and model that are `refused` fail.
    """
    entry = dict(METHODS[name])
    kind = entry.pop("kind")
    method = contracts.load(Method, kind)
    plan = Plan(
        [make_part(kind, method(method.Config.model_validate(entry)), MODELS)],
        Questions(n_items),
        {model: digest(model) for model in ASKED},
        seed=0,
    )
    asked: Counter[tuple[str, str]] = Counter()
    driver, known = Driver(plan, lambda _: None, {}), {}
    for position in range(len(plan)):
        driver.open(position)
        while driver.outbox:
            request = driver.outbox.popleft()
            if request.key not in known:
                asked[request.ask.kind, request.ask.model] += 1
                is_refused = (request.ask.kind, request.ask.model) == refused
                known[request.key] = BAD if is_refused else answer(request)
            driver.deliver(request, known[request.key])
    assert len(driver.finished) == len(plan)
    return plan, asked, [row for end in driver.finished for row in end.rows]


@pytest.mark.parametrize("name", METHODS)
def test_what_is_planned_for_an_item_is_what_is_asked(name):
    plan, asked, rows = ran(name)
    assert {row["status"] for row in rows} == {"ok"}
    planned: Counter[tuple[str, str]] = Counter()
    for _, stage in plan.stages():
        planned[stage.ask, stage.model] += stage.per_item
    # An answer of each model is counted by the item, for all methods together.
    for model in MODELS:
        if asked["generate", model] > planned["generate", model]:
            asked["generate", model] -= 1
    assert +asked == +planned


@pytest.mark.parametrize("name", METHODS)
def test_a_request_that_fails_is_a_failed_row_with_its_cause(name):
    # Of two answers, one is too few to compare.
    causes = {BAD.cause, "too_few_answers"} if name == "peer_elo" else {BAD.cause}
    for refused in ran(name)[1]:
        *_, rows = ran(name, refused)
        failed = [row for row in rows if row["status"] == "failed"]
        assert failed, refused
        assert {row["cause"] for row in failed} <= causes, refused


@pytest.mark.parametrize("name", METHODS)
def test_an_item_without_what_a_prompt_shows_fails_alone_and_is_not_judged(name):
    plan, asked, rows = ran(name, n_items=2)
    outcomes = {(row["item"], row["status"], row.get("cause") or "") for row in rows}
    if "reference" in plan.parts[0].method.needs():
        assert outcomes == {("i0", "ok", ""), ("i1", "failed", "bad_item")}
        judged = [one for one in asked if one[1] == "judge"]
        assert [asked[one] for one in judged] == [ran(name)[1][one] for one in judged]
    else:
        assert outcomes == {("i0", "ok", ""), ("i1", "ok", "")}
