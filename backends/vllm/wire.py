"""vLLM's own fields and routes: scores of given ids, distributions at nodes, its tokenizer.

Written against vLLM 0.32, and read off its source and its replies. Everything is asked by token
ids and answered by token ids: texts of tokens collide, ids don't.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.records import UNKNOWN_ID, Failure, TopLogprobs, unparseable, unsupported
from orchestrator.wire import parsing
from orchestrator.wire._located import check_list
from orchestrator.wire.answers import Alternative, Answer, Entry, gave_up
from orchestrator.wire.by_ids import Forced, Looked, Path, Reading, check_prompt, top_of
from orchestrator.wire.failures import Failed, as_value
from orchestrator.wire.requests import encode
from orchestrator.wire.spelling import id_in

MOST_EXACT_IDS: Final = 128
"""Ids whose log-probabilities may be asked for in one request (`logprob_token_ids`)."""
ABSURD: Final = 10**6
"""More alternatives than any vocabulary has: the refusal says how many there may be."""

_ID: Final = re.compile("[0-9]{1,9}")


class _Choice(Answer[Entry], gc=False):
    index: int = 0
    prompt_logprobs: list[dict[str, Alternative] | None] | None = None


class _Completion(parsing.Reply[_Choice], gc=False):
    system_fingerprint: str | None = None


_completion: Final = parsing.Decoder(_Completion, needs="choices")


# -- requests --------------------------------------------------------------------------------------


def score(model: str, ids: Path, top_logprobs: int) -> bytes:
    """Body of `/v1/completions` that reads the log-probabilities of the prompt's own tokens."""
    return encode({**_one_token(model, ids), "prompt_logprobs": top_logprobs})


def look(model: str, prompts: Sequence[Path], top_logprobs: int, **more: Sequence[int]) -> bytes:
    """Body of `/v1/completions` that reads the most likely next tokens after each prompt.

    With `logprob_token_ids`, at most `MOST_EXACT_IDS` of them, it reads these besides. With
    `allowed_token_ids` it draws one of these, and says its ln p: in raw log-probabilities what may
    be drawn changes nothing, in processed ones it does.
    """
    wanted = {"logprobs": top_logprobs, **more, "return_tokens_as_token_ids": True}
    return encode({**_one_token(model, prompts), **wanted})


def trial(model: str, ids: Path, only: int | None = None) -> bytes:
    """Body of `/v1/completions` that draws one token, if `only` is given that one."""
    body = {**_one_token(model, ids), "logprobs": 1, "return_token_ids": True}
    if only is not None:
        # Two, so that a token which ends the answer is told from one that fills it.
        body |= {"allowed_token_ids": [only], "max_tokens": 2}
    return encode(body)


def _one_token(model: str, prompt: object) -> dict[str, object]:
    """One greedy token after ids; a server generates at least one whatever is asked."""
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": 1,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": 0,
        "stream": False,
        "add_special_tokens": False,
    }


# -- replies ---------------------------------------------------------------------------------------


@as_value
def forced(body: bytes, ids: Path, n_prompt: int, top_logprobs: int, secret: str) -> Forced:
    """Return the log-probabilities of `ids[n_prompt:]` after `ids[:n_prompt]`, by `score`.

    Failures: "unparseable" where the server saw another prompt (a second BOS, a prompt cut short)
    or gives no number for a token, and what an error in the reply says.
    """
    (choice,), usage = _answers(body, 1, len(ids), secret)
    rows = choice.prompt_logprobs
    if rows is None or len(rows) != len(ids):
        said = f"{0 if rows is None else len(rows)} log-probabilities for {len(ids)} prompt tokens"
        raise Failed(parsing.no_logprobs(said))
    scored = rows[n_prompt:]
    own = [(row or {}).get(str(token)) for row, token in zip(scored, ids[n_prompt:], strict=True)]
    if None in own:
        said = "the server returned no log-probability for a token to be scored"
        raise Failed(unparseable(said))
    values = parsing.logprob_array([entry.logprob if entry else None for entry in own])
    return Forced(values, _top(scored, top_logprobs) if top_logprobs else None, usage.n_cached)


@as_value
def looked(body: bytes, prompts: Sequence[Path], n_least: int, secret: str) -> Looked:
    """The most likely tokens after several prompts, from the reply to `look`.

    `n_least` entries at least must be listed at each place. Fewer come from a server whose V1
    runner mixed the request up with another one that asked for given ids; that passes.
    """
    listings, n_cached = _listed(body, prompts, secret)
    kept = [(row, least) for row, least in map(_kept, listings) if len(row) >= n_least]
    if len(kept) < len(listings):
        raise Failed(MIXED_UP)
    return tuple(Reading(row, least) for row, least in kept), n_cached


def _kept(row: dict[int, float]) -> tuple[dict[int, float], float]:
    """A list without what V1 pads it with, which is no token of it, and the least ln p there."""
    least = min(row.values())
    if least > -math.inf:
        return row, least
    listed = {token: p for token, p in row.items() if p > -math.inf}
    return listed, min(listed.values(), default=-math.inf)


@as_value
def looked_exactly(
    body: bytes, prompts: Sequence[Path], ids: Sequence[int], secret: str, *, forced: bool = False
) -> Looked:
    """Given next tokens after several prompts, from the reply to `look`.

    What is drawn by force is not listed as most likely, so it has no more than half of the
    probability; where the reply gives it more, the server computes log-probabilities after it has
    ruled all others out.
    """
    listings, n_cached = _listed(body, prompts, secret)
    if any(token not in row for row in listings for token in ids):
        does = "does not return log-probabilities of given ids (logprob_token_ids)"
        said = (
            f"the server {'samples tokens outside allowed_token_ids' if forced else does}; raise "
            "--max-logprobs, and say `backend: {kind: vllm, choose_top_logprobs: N}`, to list them"
        )
        raise Failed(unsupported(said))
    if forced and any(row[token] > _MOST_UNLISTED for row in listings for token in ids):
        said = (
            "the server's log-probabilities include sampling settings (--logprobs-mode "
            "processed_logprobs); say `backend: {kind: vllm, raw_logprobs: false}`, or start it "
            "with raw_logprobs"
        )
        raise Failed(unsupported(said))
    readings = tuple(Reading({token: row[token] for token in ids}) for row in listings)
    return readings, n_cached


_MOST_UNLISTED: Final = -0.5
"""More than ln 0.5, by more than numbers differ between two steps of a server."""
MIXED_UP: Final = Failure(
    "server_error",
    "vLLM mixed up the alternatives of this request with the token ids of another one (a bug of "
    "its V1 runner); another client of the server is using logprob_token_ids",
)
"""Failure of a corrupted reply; the same request sent again is answered well."""


@as_value
def tried(body: bytes, secret: str) -> tuple[str, str, bool]:
    """Return the facts that one generated token shows, from the reply to `trial`.

    Fingerprint, reason for its end, and whether it came with an id and log-probabilities.
    """
    reply = _completion(body, secret)
    choice = reply.first
    listed = choice.logprobs and choice.logprobs.top_logprobs
    is_told = bool(listed) and choice.token_ids is not None
    return reply.system_fingerprint or "", choice.finish_reason or "", is_told


def _answers(
    body: bytes, n_choices: int, n_prompt: int, secret: str
) -> tuple[list[_Choice], parsing.Usage]:
    """The choices in order, if the server read as many prompt tokens as were sent."""
    reply = _completion(body, secret)
    choices = sorted(reply.choices or [], key=lambda choice: choice.index)
    for choice in choices:
        if (broken := gave_up(choice.finish_reason, secret)) is not None:
            raise Failed(broken)
    usage = reply.usage or parsing.NO_USAGE
    check_prompt(n_prompt, usage.n_prompt)
    if [choice.index for choice in choices] != list(range(n_choices)):
        said = f"{n_choices} prompts were sent and {len(choices)} choices received"
        raise Failed(unparseable(said))
    return choices, usage


def _listed(
    body: bytes, prompts: Sequence[Path], secret: str
) -> tuple[list[dict[int, float]], int]:
    """Return the tokens listed right after each prompt, and the number of cached tokens."""
    choices, usage = _answers(body, len(prompts), sum(map(len, prompts)), secret)
    listings = []
    for choice in choices:
        listed = choice.logprobs and choice.logprobs.top_logprobs
        if not listed or not listed[0]:
            raise Failed(parsing.no_logprobs("the reply lists no alternatives"))
        read = _by_id(listed[0])
        if read is None:
            said = "the server does not return log-probabilities of token ids"
            raise Failed(unparseable(said))
        check_list(read.values())
        listings.append(read)
    return listings, usage.n_cached


def _by_id(listed: Mapping[str, float | None]) -> dict[int, float] | None:
    """By token id its ln p; None where a token is not named by its id or its number is none."""
    ids = [*map(id_in, listed)]
    # All at once: labels of several tokens come with hundreds of entries a request.
    values = [value for value in listed.values() if value is not None]
    if UNKNOWN_ID in ids or len(values) < len(ids):
        return None
    # The sum is no number where one of them is none.
    if not (min(values) > parsing.SENTINEL and max(values) <= 0 and sum(values) <= 0):
        values = [parsing.logprob(value) for value in values]
        if any(map(math.isnan, values)):
            return None
    return dict(zip(ids, values, strict=True))


def _top(rows: Sequence[Mapping[str, Alternative] | None], k: int) -> TopLogprobs:
    """The k most likely tokens at each place, most likely first; nan and -1 where not listed."""
    ranked = []
    for row in rows:
        if not all(map(_ID.fullmatch, row or ())):
            raise Failed(unparseable("the server lists alternatives without their token ids"))
        # The prompt's own token comes first, whether or not it is among the best.
        pairs = [
            (int(token), parsing.logprob(entry.logprob)) for token, entry in (row or {}).items()
        ]
        pairs.sort(key=lambda pair: -pair[1])
        ranked.append(pairs)
    if any(not pairs or math.isnan(pairs[0][1]) for pairs in ranked):
        raise Failed(parsing.no_logprobs("the reply lists no alternatives"))
    return top_of(ranked, k)
