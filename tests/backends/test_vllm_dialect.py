"""vLLM's adapter against the fake server's dialects, of the older and the newer model runner."""

import asyncio

import numpy as np
import pytest

from backends import vllm
from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Provenance
from orchestrator.records import (
    Choice,
    Failure,
    Generation,
    Message,
    Sampling,
    Scored,
    labels,
)
from tests.backends.dialects import connecting

MESSAGES = (Message("user", "What is 2 + 2?"),)
SYMBOLS = (Message("user", "Say [[>>]] or [[<<]].\nA: bade kege lafe\nB: xoxo kofu zuku"),)
VERDICTS = labels("[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]")
UNLISTED = labels("!", "bade kofu", "lize gamu")


@pytest.fixture
async def connect():
    async with connecting(vllm, "vllm_v2") as open_one:
        yield open_one


async def test_a_score_gives_the_numbers_of_the_draw(connect):
    backend, _ = await connect()
    made = await backend.generate(GenerateAsk("x", MESSAGES, Sampling(), top_logprobs=3), 1)
    assert isinstance(made, Generation), made
    assert made.token_ids is not None
    assert made.logprobs is not None
    assert made.top is not None
    scored = await backend.score(ScoreAsk("x", MESSAGES, tuple(made.token_ids.tolist())))
    assert isinstance(scored, Scored), scored
    np.testing.assert_array_equal(scored.logprobs, made.logprobs)
    assert made.top.token_ids.shape == (len(made.token_ids), 3)


async def test_labels_are_chosen_by_the_chain_rule(connect):
    backend, _ = await connect(choose_negligible=0.0)
    chosen = await backend.choose(ChooseAsk("x", SYMBOLS, VERDICTS))
    assert isinstance(chosen, Choice), chosen
    for label, value in zip(VERDICTS, chosen.logprobs, strict=True):
        scored = await backend.score(ScoreAsk("x", SYMBOLS, (), label.name))
        assert isinstance(scored, Scored)
        assert value == pytest.approx(float(scored.logprobs.sum()), abs=1e-5)


async def test_of_many_nodes_the_first_is_read_alone(connect):
    backend, _ = await connect()
    many = labels("[[>>]]", *(f"{word} {word}" for word in "abcdefghi"))
    chosen = await backend.choose(ChooseAsk("x", SYMBOLS, many))
    assert isinstance(chosen, Choice), chosen
    assert chosen.n_requests >= 2
    few = await backend.choose(ChooseAsk("x", SYMBOLS, many[:2]))
    assert isinstance(few, Choice), few
    assert few.n_requests < chosen.n_requests
    assert few.logprobs[0] == pytest.approx(chosen.logprobs[0])


async def test_the_prompts_of_a_choice_that_is_under_way_are_counted(connect):
    backend, _ = await connect(rules=[{"latency_s": 0.3}])
    async with asyncio.TaskGroup() as group:
        choice = group.create_task(backend.choose(ChooseAsk("x", SYMBOLS, VERDICTS)))
        counts = []
        while not choice.done():
            counts.append((await backend.load()).n_extra)
            await asyncio.sleep(0.05)
    assert max(counts) >= 2
    assert (await backend.load()).n_extra == 0


@pytest.mark.parametrize(
    ("settings", "how"),
    [
        ({}, "forced"),
        ({"gate": False}, "token_ids"),
        ({"gate": False, "raw_logprobs": False}, "token_ids"),
    ],
)
async def test_labels_that_are_not_listed_are_drawn_by_force_or_asked_for_by_id(
    connect, settings, how
):
    backend, _ = await connect(choose_negligible=0.0, **settings)
    chosen = await backend.choose(ChooseAsk("x", MESSAGES, UNLISTED))
    assert isinstance(chosen, Choice), chosen
    assert chosen.exact
    assert chosen.method == f"vllm.top_logprobs+{how}"
    for label, value in zip(UNLISTED, chosen.logprobs, strict=True):
        scored = await backend.score(ScoreAsk("x", MESSAGES, (), label.name))
        assert isinstance(scored, Scored)
        assert value == pytest.approx(float(scored.logprobs.sum()), abs=1e-5)


async def test_labels_that_an_older_server_of_processed_numbers_does_not_list_are_bounded(connect):
    backend, _ = await connect(choose_negligible=0.0, raw_logprobs=False)
    chosen = await backend.choose(ChooseAsk("x", MESSAGES, UNLISTED))
    assert isinstance(chosen, Choice), chosen
    assert (chosen.method, chosen.exact) == ("vllm.top_logprobs", False)
    for label, upper in zip(UNLISTED, chosen.upper, strict=True):
        scored = await backend.score(ScoreAsk("x", MESSAGES, (), label.name))
        assert isinstance(scored, Scored)
        assert float(scored.logprobs.sum()) <= upper + 1e-5


async def test_a_server_whose_numbers_are_processed_is_found_out_by_what_is_forced(connect):
    backend, _ = await connect(choose_negligible=0.0, quirks=["after_temperature"])
    chosen = await backend.choose(ChooseAsk("x", MESSAGES, UNLISTED))
    assert isinstance(chosen, Failure)
    assert (chosen.cause, chosen.permanent) == ("unsupported", True)
    assert "raw_logprobs: false" in chosen.message


@pytest.mark.parametrize(
    ("sampling", "extra", "raw"),
    [
        (Sampling(), {}, True),
        (Sampling(temperature=1.0), {}, True),
        (Sampling(temperature=0.5), {}, False),
        (Sampling(temperature=1.0, top_p=0.9), {}, False),
        (Sampling(), {"repetition_penalty": 1.2}, False),
    ],
)
async def test_processed_numbers_are_raw_where_sampling_changes_nothing(
    connect, sampling, extra, raw
):
    backend, _ = await connect(raw_logprobs=False, extra=extra)
    drawn = await backend.generate(GenerateAsk("x", MESSAGES, sampling), 1)
    assert isinstance(drawn, Generation)
    assert drawn.raw is raw


@pytest.mark.parametrize(("dialect", "spoiled"), [("vllm_v1", True), ("vllm_v2", False)])
async def test_the_older_runner_mixes_replies_up_unless_ids_are_forced_or_not_asked_for(
    connect, dialect, spoiled
):
    slow = [{"route": "completions", "latency_s": 0.02}, {"route": "chat", "latency_s": 0.005}]
    for settings in ({"gate": False}, {}, {"raw_logprobs": False}):
        backend, _ = await connect(dialect, rules=slow, choose_negligible=0.0, **settings)
        exact = ChooseAsk("x", MESSAGES, UNLISTED)
        made: list[object] = []
        async with asyncio.TaskGroup() as group:
            choices = [group.create_task(backend.choose(exact)) for _ in range(4)]
            # As long as anything is asked for by id, however slow the machine is.
            while len(made) < 60 or not all(one.done() for one in choices):
                said = (Message("user", f"Say {len(made)}."),)
                ask = GenerateAsk("x", said, Sampling(max_tokens=2), top_logprobs=3)
                made.append(await backend.generate(ask, 1))
        # What is mixed up may be a choice too, where several are made at a time.
        is_whole = all(isinstance(one.result(), Choice) for one in choices)
        listed = [
            one.top.logprobs[:, 1:]
            for one in made
            if isinstance(one, Generation) and one.top is not None
        ]
        faulty = len(listed) < len(made) or any(np.isnan(row).any() for row in listed)
        assert (faulty or not is_whole) == (spoiled and "gate" in settings)


async def test_a_prompt_that_the_server_changes_is_no_score(connect):
    backend, _ = await connect(quirks=["double_bos"])
    scored = await backend.score(ScoreAsk("x", MESSAGES, (), "kege lafe"))
    assert isinstance(scored, Failure)
    assert (scored.cause, scored.permanent) == ("unparseable", True)


async def test_a_shifted_echo_shows_against_the_draw(connect):
    backend, _ = await connect(quirks=["shifted_echo"])
    made = await backend.generate(GenerateAsk("x", MESSAGES, Sampling()), 1)
    assert isinstance(made, Generation)
    assert made.token_ids is not None
    assert made.logprobs is not None
    scored = await backend.score(ScoreAsk("x", MESSAGES, tuple(made.token_ids.tolist())))
    assert isinstance(scored, Scored)
    assert np.abs(scored.logprobs - made.logprobs).max() > 0.1


async def test_numbers_after_the_temperature_show_against_the_score(connect):
    backend, _ = await connect(quirks=["after_temperature"])
    ask = GenerateAsk("x", MESSAGES, Sampling(temperature=0.5))
    made = await backend.generate(ask, 1)
    assert isinstance(made, Generation)
    assert made.token_ids is not None
    assert made.logprobs is not None
    scored = await backend.score(ScoreAsk("x", MESSAGES, tuple(made.token_ids.tolist())))
    assert isinstance(scored, Scored)
    np.testing.assert_allclose(made.logprobs, 2 * scored.logprobs, rtol=1e-5)


async def test_a_server_that_ignores_what_it_is_asked_is_no_vllm(connect):
    backend, _ = await connect(quirks=["ignored_fields"])
    stated = await backend.provenance()
    assert isinstance(stated, Failure)
    whole, _ = await connect()
    assert isinstance(await whole.provenance(), Provenance)


async def test_the_cap_of_alternatives_is_learnt_from_the_refusal(connect):
    backend, _ = await connect()
    refused = await backend.generate(GenerateAsk("x", MESSAGES, Sampling(), top_logprobs=40), 1)
    assert isinstance(refused, Failure)
    assert "at most 20" in refused.message
