"""A drawn answer as servers give it -> `Generation`: which tokens are its text, what they weigh.

Chat replies and legacy completions differ in form only; both are brought to `Answer`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from orchestrator.records import (
    UNKNOWN_ID,
    Failure,
    FloatArray,
    Generation,
    IntArray,
    TopLogprobs,
    unparseable,
)
from orchestrator.wire import failures, parsing, spelling
from orchestrator.wire._located import TOO_LONG, check_alternatives, tokens_of
from orchestrator.wire.answers import (
    LENGTH,
    STOP,
    Alternative,
    Answer,
    Entry,
    Message,
    end_of,
    missing,
    no_answer,
)
from orchestrator.wire.failures import Failed
from orchestrator.wire.spelling import id_in


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a chat reply to read.

    Attributes:
        logprobs: Whether log-probabilities were asked for; a reply without is then a failure.
        top: How many of the most likely tokens to keep at each position.
        raw: Whether the server's log-probabilities are those of the unmodified softmax.
        offsets: Whether to say where in the text each token begins.
        thinking_end: What stands between a reasoning model's thinking and its answer; empty where
            it does not think, or its server sets the thinking aside.
        secret: The key, kept out of messages.
        ids: Whether ids were asked for. Those that a server states beside the texts without being
            asked are dropped, since nothing would tell their texts later.
    """

    logprobs: bool = True
    top: int = 0
    raw: bool = True
    offsets: bool = False
    thinking_end: str = ""
    secret: str = ""
    ids: bool = True


def drawn(answer: Answer[Any], usage: parsing.Usage, reading: Reading) -> Generation:
    """Return the drawn text with its observations, the thinking set aside.

    Raises:
        Failed: "no_logprobs", "server_error" for an unfinished answer or one that repeats the key,
            and "no_answer" where the thinking did not end; with the tokens that were billed all the
            same.
    """
    try:
        return _drawn(answer, usage, reading)
    except Failed as failed:
        counts = {"n_prompt_tokens": usage.n_prompt, "n_completion_tokens": usage.n_completion}
        raise Failed(msgspec.structs.replace(failed.failure, **counts)) from None


def _drawn(answer: Answer[Any], usage: parsing.Usage, reading: Reading) -> Generation:
    message = answer.message = answer.message or Message()
    message.settle()
    _check(answer, message, reading.secret)
    end = end_of(answer.finish_reason)
    thought = _set_aside(message, end, reading.thinking_end)
    if (absent := missing(answer, usage, reading.secret)) is not None:
        raise Failed(absent)
    thinking = parsing.text_of(message.thought)
    made = Generation(
        parsing.text_of(message.text),
        end if end in (STOP, LENGTH) else failures.clean(str(answer.finish_reason), reading.secret),
        usage.n_prompt,
        usage.n_completion,
        raw=reading.raw,
        n_cached_tokens=usage.n_cached,
        thinking=thinking,
        n_thinking_tokens=usage.n_thinking if thinking or thought else None,
    )
    return _observed(made, answer, reading, thought) if reading.logprobs else made


def _check(answer: Answer[Any], message: Message, secret: str) -> None:
    """See that an answer is no longer than may be kept and shown, and does not hold the key.

    A short key may be a word.
    """
    said = [text for text in (message.text, message.refusal, message.thought) if text]
    # UTF-8 has at most four bytes of a character.
    is_long = 4 * sum(map(len, said)) > parsing.MAX_TEXT_BYTES and (
        sum(len(text.encode("utf-8", "replace")) for text in said) > parsing.MAX_TEXT_BYTES
    )
    if is_long or len(answer.token_ids or ()) > parsing.MAX_TOKENS:
        raise Failed(TOO_LONG)
    keys = [one for one in secret.split("\n") if len(one) >= failures.LONG_SECRET]
    if any(key in text for text in said for key in keys):
        repeats = "the answer repeats the API key of the request; it is not stored"
        raise Failed(Failure("server_error", repeats, permanent=True))


def _set_aside(message: Message, end: str, marker: str) -> str:
    """Move the thinking out of the content; what ended it, empty where nothing was moved."""
    if not marker or message.thought:
        return ""
    thinking, found, answer = message.text.partition(marker)
    # It stands in the prompt or in the text, by the model's template.
    opening = marker.replace("/", "")
    if found:
        message.reasoning = thinking.strip().removeprefix(opening).strip()
        message.content = answer.lstrip("\r\n")
    elif end == LENGTH or thinking.lstrip().startswith(opening):
        within = " within max_tokens" if end == LENGTH else ""
        raise Failed(no_answer(f"the thinking did not end with {marker!r}{within}"))
    return found


def _observed(made: Generation, answer: Answer[Any], reading: Reading, thought: str) -> Generation:
    """Return a drawn text with its tokens and what they weigh."""
    entries, span, own, way = tokens_of(answer, made.text, thought, reading.top)
    if not reading.ids and entries and entries[0].id is not None:
        for entry in entries:
            for one in (entry, *getattr(entry, "top_logprobs", ())):
                one.id = None
    values = parsing.logprob_array([entry.logprob for entry in entries])
    ids = _ids(answer, entries, span.stop)
    top: TopLogprobs | None = None
    names: tuple[bytes, ...] = ()
    if reading.top:
        top, names = _top(entries, reading.top, values, ids)
        if way is not spelling.bytes_of:
            # The texts of alternatives, as they were read, in bytes.
            names = tuple(way(name.decode("utf-8", "replace")) for name in names)
    if span.start or span.stop < len(entries):
        kept = slice(span.start, span.stop)
        values = values[kept].copy()
        ids = None if ids is None else ids[kept].copy()
        top = top and TopLogprobs(top.token_ids[kept].copy(), top.logprobs[kept].copy())
    offsets = named = None
    # Where there are no ids, places say which token is which part of the text.
    if reading.offsets or ids is None:
        offsets = _offsets(own, made.text)
    if ids is None and offsets is None:
        # Drawn tokens are named by their texts, added to those of alternatives.
        ids_of_all, every = spelling.named([*names, *own])
        named, names = ids_of_all[len(names) :].copy(), every
    return msgspec.structs.replace(
        made,
        token_ids=ids,
        logprobs=values,
        top=top,
        offsets=offsets,
        n_thinking_tokens=span.start or made.n_thinking_tokens,
        named=named,
        names=names,
    )


def _offsets(tokens: list[bytes], text: str) -> IntArray | None:
    """Return each token's first character in the text; None if the tokens do not spell it.

    A token that begins inside a character begins where that character does.
    """
    joined, wanted = b"".join(tokens), text.encode("utf-8", "replace")
    first = joined.find(wanted)
    if first < 0:
        return None
    # Bytes 10xxxxxx go on with a character; all others begin one.
    begins = (np.frombuffer(joined, np.uint8) & 0xC0) != 0x80
    characters = np.concatenate(([0], np.cumsum(begins)))
    starts = np.cumsum([0, *map(len, tokens)])[:-1]
    inside = ~np.append(begins, True)[starts]
    found = characters[starts] - inside - characters[first]
    places: IntArray = np.clip(found, 0, len(text)).astype(np.int32)
    return places


def _ids(answer: Answer[Any], entries: list[Any], n_kept: int) -> IntArray | None:
    if answer.token_ids is not None:
        # A server may leave the stop token out of one of the two lists.
        if not n_kept <= len(answer.token_ids) <= len(entries):
            said = f"{len(answer.token_ids)} token ids but {len(entries)} log-probabilities"
            raise Failed(unparseable(said))
        ids = np.array(answer.token_ids, dtype=np.int32)
        named = bool(entries) and _id(entries[0]) != UNKNOWN_ID
        if named and (_ids_of(entries[: len(ids)]) != ids).any():
            said = "the reply's token ids are others than those of its log-probabilities"
            raise Failed(unparseable(said))
        return ids
    if not entries:
        return np.empty(0, dtype=np.int32)
    if _id(entries[0]) == UNKNOWN_ID:
        return None
    ids = _ids_of(entries)
    return None if (ids == UNKNOWN_ID).any() else ids


def _ids_of(listed: Sequence[Entry | Alternative]) -> IntArray:
    """The ids of tokens, -1 where they are named by their texts only."""
    return np.array([_id(one) for one in listed], dtype=np.int32)


def _id(entry: Entry | Alternative) -> int:
    return id_in(entry.token) if entry.id is None else entry.id


def _top(
    entries: list[Any], k: int, drawn: FloatArray, ids_drawn: IntArray | None
) -> tuple[TopLogprobs, tuple[bytes, ...]]:
    """The k most likely tokens at each position, most likely first; nan and -1 where not listed.

    With them the texts by which they are named, if they are.
    """
    width = max((len(entry.top_logprobs) for entry in entries), default=0)
    if len(entries) * max(k, width) > parsing.MAX_LISTED:
        raise Failed(unparseable(f"the reply lists more than {parsing.MAX_LISTED:,} alternatives"))
    if entries and not width:
        raise Failed(parsing.no_logprobs("the reply lists no alternatives"))
    wide, ids, names = _listed(entries, width)
    values = parsing.cleaned(wide)
    if ids_drawn is not None and len(ids_drawn) < len(drawn):
        ids_drawn = None
    check_alternatives(values, ids, drawn, ids_drawn)
    if 1 < width <= k:
        # vLLM lists the drawn token first and cuts the list, so where the drawn token is the least
        # likely of all it may have pushed out one of the k best: it is not known to be among them.
        pushed = values[:, 0] < np.fmin.reduce(values[:, 1:], axis=1)
        values[pushed, 0] = np.nan
        ids[pushed, 0] = UNKNOWN_ID
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    # As places of the whole: `np.take_along_axis` takes three times as long.
    order += np.arange(0, values.size, width)[:, np.newaxis]
    values, ids = values.ravel()[order], ids.ravel()[order]
    if values.shape[1] < k:
        room = ((0, 0), (0, k - values.shape[1]))
        values = np.pad(values, room, constant_values=np.nan)
        ids = np.pad(ids, room, constant_values=UNKNOWN_ID)
    return TopLogprobs(ids, values), names


def _listed(
    entries: list[Any], width: int
) -> tuple[NDArray[np.float64], IntArray, tuple[bytes, ...]]:
    """The alternatives of all entries, shorter lists filled up to `width`.

    Returns:
        Arrays of shape (T, width): ln p as the server writes them, nan for null and for none, and
        ids, below -1 where tokens are named by their texts (see `wire.spelling`). Then the
        distinct texts of those.
    """
    rows = [entry.top_logprobs for entry in entries]
    if any(len(row) != width for row in rows):
        filler = Alternative()
        rows = [row + [filler] * (width - len(row)) for row in rows]
    listed = [one for row in rows for one in row]
    # Null is nan.
    values = np.array([one.logprob for one in listed], dtype=np.float64)
    names: tuple[bytes, ...] = ()
    if not listed or _id(listed[0]) == UNKNOWN_ID:
        # A text is met again and again: each is made bytes of once.
        places: dict[str, int] = {}
        at = [places.setdefault(one.token, len(places)) for one in listed]
        distinct, names = spelling.named(map(spelling.bytes_of, places))
        ids = distinct[at]
        # What fills rows up, or is no number, is no token.
        ids[np.isnan(values)] = UNKNOWN_ID
    else:
        ids = _ids_of(listed)
    shape = len(rows), width
    return values.reshape(shape), ids.reshape(shape), names
