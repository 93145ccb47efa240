"""Another model shows in the log-probabilities of several prompts, a server's noise does not."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.probing.record import (  # fmt: skip
    FLOOR,
    TIMES,
    ProbeRecord,
    Seen,
    compare,
    differences,
    limit,
    of_chat,
    of_text,
)
from orchestrator.probing.replies import chat as read
from orchestrator.records import Generation
from tests.probing.bodies import chat


def model(rng, n_prompts=6, n_tokens=8, k=5):
    """Return some model's answers to every prompt."""
    return [
        Seen(
            tuple("t0" for _ in range(n_tokens)),
            tuple(
                {f"t{i}": float(v) for i, v in enumerate(np.log(rng.dirichlet(np.ones(k + 1)))[:k])}
                for _ in range(n_tokens)
            ),
        )
        for _ in range(n_prompts)
    ]  # fmt: skip


def shaken(seen, sd, rng):
    return [
        msgspec.structs.replace(
            one,
            listed=tuple(
                {name: value + sd * rng.standard_normal() for name, value in row.items()}
                for row in one.listed
            ),
        )
        for one in seen
    ]


def record(seen, noise=None):
    return ProbeRecord(backend="k", model="m", seen=tuple(seen), noise=noise)


def test_the_same_answers_do_not_differ():
    seen = model(np.random.default_rng(1))
    assert compare(seen, seen) == (0.0, 6 * 8 * 5)


def test_the_mean_is_over_every_token_that_one_of_them_lists():
    before = [Seen(("a",), ({"a": -0.5, "b": -2.0},))]
    # "b" is no longer listed: it is below -3, that is by 1 at least; "c" was below -2.
    now = [Seen(("a",), ({"a": -0.4, "c": -3.0},))]
    found = compare(before, now)
    assert found is not None
    assert found[1] == 3
    assert found[0] == pytest.approx((0.1 + 1.0 + 0.0) / 3)


def test_what_comes_after_another_token_was_drawn_is_no_longer_the_same_question():
    before = [Seen(("a", "a"), ({"a": -0.6, "b": -0.8}, {"a": -1.0}))]
    now = [Seen(("b", "a"), ({"a": -0.7, "b": -0.7}, {"a": -9.0}))]
    found = compare(before, now)
    assert found is not None
    assert found[1] == 2
    assert found[0] == pytest.approx(0.1)


def test_nothing_to_compare_is_no_difference():
    assert compare([], model(np.random.default_rng(1))) is None
    assert compare([Seen()], [Seen()]) is None


@pytest.mark.parametrize("sd", [1e-5, 0.003, 0.03, 0.1])
def test_the_measured_noise_of_a_server_is_no_other_model(sd):
    alarms = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        truth = model(rng)
        first, beside, later = (shaken(truth, sd, rng) for _ in range(3))
        noise = compare(first, beside)
        assert noise is not None
        alarms += bool(differences(record(first, noise[0]), record(later)))
    assert alarms == 0


@pytest.mark.parametrize("sd", [1e-5, 0.003, 0.01])
def test_a_model_that_differs_by_a_tenth_of_a_nat_is_noticed(sd):
    for seed in range(50):
        rng = np.random.default_rng(seed)
        truth = model(rng)
        first, beside = shaken(truth, sd, rng), shaken(truth, sd, rng)
        other = shaken(shaken(truth, 0.15, rng), sd, rng)
        noise = compare(first, beside)
        assert noise is not None
        (said,) = differences(record(first, noise[0]), record(other))
        assert "nats on average" in said


@given(st.floats(0, 10))
def test_the_limit_is_some_times_the_noise_and_never_below_the_floor(noise):
    assert limit(noise) == max(FLOOR, TIMES * noise)


def test_a_reply_is_kept_without_the_texts_of_its_tokens():
    seen = of_chat(read(chat(("secret", {"secret": -0.1, "b": -3.0, "c": -math.inf}))))
    assert "secret" not in str(msgspec.to_builtins(seen))
    assert [sorted(row.values()) for row in seen.listed] == [[-3.0, -0.1]]
    assert of_chat(None) == Seen()


def test_a_text_without_alternatives_is_compared_by_its_own_tokens():
    drawn = Generation(
        "x", "stop", token_ids=np.array([7, 9], np.int32), logprobs=np.array([-1, -2], np.float32)
    )
    assert of_text(drawn) == Seen(("7", "9"), ({"7": -1.0}, {"9": -2.0}))
    assert of_text(Generation("x", "stop")) == Seen()
