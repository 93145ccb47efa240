"""A prompt's beginning is computed once: for both orders of a pair, all labels and all scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from launch.embedded import routes
from launch.embedded.engine import Engine, Settings
from launch.embedded.jobs import Job
from launch.embedded.prefill import BLOCK
from launch.embedded.protocol import ChooseRequest, ScoreRequest
from launch.embedded.runner import Chunk, Prefilled, Runner
from launch.embedded.served import Served
from tests.launch.embedded.client import Work, begun, run

TASK = "Read the question and two answers, and say which of the two is better. " * 2
FIRST, SECOND = "It is the first day of the week.", "Nobody has ever asked me that before."
LABELS = [["[[>>]]"], ["[[>]]", " [[>]]"], ["[[=]]"], ["[[<]]"], ["[[<<]]"]]


class Counting(Runner):
    """Counts the tokens that pass through the model before anything is drawn."""

    n_computed = 0

    def prefill(self, chunks: Sequence[Chunk]) -> Prefilled:
        self.n_computed += sum(len(chunk.ids) for chunk in chunks)
        return super().prefill(chunks)


@pytest.fixture
def counting(bos: Served) -> Iterator[tuple[Served, Counting]]:
    runner = Counting(bos.runner.model)
    engine = Engine(runner, bos.tokens, Settings(max_len=512))
    engine.start()
    runner.n_computed = 0
    yield replace(bos, runner=runner, engine=engine), runner
    engine.close()


def judgment(served: Served, a: str, b: str, labels: list[list[str]]) -> Work:
    text = f"{TASK}A: {a} B: {b}"
    request = ChooseRequest(messages=[{"role": "user", "content": text}], labels=labels)
    return begun(routes.choose, request, served)


def score(served: Served, text: str) -> Work:
    message = {"role": "user", "content": TASK + FIRST}
    return begun(routes.score, ScoreRequest(messages=[message], text=text), served)


def shared(one: Job, other: Job) -> int:
    """Tokens of the whole blocks with which two prompts begin."""
    pairs = zip(one.ids[: one.n_prompt], other.ids[: other.n_prompt], strict=False)
    n = next((place for place, (a, b) in enumerate(pairs) if a != b), other.n_prompt)
    return n // BLOCK * BLOCK


def test_both_orders_compute_their_common_text_once_and_labels_only_their_own_tokens(
    counting: tuple[Served, Counting],
) -> None:
    served, runner = counting
    orders = [judgment(served, a, b, LABELS) for a, b in ((FIRST, SECOND), (SECOND, FIRST))]
    one, other = (order.job for order in orders)
    run(served.engine, one, other)
    common = shared(one, other)
    labels = sum(len(order.job.ids) - order.job.n_prompt for order in orders)
    assert common >= 2 * BLOCK
    assert labels > 0
    assert runner.n_computed == one.n_prompt + other.n_prompt - common + labels
    totals = served.engine.totals
    assert totals["prompt_tokens"] - totals["cached_tokens"] == runner.n_computed - labels


def test_other_labels_of_a_known_prompt_compute_less_than_a_block_of_it(
    counting: tuple[Served, Counting],
) -> None:
    served, runner = counting
    run(served.engine, judgment(served, FIRST, SECOND, LABELS[:2]).job)
    runner.n_computed = 0
    again = judgment(served, FIRST, SECOND, LABELS)
    run(served.engine, again.job)
    assert runner.n_computed <= BLOCK + len(again.job.ids) - again.job.n_prompt


def test_revisions_of_an_answer_share_their_prompt(counting: tuple[Served, Counting]) -> None:
    served, runner = counting
    texts = [FIRST, SECOND, "No.", f"{SECOND} {FIRST}"]
    jobs = [score(served, text).job for text in texts]
    run(served.engine, *jobs)
    n_prompt = jobs[0].n_prompt
    known = (n_prompt - 1) // BLOCK * BLOCK
    assert known >= 2 * BLOCK
    assert runner.n_computed == sum(len(job.ids) for job in jobs) - 3 * known
    assert sorted(job.n_cached for job in jobs) == [0, known, known, known]


def test_a_cache_without_room_changes_no_number(counting: tuple[Served, Counting]) -> None:
    served, _ = counting
    warm = [judgment(served, FIRST, SECOND, LABELS) for _ in range(2)]
    for order in warm:
        run(served.engine, order.job)
    cold_engine = Engine(served.runner, served.tokens, Settings(max_len=512, prefix_bytes=0))
    cold_engine.start()
    cold = judgment(served, FIRST, SECOND, LABELS)
    run(cold_engine, cold.job)
    cold_engine.close()
    assert warm[1].job.n_cached > 0
    assert cold.job.n_cached == 0
    assert warm[1].reply()["logprobs"] == pytest.approx(cold.reply()["logprobs"], abs=1e-4)
