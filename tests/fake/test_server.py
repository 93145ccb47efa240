"""The fake server as others rely on it: pure, ranked by quality, counted, and faulty on demand."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import contextmanager

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from tests.fake import judge, language
from tests.fake.main import running, serving
from tests.fake.rules import Case, Referee, Rule, Rules, load

CHAT = "/v1/chat/completions"


async def ask(url, path, body, **headers):
    async with (
        aiohttp.ClientSession() as session,
        session.post(url + path, json=body, headers=headers) as reply,
    ):
        return reply.status, await reply.json()


def chat(model="fake:0.5", text="hi", **fields):
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


@given(st.text() | st.lists(st.sampled_from(["bade", " kofu", "é", " x"])).map("".join))
def test_text_survives_its_tokens(text):
    text = text.encode("utf-8", "replace").decode()
    ids = language.encode(text)
    assert language.decode(ids) == text
    assert language.count(text) == len(ids)


async def test_the_same_request_gets_the_same_reply_from_every_server():
    body = chat(temperature=1, seed=3, logprobs=True, top_logprobs=2)
    async with running() as one, running() as other:
        assert await ask(one, CHAT, body) == await ask(other, CHAT, body)


async def test_seeds_matter_only_where_the_text_is_sampled():
    async with running() as url:
        sampled = [await ask(url, CHAT, chat(temperature=1, seed=seed)) for seed in (1, 2)]
        greedy = [await ask(url, CHAT, chat(temperature=0, seed=seed)) for seed in (1, 2)]
    assert sampled[0][1]["choices"] != sampled[1][1]["choices"]
    assert greedy[0][1]["choices"] == greedy[1][1]["choices"]


async def test_several_choices_differ():
    async with running() as url:
        _, reply = await ask(url, CHAT, chat(temperature=1, seed=1, n=2))
    first, second = (choice["message"]["content"] for choice in reply["choices"])
    assert first != second


async def test_better_models_win_more_judgments():
    names = ["[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]"]
    wins = 0.0
    async with running() as url:
        for number in range(20):
            answers = []
            for model in ("fake:0.8", "fake:0.3"):
                _, reply = await ask(url, CHAT, chat(model, f"question {number}", temperature=0))
                answers.append(reply["choices"][0]["message"]["content"])
            prompt = f"Answer A: {answers[0]}\nAnswer B: {answers[1]}"
            body = chat("fake:0.9", prompt, labels=[[name] for name in names])
            _, reply = await ask(url, "/v1/choose", body)
            wins += reply["logprobs"][0] > reply["logprobs"][4]
    assert wins >= 16


def test_ratings_follow_quality():
    ratings = tuple("123456789")
    good, poor = (judge.distribution(judge.Case(view, 1), ratings) for view in (0.8, -0.8))
    assert good.index(max(good)) == 7
    assert poor.index(max(poor)) == 1


async def test_judgments_can_be_even():
    async with running([{"judge_evenly": True}]) as url:
        _, reply = await ask(url, "/v1/choose", chat(labels=[["A"], ["B"]]))
    assert reply["logprobs"] == pytest.approx([-0.6931472, -0.6931472])


async def test_completions_score_like_chats():
    async with running() as url:
        _, drawn = await ask(url, CHAT, chat(logprobs=True, return_token_ids=True))
        _, prompt = await ask(url, "/tokenize", chat())
        choice = drawn["choices"][0]
        ids = prompt["tokens"] + choice["token_ids"]
        body = {"model": "fake:0.5", "prompt": ids, "max_tokens": 1, "prompt_logprobs": 0}
        _, scored = await ask(url, "/v1/completions", body)
    assert drawn["usage"]["prompt_tokens"] == prompt["count"]
    values = scored["choices"][0]["prompt_logprobs"][prompt["count"] :]
    assert [
        value[str(i)]["logprob"] for value, i in zip(values, choice["token_ids"], strict=True)
    ] == [entry["logprob"] for entry in choice["logprobs"]["content"]]


async def test_a_score_lists_the_best_of_what_a_chat_lists():
    async with running() as url:
        asked = chat(logprobs=True, top_logprobs=4, return_token_ids=True)
        _, drawn = await ask(url, CHAT, asked)
        choice = drawn["choices"][0]
        body = chat(token_ids=choice["token_ids"], top_logprobs=3)
        _, scored = await ask(url, "/v1/score", body)
        _, bare = await ask(url, "/v1/score", chat(token_ids=choice["token_ids"]))
    assert {k: v for k, v in scored.items() if k in bare} == bare
    assert set(scored) - set(bare) == {"top_token_ids", "top_logprobs"}
    for entry, ids, values in zip(
        choice["logprobs"]["content"],
        scored["top_token_ids"],
        scored["top_logprobs"],
        strict=True,
    ):
        best = sorted(entry["top_logprobs"], key=lambda listed: -listed["logprob"])[:3]
        assert ids == [listed["id"] for listed in best]
        assert values == [listed["logprob"] for listed in best]


async def test_faulty_numbers_reach_the_alternatives_of_a_score():
    async with running([{"fault": "null"}]) as url:
        _, scored = await ask(url, "/v1/score", chat(token_ids=[65], top_logprobs=2))
    assert (scored["logprobs"], scored["top_logprobs"]) == ([None], [[None, None]])


async def test_echo_gives_the_prompt_back():
    async with running() as url:
        body = {"model": "m", "prompt": "bade kofu", "max_tokens": 0, "echo": True, "logprobs": 0}
        _, reply = await ask(url, "/v1/completions", body)
    choice = reply["choices"][0]
    assert choice["text"] == "bade kofu"
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert len(choice["logprobs"]["tokens"]) == 2


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (CHAT, chat("unknown"), 404),
        (CHAT, chat(top_logprobs=5), 400),
        (CHAT, chat(logprobs=True, top_logprobs=99), 400),
        (CHAT, chat(max_tokens=0), 400),
        (CHAT, {"model": "fake:0.5"}, 400),
        (CHAT, {"model": "fake:0.5", "messages": 7}, 400),
        ("/v1/choose", chat(labels=[]), 400),
        ("/v1/score", chat(token_ids=[-1]), 400),
        ("/v1/score", chat(token_ids=[65], top_logprobs=-1), 400),
        ("/v1/embeddings", {}, 404),
    ],
)
async def test_what_a_real_server_refuses_is_refused(path, body, status):
    async with running(models=["fake:0.5"]) as url:
        assert (await ask(url, path, body))[0] == status


async def test_requests_without_the_key_are_refused():
    async with running(key="sk-1234") as url:
        assert (await ask(url, CHAT, chat()))[0] == 401
        assert (await ask(url, CHAT, chat(), Authorization="Bearer sk-1234"))[0] == 200


async def test_everything_is_counted():
    async with serving([{"fault": "500", "first": 1, "route": "chat"}]) as (url, server):
        for _ in range(3):
            await ask(url, CHAT, chat())
        await ask(url, "/v1/choose", chat(labels=[["A"]]))
        async with aiohttp.ClientSession() as session, session.get(url + "/fake/stats") as reply:
            stats = await reply.json()
    assert stats == server.stats()
    assert stats["total"] == 4
    assert stats["by_model"] == {"fake:0.5": {"chat": 3, "choose": 1}}
    assert (stats["distinct"], stats["answered"], stats["asked_again"]) == (2, 2, 1)
    assert stats["faults"] == {"500": 1}
    assert sorted(stats["requests"].values()) == [1, 3]


async def test_requests_in_flight_are_counted():
    async with serving([{"latency_s": 0.1}]) as (url, server):
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(ask(url, CHAT, chat(text=str(number))))
        assert server.stats()["max_in_flight"] == 5
        assert server.stats()["in_flight"] == 0


async def test_latency_grows_with_the_tokens():
    loop = asyncio.get_running_loop()
    async with running([{"latency_s": [0.01, 0.02], "latency_per_token_s": 0.01}]) as url:
        start = loop.time()
        await ask(url, CHAT, chat(max_tokens=10))
        assert 0.1 < loop.time() - start < 1.0


async def test_a_fixed_body_is_sent_as_it_is(tmp_path):
    path = tmp_path / "body.json"
    path.write_text('{"fixed": true}')
    async with running([{"route": "chat", "fixed": str(path)}]) as url:
        assert await ask(url, CHAT, chat()) == (200, {"fixed": True})


def struck(rule, cases):
    referee = Referee(Rules(rules=(rule,)))
    return [referee.judge(case).fault is not None for case in cases]


def cases(n, *, attempt=1):
    return [Case("m", "chat", str(number), attempt) for number in range(n)]


def test_a_fault_strikes_each_kth_request():
    assert struck(Rule(fault="500", every=3), cases(6)) == [False, False, True] * 2


def test_a_fault_strikes_the_first_attempts():
    same = [Case("m", "chat", "x", attempt) for attempt in (1, 2, 3)]
    assert struck(Rule(fault="500", first=2), same) == [True, True, False]


def test_a_fault_strikes_after_so_many_requests():
    assert struck(Rule(fault="reset", after=2), cases(4)) == [False, False, True, True]


def test_a_fault_strikes_by_chance_but_the_same_each_time():
    rule = Rule(fault="500", probability=0.3)
    once = struck(rule, cases(1000))
    assert once == struck(rule, cases(1000))
    assert 240 < sum(once) < 360
    assert once != struck(rule, cases(1000, attempt=2))


def test_a_sticky_fault_does_not_depend_on_the_attempt():
    rule = Rule(fault="500", probability=0.5, sticky=True)
    assert struck(rule, cases(50)) == struck(rule, cases(50, attempt=2))


def test_rules_are_for_models_and_routes():
    rule = Rule(fault="500", model="big*", route="choose")
    seen = [
        Case("big-1", "choose", "", 1),
        Case("big-1", "chat", "", 1),
        Case("a", "choose", "", 1),
    ]
    assert struck(rule, seen) == [True, False, False]


@pytest.mark.parametrize(
    "given",
    [None, "null", "[]", "{}", [], {"rules": [{"fault": "reset"}]}, '[{"latency_s":[0,1]}]'],
)
def test_rules_come_in_many_forms(given):
    assert isinstance(load(given), Rules)


@pytest.mark.parametrize(
    "given", ["{", '{"unknown": 1}', [{"fault": "typo"}], "/no/such/file", [{"every": "x"}]]
)
def test_malformed_rules_are_told(given):
    with pytest.raises(UsageError, match="rules of the fake server"):
        load(given)


@contextmanager
def process(*arguments, **environment):
    command = [sys.executable, "-m", "tests.fake.main", *arguments]
    server = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    try:
        assert server.stderr is not None
        said = server.stderr.readline()
        yield server, said.removeprefix("ready ").strip()
    finally:
        server.kill()
        server.wait()
        if server.stderr is not None:
            server.stderr.close()


async def test_as_a_process_it_logs_requests_and_ends_on_sigterm(tmp_path):
    log = tmp_path / "requests.log"
    with process("--model", "m", "--log", str(log), ORCHESTRATOR_SERVER_KEY="sk-1") as (
        server,
        url,
    ):
        assert (await ask(url, CHAT, chat("m")))[0] == 401
        for _ in range(2):
            assert (await ask(url, CHAT, chat("m"), Authorization="Bearer sk-1"))[0] == 200
        server.terminate()
        assert server.wait(timeout=60) == 0
    first, second = (line.split("\t") for line in log.read_text().splitlines())
    assert first[1:] == ["chat", "m", "1"]
    assert second == [first[0], "chat", "m", "2"]


async def test_as_a_process_it_can_die_of_a_fault():
    rules = json.dumps([{"fault": "exit", "after": 1}])
    with process("--rules", rules) as (server, url):
        assert (await ask(url, CHAT, chat()))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await ask(url, CHAT, chat())
        assert server.wait(timeout=60) == 1


def test_malformed_rules_end_the_process_with_words():
    command = [sys.executable, "-m", "tests.fake.main", "--rules", "{"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    assert "rules of the fake server" in ended.stderr
    assert "Traceback" not in ended.stderr
