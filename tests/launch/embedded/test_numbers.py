"""Every number is that of a direct float32 pass, whoever shares the batch."""

from __future__ import annotations

import random

import pytest
import torch

from launch.embedded import routes
from launch.embedded.engine import Engine, Settings
from launch.embedded.jobs import Answer, Draw, Forced, Job, Stop
from launch.embedded.protocol import ChooseRequest, Prefix, ScoreRequest
from launch.embedded.served import Served
from tests.launch.embedded.client import USER, Work, begun, drawn, forced, run, taken

CLOSE = pytest.approx
LABELS = [["[[>>]]"], ["[[>]]", " [[>]]"], ["[[=]]"], ["[[<]]"], ["[[<<]]"]]


def text_job(served: Served, length: int, n_tokens: int, **draw: float | int) -> Job:
    rng = random.Random(length)
    ids = [rng.randrange(4, 320) for _ in range(length)]
    answer = Answer(Draw(**draw), Stop(n_tokens))  # type: ignore[arg-type]
    return Job(ids, length, answer=answer, reuse=length - 1)


def check_against_direct(served: Served, job: Job) -> None:
    answer = drawn(job)
    expected = taken(forced(served, [*job.ids, *answer.ids]), job.n_prompt, answer.ids)
    assert answer.logprobs == CLOSE(expected, abs=1e-4)


def test_drawn_logprobs_equal_a_direct_pass(served: Served) -> None:
    job = text_job(served, 17, 40, temperature=1.3, key=5, top_p=0.9)
    run(served.engine, job)
    check_against_direct(served, job)


def test_a_row_does_not_depend_on_its_companions(served: Served) -> None:
    alone = text_job(served, 33, 30, temperature=0)
    run(served.engine, alone)
    among = text_job(served, 33, 30, temperature=0)
    others = [text_job(served, 5 + 14 * i, 10 + 3 * i, temperature=1, key=i) for i in range(20)]
    run(served.engine, *others[:10], among, *others[10:])
    assert drawn(among).ids == drawn(alone).ids
    assert drawn(among).logprobs == CLOSE(drawn(alone).logprobs, abs=1e-4)
    for job in others:
        check_against_direct(served, job)


def test_rows_that_outgrow_their_pool_keep_their_numbers(served: Served) -> None:
    jobs = [text_job(served, 230 + i, 60, temperature=1, key=i) for i in range(3)]
    run(served.engine, *jobs)
    for job in jobs:
        check_against_direct(served, job)


def test_a_prompt_cut_to_chunks_keeps_its_numbers(bos: Served) -> None:
    engine = Engine(bos.runner, bos.tokens, Settings(max_len=512, prefill_tokens=16))
    engine.start()
    jobs = [text_job(bos, length, 5, temperature=1, key=length) for length in (70, 9, 100, 33)]
    for job in jobs:
        job.reader = Forced(list(range(job.n_prompt - 1)), list(job.ids[1:]))
        job.reuse = 0
    run(engine, *jobs)
    engine.close()
    for job in jobs:
        check_against_direct(bos, job)
        expected = taken(forced(bos, list(job.ids)), 1, list(job.ids[1:]))
        assert isinstance(job.reader, Forced)
        assert job.reader.logprobs == CLOSE(expected, abs=1e-4)


def test_a_known_head_keeps_the_numbers(served: Served) -> None:
    first, second = (text_job(served, 150, 8, temperature=0) for _ in range(2))
    run(served.engine, first)
    second.ids = [*second.ids[:100], *[7] * 50]
    run(served.engine, second)
    assert second.n_cached == 96
    check_against_direct(served, second)


def score(served: Served, **fields: object) -> Work:
    scoring = begun(routes.score, ScoreRequest(messages=USER, **fields), served)  # type: ignore[arg-type]
    run(served.engine, scoring.job)
    return scoring


def choose(served: Served, labels: list[list[str]], prefix: Prefix | None = None) -> Work:
    choosing = begun(
        routes.choose, ChooseRequest(messages=USER, labels=labels, prefix=prefix), served
    )
    run(served.engine, choosing.job)
    return choosing


def prompt(served: Served) -> list[int]:
    text = served.render(ScoreRequest(messages=USER))
    return served.tokens.encode(text)


def test_score_equals_a_direct_pass(served: Served) -> None:
    ids = [70, 81, 62, 9, 3, 14]
    found = score(served, token_ids=ids).reply()
    expected = taken(forced(served, [*prompt(served), *ids]), len(prompt(served)), ids)
    assert found["logprobs"] == CLOSE(expected, abs=1e-4)
    assert found["usage"]["prompt_tokens"] == len(prompt(served))


def test_a_score_lists_the_most_likely_tokens_of_a_direct_pass(served: Served) -> None:
    ids = [70, 81, 62, 9, 3, 14]
    found = score(served, token_ids=ids, top_logprobs=4).reply()
    rows = forced(served, [*prompt(served), *ids])[len(prompt(served)) - 1 : -1]
    assert len(found["top_token_ids"]) == len(found["top_logprobs"]) == len(ids)
    listed = zip(rows, found["top_token_ids"], found["top_logprobs"], strict=True)
    for row, tokens, values in listed:
        assert len(set(tokens)) == 4
        assert values == sorted(values, reverse=True)
        assert values == CLOSE(row.topk(4).values.tolist(), abs=1e-4)
        assert values == CLOSE(row[tokens].tolist(), abs=1e-4)


def test_alternatives_do_not_change_a_score(served: Served) -> None:
    ids = [70, 81, 62]
    bare = score(served, token_ids=ids, top_logprobs=0)
    listed = score(served, token_ids=ids, top_logprobs=served.runner.vocabulary).reply()
    assert listed["logprobs"] == CLOSE(bare.reply()["logprobs"], abs=1e-4)
    assert set(listed) - set(bare.reply()) == {"top_token_ids", "top_logprobs"}
    assert isinstance(bare.job.reader, Forced)
    assert bare.job.reader.top == []
    for token, value, tokens, values in zip(
        ids, listed["logprobs"], listed["top_token_ids"], listed["top_logprobs"], strict=True
    ):
        assert sorted(tokens) == list(range(served.runner.vocabulary))
        assert values[tokens.index(token)] == CLOSE(value, abs=1e-5)


def test_a_score_cut_to_chunks_keeps_its_alternatives(bos: Served) -> None:
    engine = Engine(bos.runner, bos.tokens, Settings(max_len=512, prefill_tokens=16))
    engine.start()
    ids = [5 + 7 * i % 300 for i in range(50)]
    request = ScoreRequest(messages=USER, token_ids=ids, top_logprobs=3)
    scoring = begun(routes.score, request, bos)
    run(engine, scoring.job)
    engine.close()
    rows = forced(bos, [*prompt(bos), *ids])[len(prompt(bos)) - 1 : -1]
    values = torch.tensor(scoring.reply()["top_logprobs"])
    assert torch.allclose(values, rows.topk(3).values, atol=1e-4)


def test_score_of_no_tokens_has_no_alternatives(served: Served) -> None:
    found = score(served, token_ids=[], top_logprobs=2).reply()
    assert (found["top_token_ids"], found["top_logprobs"]) == ([], [])


def test_score_of_no_tokens_is_empty(served: Served) -> None:
    assert score(served, token_ids=[]).reply()["logprobs"] == []


def test_score_of_a_text_gives_its_ids(served: Served) -> None:
    found = score(served, text="the answer is 5").reply()
    assert served.tokens.decode(found["token_ids"]) == "the answer is 5"
    assert found["boundary"] == "separate"


@pytest.mark.parametrize("prefix", [None, Prefix(text="I think 日本"), Prefix(token_ids=[70, 80])])
def test_choose_equals_whole_strings(served: Served, prefix: Prefix | None) -> None:
    choosing = choose(served, LABELS, prefix)
    reply = choosing.reply()
    for group, values in zip(reply["paths"], reply["spellings"], strict=True):
        for path, value in zip(group, values, strict=True):
            whole = score(served, token_ids=list(path), prefix=prefix).reply()
            assert value == CLOSE(sum(whole["logprobs"]), abs=1e-4)


def test_spellings_are_summed(served: Served) -> None:
    reply = choose(served, LABELS).reply()
    both = torch.tensor(reply["spellings"][1], dtype=torch.float64)
    assert reply["logprobs"][1] == CLOSE(float(both.logsumexp(0)), abs=1e-12)


def test_one_token_labels_share_the_whole_distribution(served: Served) -> None:
    letters = [[letter] for letter in "ABCDE"]
    reply = choose(served, letters).reply()
    row = forced(served, prompt(served))[-1]
    expected = [float(row[path[0]]) for (path,) in reply["paths"]]
    assert reply["logprobs"] == CLOSE(expected, abs=1e-4)


def test_labels_that_begin_alike_are_closed_by_the_end_of_the_turn(served: Served) -> None:
    reply = choose(served, [["5"], ["5 0"], ["A"]]).reply()
    end = served.tokens.end_of_turn
    assert [paths[0][-1] == end for paths in reply["paths"]] == [True, True, False]
    for paths, value in zip(reply["paths"], reply["logprobs"], strict=True):
        whole = score(served, token_ids=list(paths[0])).reply()
        assert value == CLOSE(sum(whole["logprobs"]), abs=1e-4)


def test_choices_together_equal_choices_alone(served: Served) -> None:
    requests = [
        ChooseRequest(messages=[{"role": "user", "content": "word " * n}], labels=LABELS)
        for n in range(1, 60, 7)
    ]
    apart = [begun(routes.choose, request, served) for request in requests]
    for choosing in apart:
        run(served.engine, choosing.job)
    joint = [begun(routes.choose, request, served) for request in requests]
    run(served.engine, *(choosing.job for choosing in joint))
    for one, other in zip(apart, joint, strict=True):
        assert one.reply()["logprobs"] == CLOSE(other.reply()["logprobs"], abs=1e-4)


def test_a_choice_about_a_known_head_keeps_its_numbers(served: Served) -> None:
    messages = [{"role": "user", "content": "the judge reads two answers " * 12}]
    request = ChooseRequest(messages=messages, labels=LABELS)
    first, second = begun(routes.choose, request, served), begun(routes.choose, request, served)
    run(served.engine, first.job)
    run(served.engine, second.job)
    assert second.job.n_cached >= 32
    assert second.reply()["logprobs"] == CLOSE(first.reply()["logprobs"], abs=1e-4)
