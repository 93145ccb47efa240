"""Whatever a server sends, a back-end makes an outcome of it that can be true, or a failure."""

import json
import math
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from orchestrator.backend import Provenance, ServerLoad
from orchestrator.records import Choice, Failure, Generation, Outcome, Scored, TopLogprobs
from orchestrator.store import codec
from tests.fuzz import served
from tests.fuzz.fuzzing import fuzz, replies

ABOUT_THE_SERVER = {"provenance", "load"}
MOST = 2**63
ROUNDING = 0.01
MOST_MASS = 1.03


def check_top(top: TopLogprobs | None, n: int, k: int, n_names: int = 0) -> None:
    """Ids below -1 are places in the texts by which a server names tokens."""
    if top is None:
        return
    assert top.token_ids.shape == top.logprobs.shape == (n, k)
    assert top.token_ids.min(initial=0) >= -1 - n_names
    assert not (top.logprobs > ROUNDING).any()
    known = np.where(np.isnan(top.logprobs), -np.inf, top.logprobs)
    assert (known[:, :-1] >= known[:, 1:]).all()
    assert (np.exp(known).sum(axis=1) <= MOST_MASS).all()
    for row in top.token_ids.tolist():
        named = [one for one in row if one >= 0]
        assert len(named) == len(set(named))


def check_generation(made: Generation) -> None:
    if made.logprobs is None:
        assert made.top is None
        return
    n = len(made.logprobs)
    assert not (made.logprobs > ROUNDING).any()
    assert made.token_ids is None or (len(made.token_ids) == n and (made.token_ids >= 0).all())
    check_top(made.top, n, 2, len(made.names))
    check_drawn(made)
    if made.offsets is not None:
        assert len(made.offsets) == n
        assert ((made.offsets >= 0) & (made.offsets <= len(made.text))).all()


def check_drawn(made: Generation) -> None:
    """A drawn token has its number among the alternatives, or is less likely than all of them."""
    top, drawn = made.top, made.logprobs
    if top is None or drawn is None or made.token_ids is None:
        return
    for at, token in enumerate(made.token_ids.tolist()):
        listed = top.logprobs[at][top.token_ids[at] == token]
        own = drawn[at]
        # A zero is below what the server's numbers hold, and no number is no claim.
        if len(listed) and math.isfinite(own) and np.isfinite(listed).all():
            assert np.abs(listed - own).max() <= 2 * ROUNDING


def check_scored(scored: Scored) -> None:
    n = len(scored.logprobs)
    assert len(scored.token_ids) == n
    assert (scored.token_ids >= 0).all()
    assert not (scored.logprobs > ROUNDING).any()
    check_top(scored.top, n, 2)


def check_choice(chosen: Choice) -> None:
    assert len(chosen.logprobs) == len(chosen.upper) in {2, 3, 5}
    for value, upper in zip(chosen.logprobs, chosen.upper, strict=True):
        assert upper <= 0
        assert math.isnan(value) or value <= upper + 1e-6


def check_failure(failure: Failure) -> None:
    assert failure.message
    assert len(failure.message) <= 1000
    assert failure.message.isprintable()
    failure.message.encode()
    assert served.KEY not in failure.message


def check_counts(*counts: int | None) -> None:
    for count in counts:
        assert count is None or 0 <= count < MOST


def check_answer(kind: str, call: str, at: int, body: bytes) -> None:
    """Of the server itself it may know nothing; what it was asked, it answers."""
    found = served.answer(kind, call, at, body)
    assert found is not None or call in ABOUT_THE_SERVER
    check(found)


def check(found: served.Answer) -> None:
    """It is aligned, in order, no probability is above one, and the store takes and returns it."""
    match found:
        case Generation():
            check_generation(found)
            check_counts(found.n_completion_tokens, found.n_thinking_tokens)
        case Scored():
            check_scored(found)
        case Choice():
            check_choice(found)
        case Failure():
            check_failure(found)
        case Provenance():
            json.dumps([found.version, found.fingerprint], ensure_ascii=False).encode()
        case ServerLoad():
            check_counts(found.running, found.waiting, found.prefix_queries, found.prefix_hits)
            check_counts(0 if found.kv_cache is None else math.floor(found.kv_cache))
        case _:
            assert found is None
    if isinstance(found, Generation | Scored | Choice | Failure):
        check_stored(found)


def check_stored(outcome: Outcome | Failure) -> None:
    if isinstance(outcome, Generation | Scored | Choice):
        check_counts(outcome.n_prompt_tokens, outcome.n_cached_tokens)
    stored = codec.encode(outcome)
    assert codec.encode(codec.decode(*stored)) == stored


@st.composite
def wrong(draw: st.DrawFn) -> tuple[str, str, int, bytes]:
    """A back-end, a call, and which of its replies went wrong in which way."""
    kind = draw(st.sampled_from(list(served.KINDS)))
    call = draw(st.sampled_from([name for name, kept in served.recorded(kind).items() if kept]))
    bodies = [reply.body for reply in served.recorded(kind)[call].values()]
    # What a call is about comes last, after prompts and labels were turned into tokens.
    at = draw(st.sampled_from([len(bodies) - 1, *range(len(bodies))]))
    body = bodies[at]
    return kind, call, at, draw(replies((body,)) if body.startswith((b"{", b"[")) else cut(body))


def cut(body: bytes) -> st.SearchStrategy[bytes]:
    """Figures with other numbers."""
    odd = st.sampled_from(
        [b"-1", b"NaN", b"1e999", b"9" * 400, b"1.2.3", b"0x1", b"-1e300", b"+Inf"]
    )
    return odd.map(lambda number: body.replace(b" 0", b" " + number)) | st.binary(max_size=40)


@pytest.mark.parametrize("kind", served.KINDS)
def test_the_recording_that_goes_wrong_is_right_before(kind):
    for call, kept in served.recorded(kind).items():
        if kept and call not in ABOUT_THE_SERVER:
            check_answer(kind, call, -1, b"")
    assert isinstance(served.answer(kind, "draw", -1, b""), Generation)
    assert isinstance(served.answer(kind, "choice", -1, b""), Choice)


@fuzz(600, case=wrong())
def test_a_reply_gone_wrong_is_a_failure_or_can_be_true(case):
    check_answer(*case)


def of_other_lengths(reply: Any) -> Iterator[bytes]:
    """The reply with each list in it empty, without its last entry, or with that one twice."""
    for path in lists_in(reply):
        for n_kept, n_again in ((0, 0), (-1, 0), (None, -1)):
            changed = deepcopy(reply)
            found = changed
            for key in path:
                found = found[key]
            found[:] = found[:n_kept] + (found[n_again:] if n_again else [])
            yield json.dumps(changed).encode()


def lists_in(reply: Any, *path: int | str) -> Iterator[tuple[int | str, ...]]:
    if isinstance(reply, list):
        yield path
    # Those further on in a list are like its first ones.
    keys = reply if isinstance(reply, dict) else range(min(len(reply), 2))
    for key in keys:
        if isinstance(reply[key], dict | list):
            yield from lists_in(reply[key], *path, key)


@pytest.mark.parametrize("kind", served.KINDS)
def test_a_list_of_another_length_is_a_failure_or_can_be_true(kind):
    for call, kept in served.recorded(kind).items():
        for at, reply in enumerate(kept.values()):
            if reply.body.startswith((b"{", b"[")):
                for body in of_other_lengths(json.loads(reply.body)):
                    check_answer(kind, call, at, body)
