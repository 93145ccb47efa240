"""Tokens as text: as the run wrote them down, or by their places."""

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby
from typing import Any, Final

import numpy as np

from orchestrator.ask import GenerateAsk, ScoreAsk
from orchestrator.recipe.schema import Recipe
from orchestrator.records import UNKNOWN_ID, Generation, IntArray, Scored

_UNKNOWN: Final = "\N{REPLACEMENT CHARACTER}".encode()
# Tokens that a model reads and writes, but that are no part of a text.
_SPECIAL: Final = re.compile(rb"<[^<>]+>|\[[A-Z_/]+\]", re.DOTALL)


def spelled(token: bytes) -> str:
    """Return a token as it stands alone; bytes that are no character are written `<0xE2>`."""
    try:
        return token.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return "".join(
            f"<0x{ord(one) - 0xDC00:02X}>" if "\udc80" <= one <= "\udcff" else one
            for one in token.decode("utf-8", "surrogateescape")
        )


def pieces(tokens: Sequence[bytes | None], text: str) -> list[str]:
    """Return the piece of a text that each token adds.

    A character that several tokens make belongs to the one that completes it; the others add "". A
    special token, which is no part of the text, is its own piece. Tokens are bytes: None where
    unknown, and U+FFFD where part of a character. A text that nobody knows is "".
    """
    whole = text.encode("utf-8", "surrogatepass")
    if not text:
        whole = b"".join(one for one in tokens if one and not _SPECIAL.fullmatch(one))
    cuts = _cuts(tokens, whole)
    if cuts is None:
        return ["" if one is None else spelled(one) for one in tokens]
    found = []
    done = 0
    for token, end in zip(tokens, cuts, strict=True):
        if end is None:
            found.append(spelled(token or b""))
            continue
        # Bytes 10xxxxxx go on with a character, which is then left to a later token.
        while done < end < len(whole) and whole[end] & 0xC0 == 0x80:
            end -= 1
        found.append(spelled(whole[done:end]) if end > done else "")
        done = max(done, end)
    return found


def _cuts(tokens: Sequence[bytes | None], whole: bytes) -> list[int | None] | None:
    """Return where each token ends in a text; None for special ones, None if they do not fit.

    Tokens of known bytes are found as runs, between which those of unknown bytes take what is left:
    the first place is right for every run but the last one, which ends with the text.
    """
    cuts: list[int | None] = []
    at = 0
    runs = [
        (known, list(run))
        for known, run in groupby(tokens, lambda one: one is not None and _UNKNOWN not in one)
    ]
    for number, (known, run) in enumerate(runs):
        is_last = number == len(runs) - 1
        if not known:
            cuts += [at] * len(run)
            if is_last:
                cuts[-1] = len(whole)
            continue
        texts = [one or b"" for one in run]
        found = _placed(texts, whole, at, floats=number > 0, is_last=is_last)
        if found is None:
            return None
        begin, ends = found
        if number:
            # What is between is the last unknown one's.
            cuts[-1] = begin
        cuts += ends
        at = max((end for end in ends if end is not None), default=begin)
    return cuts


def _placed(
    run: Sequence[bytes], whole: bytes, at: int, *, floats: bool, is_last: bool
) -> tuple[int, list[int | None]] | None:
    """Return where a run begins in a text, and where its tokens end; None if it is not there."""
    all_of_it = [True] * len(run)
    for is_part in (all_of_it, [_SPECIAL.fullmatch(one) is None for one in run]):
        own = [one if part else b"" for one, part in zip(run, is_part, strict=True)]
        joined = b"".join(own)
        begin = _begin(joined, whole, at, floats=floats, is_last=is_last)
        if begin is not None:
            ends = [begin + length for length in accumulate(map(len, own))]
            kept = [min(max(end, at), len(whole)) for end in ends]
            fits = zip(kept, is_part, strict=True)
            return max(begin, at), [end if part else None for end, part in fits]
    return None


def _begin(joined: bytes, whole: bytes, at: int, *, floats: bool, is_last: bool) -> int | None:
    """Return where a run begins; before `at` if its first white space was stripped."""
    stripped = len(joined) - len(joined.lstrip()) if not at and not floats else 0
    left = len(whole) - at
    if floats and not is_last:
        found = whole.find(joined, at)
        return None if found < 0 else found
    if floats:
        # The end may have been stripped, or cut off with a stop string.
        for kept in (joined, joined.rstrip()):
            if len(kept) <= left and whole.endswith(kept):
                return len(whole) - len(kept)
        return None
    for begin, text in ((at, joined), (at - stripped, joined[stripped:])):
        if whole.startswith(text, at) and (not is_last or len(text) == left):
            return begin
        if is_last and text.startswith(whole[at:]):
            return begin
    return None


_GIVEN: Final = (
    "This text was given, not generated, so no token was observed. `base_url` or `server` instead "
    "of `answers` has the model generate; probdiff and glass_box score given texts."
)
_OFF: Final = (
    "Log-probabilities were not requested (`backend: {kind: openai, logprobs: false}`). "
    "`logprobs: true` requests them in a new run."
)
_REASONING: Final = (
    "Log-probabilities were not requested: hosted reasoning models refuse them (`reasoning: true`)."
)
_NONE: Final = (
    "The server returned no log-probabilities. Servers that do: vLLM, SGLang, TGI, llama-server "
    "and the embedded server."
)
_NO_TOP: Final = (
    "Alternatives were not requested. `top_logprobs: 5` in a method of kind answers, or "
    "`alternatives: 5` in glass_box, requests five at each position{}."
)
_LATER: Final = "; texts that are stored are scored again for that, not generated again"
_AT_NEW: Final = " in a new run"
_FEW: Final = "The server listed {} of the {} alternatives requested. {} raises its limit."
_LIMITS: Final = {
    "vllm": "Its flag `--max-logprobs`",
    "tgi": "Its flag `--max-top-n-tokens`",
    "openai": "`backend: {kind: openai, top_logprobs: N}`, where the endpoint allows more (20),",
}
_NOT_RAW: Final = (
    "Log-probabilities are those after temperature, top-p and top-k, as this server states them. "
    "`temperature: 0` gives the model's own{}."
)
_RAW_FLAGS: Final = {
    "vllm": "; so does its flag `--logprobs-mode raw_logprobs`, its default",
    "sglang": "; so does SGLANG_RETURN_ORIGINAL_LOGPROB=1 in the server's environment with "
    "`backend: {kind: sglang, original_logprobs: true}`",
}
_NO_TEXTS: Final = (
    "The run holds the ids of these tokens without their texts: the server gave none."
)
_NO_PLACES: Final = "Neither the ids nor the texts of these tokens are given by the server."
_NAMELESS: Final = "The texts of some alternatives are longer than what the run keeps."


class Speller:
    """Spells the tokens of a run's models.

    `texts` are those that the run wrote down, by model and number.
    """

    def __init__(
        self, recipe: Recipe, texts: Mapping[str, Mapping[int, bytes]] | None = None
    ) -> None:
        self._recipe = recipe
        self._texts = texts or {}

    def one(self, model: str, number: int) -> str | None:
        """A token as it stands alone; None where its text is unknown.

        The number is the token's id, or the one that the run gave to its text.
        """
        written = self._texts.get(model, {}).get(number)
        return None if written is None else spelled(written)

    def pieces(
        self, model: str, numbers: Sequence[int], text: str, offsets: IntArray | None = None
    ) -> list[str] | None:
        """Return the piece of a text that each token adds; None if it is unknown.

        Offsets are the places in the text at which tokens begin, where known.
        """
        if offsets is not None:
            starts = offsets.tolist()
            ends = [*starts[1:], len(text)]
            return [text[begin:end] for begin, end in zip(starts, ends, strict=False)]
        known = self._texts.get(model, {})
        written = [known.get(number) for number in numbers]
        is_unknown = bool(written) and all(one is None for one in written)
        return None if is_unknown else pieces(written, text)

    def missing(
        self, ask: GenerateAsk | ScoreAsk, made: Generation | Scored, *, is_spelled: bool
    ) -> list[str]:
        """Return a sentence for each thing about a text's tokens that was not observed."""
        # None if the recipe has the model no more.
        spec = self._recipe.models.get(ask.model)
        kind = "" if spec is None else spec.backend
        if isinstance(made, Generation):
            if spec is not None and spec.answers is not None:
                return [_GIVEN]
            if made.logprobs is None:
                config: Any = spec and spec.backend_config
                if getattr(config, "reasoning", False):
                    return [_REASONING]
                return [_NONE if getattr(config, "logprobs", True) else _OFF]
        if made.logprobs is None or not made.logprobs.size:
            return []
        said = []
        if isinstance(made, Generation) and not made.raw:
            said.append(_NOT_RAW.format(_RAW_FLAGS.get(kind, "")))
        if made.top is None:
            said.append(_NO_TOP.format(_AT_NEW if kind == "openai" else _LATER))
        # The most that are known at any position.
        elif (
            n := int(np.isfinite(made.top.logprobs).sum(axis=1).max(initial=0))
        ) < ask.top_logprobs:
            said.append(_FEW.format(n, ask.top_logprobs, _LIMITS.get(kind, "Its configuration")))
        if not is_spelled:
            has_ids = made.token_ids is not None
            said.append(_NO_TEXTS if has_ids else _NO_PLACES)
        top = made.top
        # A log-probability of neither an id nor a text.
        if top is not None and (np.isfinite(top.logprobs) & (top.token_ids == UNKNOWN_ID)).any():
            said.append(_NAMELESS)
        return said
