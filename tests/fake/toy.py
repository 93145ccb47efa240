"""The invented model as servers that speak token ids see it: prompts, next tokens, draws, by ids.

A prompt's last assistant mark divides it into what was asked and what is already answered. At the
beginning of an answer a judge has the distribution over its labels that `tests.fake.judge` states
(also within labels of several tokens). Everywhere else the token that a greedy answer has there has
the log-probability that `tests.fake.language` gives it, and all others share what is left: a true
distribution, over which sampled texts are unlikely.
"""

import importlib
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

import msgspec

from tests.fake import judge, language
from tests.fake.protocol import RefusedError, check_ids
from tests.fake.replies import Speaker, cut
from tests.fake.rules import Rules, Verdict

_SHORTEST, _LONGEST = 12, 40
_MASK: Final = 2**64 - 1
_MIX: Final = 0x9E3779B97F4A7C15
_N_PAIRS: Final = language.VOCABULARY // 2
_GREEDY: Final = 1024
"""Greedy answers that are remembered."""
_WITHIN: Final = 0.999
"""Share of the probability that stays on the labels once one was begun."""
TRUNCATED: Final = 64
"""Prompt tokens that the quirk "silent_truncation" leaves."""


class Place(msgspec.Struct, frozen=True):
    """A place in a text at which a next token is wanted.

    Attributes:
        model: Who writes.
        asked: The text before the last assistant mark.
        context: Decides log-probabilities, together with position and token.
        begun: Ids after that mark.
    """

    model: str
    asked: str
    context: int
    begun: tuple[int, ...]


class Draw(msgspec.Struct, frozen=True):
    """Generated ids, the end token included where the text ended by itself."""

    ids: list[int]
    text: str
    reason: str
    stop: str | None = None


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a draw."""

    limit: int
    temperature: float = 0.0
    seed: int | None = None
    stops: tuple[str, ...] = ()


class Toy:
    """All models of a server.

    Args:
        rules: Qualities, seed, limits and quirks.
        models: The names the server has.
    """

    def __init__(self, rules: Rules, models: Sequence[str]) -> None:
        self.rules = rules
        self.models = tuple(models)
        self._speaker = Speaker(rules)
        self._greedy = lru_cache(_GREEDY)(self._written)

    def has(self, quirk: str) -> bool:
        """Return True if the server has a quirk."""
        return quirk in self.rules.quirks

    # -- prompts -----------------------------------------------------------------------------------

    def chat(self, messages: object, *, opens: bool, goes_on: bool = False) -> list[int]:
        """A rendered chat; `opens` the assistant's turn, or `goes_on` with the last message.

        Raises:
            RefusedError: If these are no messages.
        """
        if not isinstance(messages, list) or not messages:
            raise RefusedError(400, "messages must not be empty")
        ids: list[int] = []
        for at, turn in enumerate(messages):
            if not isinstance(turn, dict):
                raise RefusedError(400, "a message must be an object")
            content = turn.get("content")
            if not isinstance(content, str):
                content = ""
            role = str(turn.get("role", "user"))
            if role != "assistant":
                ids += language.encode(f"{role}: {content}\n")
                continue
            ids += [language.ASSISTANT, *language.encode(content)]
            if not (goes_on and at == len(messages) - 1):
                ids.append(language.END)
        return [*ids, language.ASSISTANT] if opens else ids

    def received(self, ids: list[int]) -> list[int]:
        """A prompt as the server takes it, quirks included.

        Raises:
            RefusedError: If it is too long, or no prompt.
        """
        if not ids:
            raise RefusedError(400, "the prompt must not be empty")
        check_ids(ids)
        if self.has("double_bos"):
            ids = [language.END, *ids]
        if self.has("silent_truncation"):
            return ids[-TRUNCATED:]
        limit = self.rules.context_tokens
        if len(ids) >= limit:
            raise RefusedError(
                400,
                f"The input ({len(ids)} tokens) is longer than the model's context length "
                f"({limit} tokens).",
            )
        return ids

    def place(self, model: str, ids: Sequence[int]) -> Place:
        """Return the place of the next token after `ids`."""
        split = len(ids)
        while split and ids[split - 1] != language.ASSISTANT:
            split -= 1
        if not split:
            return Place(model, "", language.number("completions", model), tuple(ids))
        asked = language.decode(list(ids[: split - 1]))
        return Place(model, asked, language.number(model, asked), tuple(ids[split:]))

    # -- numbers -----------------------------------------------------------------------------------

    def logprob(self, place: Place, token_id: int, verdict: Verdict) -> float:
        """Natural log-probability of a token at a place."""
        judged = self._judged(place, verdict)
        if judged is None:
            return self._unjudged(place, token_id, verdict)
        thin = (1 - sum(judged.values())) / (2 * language.VOCABULARY)
        return round(math.log(judged.get(token_id, thin)), 6)

    def forced(
        self, model: str, ids: Sequence[int], verdict: Verdict, start: int = 1
    ) -> list[float | None]:
        """Log-probability of each id after those before it; None for those before `start`."""
        found: list[float | None] = [None] * min(start, len(ids))
        for at in range(start, len(ids)):
            place = self.place(model, ids[:at])
            found.append(self.logprob(place, ids[at], verdict))
        if self.has("shifted_echo"):
            found = [*found[:start], *found[start + 1 :], -0.5][: len(ids)]
        return found

    def top(self, place: Place, token_id: int, k: int, verdict: Verdict) -> list[tuple[int, float]]:
        """So many alternatives, the given token first, as if it had been drawn."""
        if k < 1:
            return []
        judged = self._judged(place, verdict)
        value = self.logprob(place, token_id, verdict)
        if judged is None:
            likely = _likeliest(place.context, len(place.begun), k)
            likeliest = dict.fromkeys([self._favourite(place, verdict), *likely])
            best = [i for i in likeliest if i != token_id][: k - 1]
            others = [(i, self._unjudged(place, i, verdict)) for i in best]
            listed = [(token_id, value), *others]
        else:
            fill = [i for i in range(32, 127 + k) if i not in judged][:k]
            ranked = sorted(judged, key=judged.__getitem__, reverse=True)
            ids = [token_id, *(i for i in [*ranked, *fill] if i != token_id)][:k]
            listed = [(i, self.logprob(place, i, verdict)) for i in ids]
        if self.has("missing_label"):
            hidden = (judged or {}).keys() - {token_id}
            listed = [(i + 1000 if i in hidden else i, v) for i, v in listed]
        return listed

    def drawn_logprob(
        self, place: Place, token_id: int, sampling: Sampling, verdict: Verdict
    ) -> float:
        """The log-probability that is stated of a drawn token: after temperature by a quirk."""
        value = self.logprob(place, token_id, verdict)
        warm = sampling.temperature > 0 and self.has("after_temperature")
        return value / sampling.temperature if warm else value

    # -- draws -------------------------------------------------------------------------------------

    def draw(self, model: str, ids: Sequence[int], how: Sampling, verdict: Verdict) -> Draw:
        """A text after a prompt.

        Raises:
            RefusedError: If no token may be generated.
        """
        if how.limit < 1:
            raise RefusedError(400, f"max_tokens must be at least 1, got {how.limit}")
        place = self.place(model, ids)
        judged = self._judged(place, verdict)
        if judged is not None and how.limit == 1:
            best = max(judged, key=judged.__getitem__)
            return Draw([best], language.decode([best]), "length")
        seed, warmth, text = how.seed, how.temperature, verdict.text
        written = self._written(place, seed, warmth, text, evenly=verdict.judge_evenly)
        new = list(written[: how.limit])
        text = language.decode([i for i in new if i != language.END])
        text, new, stop = cut(text, new, list(how.stops))
        ended = stop is not None or new[-1:] == [language.END]
        return Draw(new, text, "stop" if ended else "length", stop)

    def _written(
        self, place: Place, seed: int | None, temperature: float, text: str | None, *, evenly: bool
    ) -> tuple[int, ...]:
        """A whole answer, or the rest of one, and its end."""
        if text is not None:
            return (*language.encode(text), language.END)
        seeds = (seed, temperature) if temperature > 0 else ()
        key = language.number(self.rules.seed, place.context, place.begun, *seeds)
        n_words = _SHORTEST + key % (_LONGEST - _SHORTEST + 1)
        quality = self._speaker.quality(place.model)
        spread = 0.3 * (language.fraction("spread", key) - 0.5)
        written = language.write(key, min(max(quality + spread, 0.0), 1.0), n_words)
        case = judge.read(place.asked, place.model, quality)
        said = judge.verdict(place.asked, case, evenly=evenly)
        return (*written, *language.encode(said), language.END)

    def _favourite(self, place: Place, verdict: Verdict) -> int:
        """The token that a greedy answer has there; off its way, the first of one from there."""
        begun, start = place.begun, msgspec.structs.replace(place, begun=())
        text, evenly = verdict.text, verdict.judge_evenly
        whole = self._greedy(start, None, 0.0, text, evenly=evenly)
        if len(begun) < len(whole) and whole[: len(begun)] == begun:
            return whole[len(begun)]
        return self._greedy(place, None, 0.0, text, evenly=evenly)[0]

    def _unjudged(self, place: Place, token_id: int, verdict: Verdict) -> float:
        """Log-probability of a token where no label is expected."""
        at, favourite = len(place.begun), self._favourite(place, verdict)
        value = language.logprob(place.context, at, favourite)
        if token_id == favourite:
            return value
        shares = _N_PAIRS - _share(place.context, at, favourite)
        share = _share(place.context, at, token_id) / shares
        return round(math.log(-math.expm1(value) * share), 6)

    def _judged(self, place: Place, verdict: Verdict) -> Mapping[int, float] | None:
        """Probabilities of the tokens that labels go on with; None where no label does."""
        case = judge.read(place.asked, place.model, self._speaker.quality(place.model))
        names = verdict.labels or _labels(place.asked, case)
        if not names:
            return None
        weights = judge.distribution(case, names, evenly=verdict.judge_evenly)
        depth = len(place.begun)
        found: dict[int, float] = {}
        for name, weight in zip(names, weights, strict=True):
            path = language.encode(name)
            if len(path) > depth and tuple(path[:depth]) == place.begun:
                found[path[depth]] = found.get(path[depth], 0.0) + weight
        total = sum(found.values())
        if not found or not depth:
            return found or None
        return {token: _WITHIN * weight / total for token, weight in found.items()}


def _share(context: int, position: int, token_id: int) -> float:
    """In (0, 1); of tokens 2n and 2n + 1 together 1, so that the sum over all tokens is known."""
    pair, odd = divmod(token_id, 2)
    mixed = (context ^ (pair * _MIX) ^ ((position + 1) * 0xC2B2AE3D27D4EB4F)) & _MASK
    mixed = (mixed ^ (mixed >> 31)) * 0xBF58476D1CE4E5B9 & _MASK
    first = (((mixed ^ (mixed >> 29)) >> 11) + 0.5) / 2**53
    return 1 - first if odd else first


@lru_cache(1)
def _weighed() -> tuple[ModuleType, Any]:
    """numpy, which takes half of the time to start and is seldom needed, and a weight a pair."""
    np = importlib.import_module("numpy")
    return np, np.arange(_N_PAIRS, dtype=np.uint64) * np.uint64(_MIX)


@lru_cache(maxsize=4096)
def _likeliest(context: int, position: int, k: int) -> tuple[int, ...]:
    """The k tokens of the highest `_share` there, best first."""
    # The whole vocabulary one by one takes a hundred times as long.
    np, weighed = _weighed()
    mixed = weighed ^ np.uint64((context ^ ((position + 1) * 0xC2B2AE3D27D4EB4F)) & _MASK)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    first = ((mixed ^ (mixed >> np.uint64(29))) >> np.uint64(11)).astype(np.float64) / 2**53
    shares = np.stack([first, 1 - first], axis=1).reshape(-1)
    return tuple(np.argsort(-shares, kind="stable")[:k].tolist())


def _labels(asked: str, case: judge.Case) -> tuple[str, ...]:
    names = judge.one_token_labels(asked, case)
    if names != ("[[",):
        return names
    inner = judge.SYMBOLS if case.n_answers == 2 else tuple("123456789")
    return tuple(f"[[{name}]]" for name in inner)


_MARKS: Final = {language.token(i).text: i for i in (language.END, language.ASSISTANT)}
_MARK: Final = re.compile("|".join(f"({re.escape(text)})" for text in _MARKS))


def encode_marked(text: str) -> list[int]:
    """Ids of a text in which the marks of the template are tokens, as in special-token parsing."""
    ids: list[int] = []
    for part in _MARK.split(text):
        if part:
            ids += [_MARKS[part]] if part in _MARKS else language.encode(part)
    return ids
