"""SGLang's own fields and routes: draws, scores and next tokens by `/generate`, its tokenizer.

Written against SGLang 0.5.23, read off its source. Everything is asked by token ids. Ids in replies
are checked, not trusted: the last one of the vocabulary is shown as 0. Bodies of `/v1/tokenize` for
a text, and its replies, are those of vLLM's `/tokenize` (`by_ids`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from orchestrator.ask import GenerateAsk
from orchestrator.records import Failure, Generation, Messages, TopLogprobs, unparseable
from orchestrator.wire import failures, parsing
from orchestrator.wire.answers import (
    Alternative,
    Answer,
    ListedEntry,
    Logprobs,
    Message,
    withheld_at_end,
)
from orchestrator.wire.by_ids import Forced, Looked, Path, check_prompt, top_of
from orchestrator.wire.by_ids import Reading as NodeReading
from orchestrator.wire.drawn import Reading, drawn
from orchestrator.wire.failures import Failed, as_value
from orchestrator.wire.requests import encode, messages_of

_Triple = tuple[float | None, int, str | None]


class _Finish(msgspec.Struct, gc=False):
    type: str | None = None
    matched: int | str | None = None
    message: str = ""


class _Meta(msgspec.Struct, gc=False):
    finish_reason: _Finish | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    input_token_logprobs: list[_Triple | None] | None = None
    input_top_logprobs: list[list[_Triple] | None] | None = None
    output_token_logprobs: list[_Triple] | None = None
    output_top_logprobs: list[list[_Triple] | None] | None = None
    output_token_ids_logprobs: list[list[_Triple] | None] | None = None


class _Generated(msgspec.Struct, gc=False):
    text: str | None = None
    output_ids: list[parsing.TokenId] | None = None
    meta_info: _Meta | None = None
    error: Any = None


_NOTHING: Final = _Meta()
_NO_NUMBER: Final = unparseable("the server returned no log-probability for a requested token")
_OTHER_IDS: Final = unparseable("the server scored other ids than requested")
_generated: Final = parsing.Decoder(_Generated, needs="meta_info")
_batch: Final = parsing.Decoder(list[_Generated])


# -- requests --------------------------------------------------------------------------------------


def tokenize_chat(
    model: str, messages: Messages, template: Mapping[str, object], *, opens: bool, goes_on: bool
) -> bytes:
    """Body of `/v1/tokenize` for a chat.

    A chat that goes on is sent without `add_generation_prompt`: the server refuses both, and puts
    the last text behind the opened turn by itself.
    """
    body: dict[str, Any] = {"model": model, "messages": messages_of(messages)}
    body |= {"continue_final_message": True} if goes_on else {"add_generation_prompt": opens}
    return encode({**body, **template})


def detokenize(model: str, ids: Path) -> bytes:
    """Body of `/v1/detokenize`, special tokens included."""
    return encode({"model": model, "tokens": ids, "skip_special_tokens": False})


def draw(ids: Path, ask: GenerateAsk, seed: int, more: Mapping[str, object]) -> bytes:
    """Body of `/generate` that draws one text after a prompt; with `more` fields."""
    sampling = ask.sampling
    params = {
        **_SAMPLING,
        "max_new_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "sampling_seed": seed,
    }
    if sampling.stop:
        params["stop"] = sampling.stop
    body: dict[str, Any] = {
        "input_ids": ids,
        "sampling_params": params,
        "return_logprob": True,
        "return_text_in_logprobs": True,
        "stream": False,
    }
    if ask.top_logprobs:
        body["top_logprobs_num"] = ask.top_logprobs
    return encode({**body, **more})


def score(ids: Path, n_prompt: int, top_logprobs: int, lora: str = "") -> bytes:
    """Body of `/generate` that reads the log-probabilities of `ids[n_prompt:]`.

    The prefix cache is used up to the position before the first scored id, where reading starts.
    """
    body: dict[str, Any] = {
        "input_ids": ids,
        "sampling_params": {**_GREEDY, "max_new_tokens": 0},
        "return_logprob": True,
        "logprob_start_len": n_prompt - 1,
        "stream": False,
    }
    if top_logprobs:
        body["top_logprobs_num"] = top_logprobs
    return encode(body | _by(lora))


def look(prompts: Sequence[Path], wanted: Sequence[Sequence[int]], lora: str = "") -> bytes:
    """Body of `/generate` that reads given next tokens after each prompt.

    The draws are greedy, since the server states numbers after the temperature.
    """
    return encode({
        "input_ids": prompts,
        "sampling_params": {**_GREEDY, "max_new_tokens": 1},
        "return_logprob": True,
        "token_ids_logprob": wanted,
        "stream": False,
        **_by(lora),
    })  # fmt: skip


def _by(lora: str) -> dict[str, str]:
    return {"lora_path": lora} if lora else {}


def trial(ids: Path, only: int) -> bytes:
    """Body of `/generate` that draws a given token and, if the answer goes on, another."""
    bias = {str(only): _CERTAIN}
    params = {**_GREEDY, "max_new_tokens": 2, "logit_bias": bias}
    return encode({"input_ids": ids, "sampling_params": params, "stream": False})


_CERTAIN: Final = 1000.0
# What the server else takes from the model's generation_config.json.
_SAMPLING: Final[Mapping[str, Any]] = {
    "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
    "min_new_tokens": 0, "skip_special_tokens": True,
}  # fmt: skip
_GREEDY: Final[Mapping[str, Any]] = {**_SAMPLING, "temperature": 0.0, "top_p": 1.0, "top_k": -1}


# -- replies ---------------------------------------------------------------------------------------


text: Final = parsing.field("text", str)
"""The text in a reply of `/v1/detokenize`."""


@as_value
def generation(body: bytes, reading: Reading, n_prompt: int) -> Generation:
    """A drawn text.

    Failures: "unparseable" where the server read another prompt, "no_logprobs", and those of
    `orchestrator.wire.drawn.drawn`.
    """
    reply, meta = _one(body, n_prompt, reading.secret)
    ids = reply.output_ids
    finish = (meta.finish_reason or _Finish()).type
    absent = withheld_at_end(finish, reading.secret, reply.text)
    if reply.text is None or ids is None:
        raise Failed(absent or parsing.error_in(body, reading.secret))
    listed = meta.output_token_logprobs or []
    rows: Sequence[list[_Triple] | None] = meta.output_top_logprobs or [None] * len(ids)
    if not len(listed) == len(rows) == len(ids):
        raise Failed(absent or _no_logprobs(len(ids), listed))
    entries = []
    for own, (value, _, said), row in zip(ids, listed, rows, strict=True):
        top = [Alternative(text or "", p, token) for p, token, text in row or () if token >= 0]
        entries.append(ListedEntry(said or "", value, id=own, top_logprobs=top))
    answer = Answer(Message(reply.text), Logprobs(entries), finish)
    usage = parsing.Usage(
        prompt_tokens=meta.prompt_tokens,
        completion_tokens=meta.completion_tokens,
        cached_tokens=meta.cached_tokens,
    )
    return drawn(answer, usage, reading)


@as_value
def forced(body: bytes, ids: Path, n_prompt: int, top_logprobs: int, secret: str) -> Forced:
    """Return the log-probabilities of `ids[n_prompt:]`, from the reply to `score`.

    Failures: "unparseable" where the server read another prompt (a second BOS, a prompt cut short),
    scored other ids, or gives no number for a token; "no_logprobs" where it gives none at all.
    """
    _, meta = _one(body, len(ids), secret)
    wanted, listed = ids[n_prompt:], meta.input_token_logprobs
    if listed is None or len(listed) != len(wanted) + 1:
        raise Failed(_no_logprobs(len(wanted) + 1, listed))
    scored = [(math.nan, -1, None) if one is None else one for one in listed[1:]]
    if any(seen not in {own, 0} for own, (_, seen, _) in zip(wanted, scored, strict=True)):
        raise Failed(_OTHER_IDS)
    values = parsing.logprob_array([value for value, _, _ in scored])
    if np.isnan(values).any():
        raise Failed(_NO_NUMBER)
    top = _top(meta.input_top_logprobs, len(wanted), top_logprobs) if top_logprobs else None
    return Forced(values, top, parsing.count(meta.cached_tokens))


@as_value
def looked(
    body: bytes, prompts: Sequence[Path], wanted: Sequence[Sequence[int]], secret: str
) -> Looked:
    """Distributions after several prompts, from the reply to `look`."""
    if len(body) > parsing.MAX_BODY_BYTES:
        raise Failed(parsing.too_large(len(body)))
    if not body.lstrip().startswith(b"["):
        raise Failed(parsing.error_in(body, secret))
    replies = _batch(body, secret)
    if len(replies) != len(prompts):
        said = f"{len(prompts)} prompts were sent and {len(replies)} answered"
        raise Failed(unparseable(said))
    readings, n_cached = [], 0
    for reply, prompt, tokens in zip(replies, prompts, wanted, strict=True):
        meta = reply.meta_info
        if meta is None:
            raise Failed(Failure("unparseable", "a reply of the batch has no answer"))
        _check(meta, len(prompt), secret)
        rows = meta.output_token_ids_logprobs
        if not rows or rows[0] is None or len(rows[0]) != len(tokens):
            raise Failed(_no_logprobs(len(tokens), rows and rows[0]))
        if any(seen not in {own, 0} for own, (_, seen, _) in zip(tokens, rows[0], strict=True)):
            raise Failed(_OTHER_IDS)
        values = [parsing.logprob(value) for value, _, _ in rows[0]]
        if any(map(math.isnan, values)):
            raise Failed(_NO_NUMBER)
        readings.append(NodeReading(dict(zip(tokens, values, strict=True))))
        n_cached += parsing.count(meta.cached_tokens)
    return tuple(readings), n_cached


@as_value
def tried(body: bytes, token: int, secret: str) -> bool:
    """Return True if the given token ended the answer, from the reply to `trial`."""
    finish = (_generated(body, secret).meta_info or _NOTHING).finish_reason
    if finish is None:
        raise Failed(parsing.error_in(body, secret))
    return finish.type == "stop" and finish.matched == token


def _one(body: bytes, n_prompt: int, secret: str) -> tuple[_Generated, _Meta]:
    """One whole answer to a prompt of so many tokens."""
    reply = _generated(body, secret)
    meta = reply.meta_info or _NOTHING
    _check(meta, n_prompt, secret)
    return reply, meta


def _check(meta: _Meta, n_prompt: int, secret: str) -> None:
    """See that an answer was not aborted, and is to the prompt that was sent."""
    finish = meta.finish_reason
    if finish is not None and finish.type == "abort":
        said = failures.clean(finish.message, secret)
        said = f"the server aborted the request: {said}".rstrip(": ")
        raise Failed(Failure("server_error", said))
    check_prompt(n_prompt, meta.prompt_tokens)


def _no_logprobs(n_wanted: int, found: Sequence[object] | None) -> Failure:
    if not found:
        return parsing.no_logprobs("the reply has no log-probabilities")
    return unparseable(f"{len(found)} log-probabilities for {n_wanted} tokens")


def _top(rows: Sequence[list[_Triple] | None] | None, n_tokens: int, k: int) -> TopLogprobs:
    """The k most likely tokens at each place, most likely first; nan and -1 where not listed."""
    if rows is None or len(rows) != n_tokens + 1:
        raise Failed(parsing.no_logprobs("the reply lists no alternatives"))
    listed = (
        sorted((-parsing.logprob(value), token) for value, token, _ in row or () if token >= 0)
        for row in rows[1:]
    )
    return top_of([[(token, -negative) for negative, token in row] for row in listed], k)
