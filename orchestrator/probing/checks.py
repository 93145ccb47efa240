"""Findings from replies: log-probabilities, thinking, what chat templates put into prompts.

Each function answers one question of docs/servers.md and takes only what it needs.
"""

import datetime as dt
import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.probing.record import (
    BAD,
    GOOD,
    NO,
    WARNING,
    YES,
    Finding,
    failed,
    limit,
    refuses,
    unknown,
)
from orchestrator.probing.replies import Chat, HttpReply, chat, listed
from orchestrator.records import Failure, Generation, Scored
from orchestrator.wire.rulings import most_in

_Array = NDArray[np.float64]

# Thinking of a reasoning model that stands in a text: marks by which models set it apart.
#
# Where neither the server nor the recipe (`thinking`) takes it out, a judge reads it as part of the
# answer.


_TAGS: Final = ("think", "thinking", "thought", "thoughts", "reasoning", "seed:think")
OPENING: Final = (
    *(f"<{tag}>" for tag in _TAGS), "[THINK]", "◁think▷", "<|START_THINKING|>",
    "<|begin_of_thought|>", "<|channel|>", "<|channel>thought", "<unused94>thought",
    "Here is my thought process:", "<|inner_prefix|>",
)  # fmt: skip
"""Marks that begin a text of which the first part is thinking."""
CLOSING: Final = (
    *(f"</{tag}>" for tag in _TAGS), "[/THINK]", "◁/think▷", "<|END_THINKING|>",
    "<|end_of_thought|>", "<|channel|>", "<channel|>", "assistantfinal", "<|inner_suffix|>",
)  # fmt: skip
"""Marks that end it, wherever they stand: the prompt may have opened it."""
REMEDY: Final = (
    'set `thinking` of the model to the mark that ends it (such as `thinking: {end: "</think>"}`), '
    "or start its server with a reasoning parser"
)
"""What keeps the thinking from judges."""


def mark_in(text: str) -> str:
    """A mark of thinking in a text; empty where there is none."""
    start = text.lstrip()
    opened = (mark for mark in OPENING if start.startswith(mark))
    return next(opened, next((mark for mark in CLOSING if mark in text), ""))


ASKED_FOR_CAP: Final = 10_000
"""Alternatives asked for to learn how many there may be."""

EXACT: Final = 1e-3
"""Largest difference of two passes of one model in float32, with room; usually below 1e-5."""
NOISE: Final = 0.05
"""The same in bfloat16, where prefill and decoding round differently."""
WRONG: Final = 0.5
"""From here on it is no rounding of any precision."""
_ENOUGH: Final = 20
_CERTAIN: Final = -0.5
_SHIFTED: Final = 10.0


def logprobs(reply: HttpReply, asked: int) -> list[Finding]:
    """Check that log-probabilities and ids come with a text drawn by a chat completion.

    Args:
        reply: To a greedy request of one token with `asked` alternatives and `return_token_ids`.
        asked: Alternatives asked for.
    """
    found = chat(reply)
    if found is None:
        why = f"the chat route answers {reply.status}: {reply.words}"
        is_refused = reply.failure is not None and refuses(reply.failure)
        answer = Finding("chat", NO, BAD, why) if is_refused else unknown("chat", why)
        return [answer, unknown("logprobs", "no chat completion came")]
    findings = [Finding("chat", YES, GOOD, "chat completions come")]
    position = found.positions[0] if found.positions else None
    if position is None or position.logprob is None:
        remedy = "a server that gives log-probabilities: vLLM, SGLang, llama-server, embedded"
        said = "no log-probabilities come with a text"
        return [*findings, Finding("logprobs", NO, BAD, said, remedy)]
    n = len(position.top_logprobs)
    few = f", {n} alternatives where {asked} were asked for" if n < asked else ""
    state = WARNING if few else GOOD
    findings.append(Finding("logprobs", YES, state, f"of each drawn token{few}"))
    if found.token_ids is not None or position.id is not None:
        ids = Finding("token_ids", YES, GOOD, "the ids of drawn tokens are given")
    else:
        said = "token ids are not given: answers are scored by their text, tokenised anew"
        ids = Finding("token_ids", NO, WARNING, said)
    values = [one.logprob for one in position.top_logprobs if one.logprob is not None]
    is_sorted = all(left >= right for left, right in pairwise(values))
    first = [one.token for one in position.top_logprobs[:1]] == [position.token]
    order = "best first" if is_sorted else "in no order"
    said = f"alternatives are listed {order}{', the drawn token at the head' if first else ''}"
    drawn = Finding("order", "sorted" if is_sorted else "unsorted", GOOD, said)
    return [*findings, ids, drawn]


def cap(reply: HttpReply) -> Finding:
    """Find the most alternatives that a server lists, by the reply to `ASKED_FOR_CAP`."""
    found = chat(reply)
    if found is not None and found.positions:
        n = len(found.positions[0].top_logprobs)
        said = f"up to {n:,} alternatives of a token are listed (all there are, or its cap)"
        return Finding("cap", str(n), GOOD, said)
    most = most_in(reply.words) if reply.status in {400, 413, 422} else None
    if most is None:
        return unknown("cap", f"{ASKED_FOR_CAP:,} alternatives: {reply.status} {reply.words}")
    state = GOOD if most >= _ENOUGH else WARNING
    said = f"at most {most} alternatives of a token"
    return Finding("cap", str(most), state, said, "vLLM: --max-logprobs; TGI: --max-top-n-tokens")


def generates(drawn: Generation | Failure) -> Finding:
    """Check that the back-end draws texts in the way that methods ask for them."""
    if isinstance(drawn, Failure):
        # What fails for the moment is tried again by the run.
        return failed("generate", drawn, BAD)
    said = f"texts come ({drawn.n_completion_tokens} tokens, {drawn.finish_reason})"
    if mark := mark_in(drawn.text):
        shown = f"{said}, with the model's thinking in them ({mark}), which judges would read"
        return Finding("generate", YES, WARNING, f"{shown}; {REMEDY}")
    return Finding("generate", YES, GOOD, said)


def noise(mean: float) -> Finding:
    """Report the noise of a server's numbers, and the least change that is noticed later.

    Args:
        mean: Mean absolute difference of ln p, asked alone and together, nats.
    """
    said = (
        f"the same prompts differ by {mean:.2g} nats on average, alone and together; a change "
        f"above {limit(mean):.2g} is noticed later"
    )
    return Finding("noise", YES, GOOD, said, number=mean)


def tells(drawn: Generation) -> bool:
    """True where a wrong score of a text would show: not where all its tokens are certain."""
    logprobs = drawn.logprobs
    return logprobs is not None and bool((logprobs < _CERTAIN).sum() > 1)


def consistency(pairs: Sequence[tuple[Generation, Scored | Failure]]) -> Finding:
    """Compare scoring with generation: max |difference| of ln p over the same tokens.

    The most valuable question: a shift by one, a missing or doubled BOS, values after temperature,
    and bugs of speculation or of waking up all show here.

    Args:
        pairs: Texts with their log-probabilities, greedy or at temperature 1, each with its tokens
            teacher-forced under the same prompt.
    """
    compared: list[tuple[_Array, _Array]] = []
    for drawn, scored in pairs:
        if isinstance(scored, Failure):
            return failed("score", scored, WARNING, _SCORERS)
        if drawn.logprobs is None or not drawn.logprobs.size:
            continue
        n_drawn, n_scored = drawn.logprobs.size, scored.logprobs.size
        if n_drawn != n_scored:
            said = f"{n_drawn} tokens were drawn, {n_scored} were scored"
            return Finding("score", "other_tokens", BAD, said, "token ids are needed for scoring")
        compared.append((drawn.logprobs.astype(float), scored.logprobs.astype(float)))
    if not compared:
        return unknown("score", "no text came with log-probabilities to compare with")
    gaps = [float(np.abs(drawn - scored).max()) for drawn, scored in compared]
    if not np.isfinite(gaps).all():
        return Finding("score", "inconsistent", BAD, "log-probabilities that are no numbers came")
    number, n_tokens = max(gaps), sum(drawn.size for drawn, _ in compared)
    said = f"generated and scored ln p differ by at most {number:.2g} over {n_tokens} tokens"
    if number <= EXACT:
        return Finding("score", "consistent", GOOD, said, number=number)
    if number <= NOISE:
        noise = f"{said}: rounding of a low precision"
        return Finding("score", "consistent", GOOD, noise, number=number)
    why, remedy = _explained(*compared[gaps.index(number)], number)
    if not why and number < WRONG:
        said += ": more than rounding of bfloat16 explains"
        return Finding("score", "noisy", WARNING, said, remedy, number)
    return Finding("score", "inconsistent", BAD, f"{said}{why}", remedy, number)


_SCORERS: Final = (
    "vLLM (prompt_logprobs), SGLang, TGI with --enable-prefill-logprobs, or server: embedded"
)


def _explained(drawn: _Array, scored: _Array, number: float) -> tuple[str, str]:
    """Describe the likely cause of a difference, and its remedy."""
    ahead, behind = np.abs(drawn[1:] - scored[:-1]), np.abs(drawn[:-1] - scored[1:])
    for shifted in (ahead, behind):
        if shifted.size > 1 and shifted.max() * _SHIFTED < number:
            remedy = "the server's scores are one token off, as of models without a BOS token"
            return ": shifted by one token", remedy
    if not drawn.any():
        return ": the generated ones are all 0, after greedy decoding", "ask for raw values"
    remedy = "vLLM: no --speculative-config, --logprobs-mode raw_logprobs; restart the server"
    return "", remedy


def temperature(at_one: HttpReply, at_half: HttpReply) -> Finding:
    """Find out if ln p is that of the model (raw) or changes with the temperature (scaled).

    Args:
        at_one: One token at temperature 1 with alternatives.
        at_half: The same at temperature 0.5.
    """
    pair = _alike(at_one, at_half)
    if pair is None:
        return unknown("temperature", "no two replies with the same alternatives")
    one, half, tokens = pair
    gap = max(abs(half[token] - one[token]) for token in tokens)
    spread = max(one[token] for token in tokens) - min(one[token] for token in tokens)
    if gap <= NOISE:
        if spread <= 2 * NOISE:
            return unknown("temperature", "all alternatives are equally likely")
        return Finding("temperature", "raw", GOOD, "ln p does not depend on the temperature")
    said = f"ln p changes with the temperature, by up to {gap:.2g} between 0.5 and 1"
    remedy = "vLLM: --logprobs-mode raw_logprobs; else draw at temperature 1, or score afterwards"
    return Finding("temperature", "scaled", WARNING, said, remedy)


def _alike(
    left: HttpReply, right: HttpReply
) -> tuple[Mapping[str, float], Mapping[str, float], list[str]] | None:
    found = [chat(reply) for reply in (left, right)]
    if any(one is None or not one.positions for one in found):
        return None
    one, other = (listed(reply.positions[0]) for reply in found if reply is not None)
    tokens = sorted(one.keys() & other.keys())
    return (one, other, tokens) if len(tokens) > 1 else None


def seed(same: Sequence[HttpReply], others: Sequence[HttpReply]) -> Finding:
    """Check that a seed decides a sampled text.

    Args:
        same: Replies to one request with one seed.
        others: Replies to the same request with other seeds.
    """
    texts = [_text(reply) for reply in same]
    if None in texts:
        return unknown("seed", "no sampled text came")
    if len(set(texts)) > 1:
        said = "the same seed gave different texts: repeats are not reproducible"
        remedy = "SGLang: --enable-deterministic-inference; a sampled text is kept, not redrawn"
        return Finding("seed", "ignored", WARNING, said, remedy)
    if all(_text(reply) in {texts[0], None} for reply in others):
        return unknown("seed", "all seeds gave the same text")
    return Finding("seed", "honoured", GOOD, "the same seed gives the same text, another does not")


def _text(reply: HttpReply) -> str | None:
    found = chat(reply)
    return None if found is None else found.text


def label_ids(reply: HttpReply, asked: Sequence[int]) -> Finding:
    """Check that log-probabilities of given ids can be requested, however unlikely they are."""
    found = chat(reply)
    if found is None or not found.positions:
        return Finding("label_ids", NO, GOOD, f"refused: {reply.status} {reply.words}")
    given = {one.id for one in found.positions[0].top_logprobs if one.logprob is not None}
    if set(asked) <= given:
        return Finding("label_ids", YES, GOOD, "ln p of any given ids can be read")
    return Finding("label_ids", NO, GOOD, "asking for given ids is ignored")


def mixing(alone: Sequence[HttpReply], together: Sequence[HttpReply]) -> Finding:
    """Check that ordinary replies stay right when sent together with those for given ids.

    Args:
        alone: Replies to ordinary requests, sent by themselves.
        together: Replies to the same, in the same order, sent while others asked for given ids.
    """
    wrong = sum(
        not _same(left, right)
        for left, right in zip(map(chat, alone), map(chat, together), strict=True)
    )
    if not alone or any(chat(reply) is None for reply in alone):
        return unknown("mixing", "the requests were not answered")
    if not wrong:
        said = f"{len(alone)} ordinary replies were the same beside requests for given ids"
        return Finding("mixing", "clean", GOOD, said)
    said = f"{wrong} of {len(alone)} ordinary replies were wrong beside requests for given ids"
    remedy = "none is sent to it while `gate` is on, its default (vLLM's V1 runner)"
    return Finding("mixing", "corrupts", WARNING, said, remedy)


def _same(left: Chat | None, right: Chat | None) -> bool:
    if left is None or right is None or len(left.positions) != len(right.positions):
        return False
    for one, other in zip(left.positions, right.positions, strict=True):
        if one.token != other.token or len(one.top_logprobs) != len(other.top_logprobs):
            return False
        here, there = listed(one), listed(other)
        shared = here.keys() & there.keys()
        # The last of the alternatives may be another where two are equally likely.
        if len(shared) < len(here) - 1 or not all(
            math.isclose(here[token], there[token], abs_tol=NOISE) for token in shared
        ):
            return False
    return True


_THINK: Final = re.compile(r"<(think|thinking|reasoning)>(.*?)(</\1>|\Z)", re.DOTALL)
_TAIL: Final = 200
_DATES: Final = ("%Y-%m-%d", "%d %B %Y", "%d %b %Y", "%B %d, %Y", "%b %d, %Y", "%Y/%m/%d",
                 "%d/%m/%Y", "%m/%d/%Y")  # fmt: skip


def beginning(ids: tuple[int, ...]) -> Finding:
    """Check a rendered chat for a doubled first token, such as a BOS added twice."""
    if len(ids) > 1 and ids[0] == ids[1]:
        said = f"a rendered chat begins with token {ids[0]} twice: probably a doubled BOS"
        remedy = "take BOS out of the chat template, or have the tokenizer add none"
        return Finding("bos_twice", YES, BAD, said, remedy)
    return Finding("bos_twice", NO, GOOD, "a rendered chat begins with no doubled token")


def prompt_length(n_tokenised: int, n_used: int | None) -> Finding:
    """Compare the length of a chat when answered with its length when tokenised.

    Args:
        n_tokenised: By the tokenise route.
        n_used: By the usage of a chat completion; None where not given.
    """
    if n_used is None:
        return unknown("prompt_tokens", "the server does not count prompt tokens")
    if n_used == n_tokenised:
        return Finding(
            "prompt_tokens", "same", GOOD, f"a chat is tokenised alike ({n_used} tokens)"
        )
    said = f"a chat has {n_tokenised} tokens when tokenised and {n_used} when answered"
    remedy = "a BOS is added to one of the two, or the prompt is cut: scores would be of another"
    return Finding("prompt_tokens", "other", BAD, said, remedy)


NASTY: Final = "naïve 你好 👩‍🔬 e\u0301 a\r\nb\t<|im_end|> [[>>]]  end"
"""Text that tokenizers often lose: emoji, combining marks, CRLF, spellings of special tokens."""


def round_trip(text: str) -> Finding:
    """Check that `NASTY` is as it was in the text of a chat that has it, rendered and read back."""
    if NASTY in text:
        return Finding(
            "round_trip", "exact", GOOD, "odd characters of a chat come back as they were"
        )
    said = f"a text of {len(NASTY)} odd characters comes back from a rendered chat as another"
    remedy = "answers are scored by ids, not by text; labels of plain letters are safe"
    return Finding("round_trip", "other", WARNING, said, remedy)


def template(text: str, today: dt.date) -> list[Finding]:
    """Report additions of a chat template to a rendered prompt.

    Args:
        text: A rendered chat, the beginning of the assistant's turn included.
        today: By the server's clock, or the day before or after it.
    """
    block = _THINK.search(text[-_TAIL:])
    if block is None:
        said = "the prompt ends with no think block"
        thinking = Finding("think_block", "none", GOOD, said)
    elif block[3]:
        said = "the template writes an empty think block: the model answers at once"
        thinking = Finding("think_block", "closed", GOOD, said)
    else:
        said = "the template opens a think block: label probabilities would be read inside of it"
        remedy = (
            "thinking: {end: …}; or extra_body: {chat_template_kwargs: {enable_thinking: false}}"
        )
        thinking = Finding("think_block", "open", WARNING, said, remedy)
    days = [today + dt.timedelta(days) for days in (-1, 0, 1)]
    spelled = {day.strftime(form) for day in days for form in _DATES}
    spelled |= {one.replace(" 0", " ").removeprefix("0") for one in spelled if " " in one}
    if any(one in text for one in spelled):
        said = "the template writes today's date: numbers and prefix caches change over night"
        remedy = "a template with a fixed date, or a system prompt of your own"
        return [thinking, Finding("date", YES, WARNING, said, remedy)]
    return [thinking, Finding("date", NO, GOOD, "the template writes no date of today")]
