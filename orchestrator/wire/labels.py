"""Label probabilities read from the alternatives of one generated token.

For servers that can do no better. It holds only for labels that are one token each, which the
server's list itself must show: a token whose bytes are a spelling's counts for it; a token that is
only the beginning of a spelling says that the label is longer, and then this refuses rather than
guess. Labels that are not listed stay unknown, with an upper bound.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from orchestrator.records import Choice, Failure, Label
from orchestrator.wire._parsing import (
    NO_USAGE,
    ROUNDING,
    SENTINEL,
    Decoder,
    Usage,
    error_in,
    logprob,
)

METHOD: Final = "top_logprobs"
ADVICE: Final = (
    "; use a server of kind embedded, vllm, sglang or llamacpp, or labels of one token, such as "
    "A, B, C"
)
"""End of a refusal of longer labels; left out where a method's own advice follows."""
NEGLIGIBLE: Final = math.log(1e-4)
"""Below this ln p the beginning of a longer label is only a bound, not a reason to refuse."""

_Bytes = list[Annotated[int, msgspec.Meta(ge=0, le=255)]]


class _Alternative(msgspec.Struct, gc=False):
    token: str = ""
    logprob: float | None = None
    utf8: _Bytes | None = msgspec.field(default=None, name="bytes")

    def spelling(self) -> bytes:
        if self.utf8 is not None:
            return bytes(self.utf8)
        return self.token.encode("utf-8", "replace")


class _Entry(_Alternative, gc=False):
    top_logprobs: list[_Alternative] = []


class _Logprobs(msgspec.Struct, gc=False):
    content: list[_Entry] | None = None


class _Answer(msgspec.Struct, gc=False):
    logprobs: _Logprobs | None = None


class _Chat(msgspec.Struct, gc=False):
    choices: list[_Answer] | None = None
    usage: Usage | None = None
    error: Any = None


_chat: Final = Decoder(_Chat)


class _Listing(NamedTuple):
    """ln p of the listed tokens by their bytes, and a bound of ln p for every other token."""

    logprobs: Mapping[bytes, float]
    bound: float


def choice_from_top(body: bytes, labels: Sequence[Label], secret: str = "") -> Choice | Failure:
    """Label probabilities, over the whole vocabulary, from the first generated token.

    Failures: "no_logprobs" where nothing is listed, "unsupported" where a label is more than one
    token or shares its first token with another.
    """
    reply = _chat(body, secret)
    if isinstance(reply, Failure):
        return reply
    if reply.error or not reply.choices:
        return error_in(body, secret)
    observed = reply.choices[0].logprobs
    listing = _listing(observed.content[0]) if observed and observed.content else None
    if listing is None:
        return Failure(
            "no_logprobs", "the reply lists no alternatives with log-probabilities", permanent=True
        )
    found = read_labels(listing.logprobs, listing.bound, tuple(labels))
    if isinstance(found, Failure):
        return found
    usage = reply.usage or NO_USAGE
    return Choice(found[0], found[1], METHOD, usage.n_prompt, usage.n_cached)


def read_labels(
    logprobs: Mapping[bytes, float], bound: float, labels: tuple[Label, ...]
) -> tuple[tuple[float, ...], tuple[float, ...]] | Failure:
    """(ln p, upper bounds of ln p) of every label.

    Args:
        logprobs: ln p of each listed token, by its bytes.
        bound: What ln p of any other token can be at most.
        labels: The labels, each with its spellings.
    """
    spellings = _spellings(labels)
    if spellings is None:
        said = "two labels share a spelling, so they cannot be told apart"
        return Failure("bad_request", said, permanent=True)
    read = [_read(forms, logprobs, bound) for forms in spellings]
    unread = [(at, label.begun) for at, label in enumerate(read) if label.begun]
    if not unread:
        return tuple(label.value for label in read), tuple(label.upper for label in read)
    for at, begun in unread:
        heavy = [token for token in begun if token.strip() and logprobs[token] >= NEGLIGIBLE]
        if heavy:
            return _refuse(at, max(heavy, key=logprobs.__getitem__), labels, spellings)
    # Such a token may be its label or the beginning of another: an upper bound, no more.
    shared = set().union(*(begun for _, begun in unread))
    values = (
        label.value if shared.isdisjoint(forms) else math.nan
        for label, forms in zip(read, spellings, strict=True)
    )
    return tuple(values), tuple(label.upper for label in read)


class _Read(NamedTuple):
    """A label's ln p and its upper bound; the listed tokens that begin it, if it is not listed."""

    value: float
    upper: float
    begun: frozenset[bytes] = frozenset()


def _read(forms: Sequence[bytes], logprobs: Mapping[bytes, float], bound: float) -> _Read:
    if len(forms) == 1 and forms[0] in logprobs:
        value = min(logprobs[forms[0]], 0.0)
        return _Read(value, value)
    found = [logprobs[form] for form in forms if form in logprobs]
    if len(found) == len(forms) > 0:
        value = _ln_sum(found)
        return _Read(value, value)
    missing = [form for form in forms if form not in logprobs]
    # Listed tokens that are a proper beginning of a spelling.
    begun = frozenset(
        form[:n] for form in missing for n in range(1, len(form)) if form[:n] in logprobs
    )
    upper = _ln_sum([*found, *[bound] * len(missing), *(logprobs[token] for token in begun)])
    return _Read(_ln_sum(found), upper) if found else _Read(math.nan, upper, begun)


@lru_cache(maxsize=256)
def _spellings(labels: tuple[Label, ...]) -> tuple[tuple[bytes, ...], ...] | None:
    """Distinct spellings of each label as bytes; None where two labels share one."""
    found = tuple(
        tuple({form.encode("utf-8", "replace"): None for form in label.spellings if form})
        for label in labels
    )
    return found if len(set().union(*found)) == sum(map(len, found)) else None


def _refuse(
    at: int, token: bytes, labels: Sequence[Label], spellings: Sequence[Sequence[bytes]]
) -> Failure:
    shown = token.decode("utf-8", "replace")
    others = [
        label.name
        for i, label in enumerate(labels)
        if i != at and any(form.startswith(token) for form in spellings[i])
    ]
    what = (
        f"labels {labels[at].name!r} and {others[0]!r} begin with the same token {shown!r}"
        if others
        else f"label {labels[at].name!r} is more than one token (the first is {shown!r})"
    )
    said = f"{what}; such labels cannot be read from the alternatives of one token{ADVICE}"
    return Failure("unsupported", said, permanent=True)


def _listing(entry: _Entry) -> _Listing | None:
    listed = entry.top_logprobs
    found: dict[bytes, float] = {}
    lowest = math.inf
    # vLLM puts the drawn token first and cuts the list; then only the others bound what is missing.
    pushed = len(listed) > 1 and logprob(listed[0].logprob) < logprob(listed[1].logprob)
    for one in listed:
        value = one.logprob
        if value is None or value <= SENTINEL or value != value:
            continue
        if value > ROUNDING:
            return None
        if value < lowest and not (pushed and one is listed[0]):
            lowest = value
        utf8 = one.utf8
        spelling = one.spelling() if utf8 is None else bytes(utf8)
        if spelling in found:
            value = _ln_sum((found[spelling], value))
        found[spelling] = value
    drawn, drawn_value = entry.spelling(), logprob(entry.logprob)
    if drawn not in found and drawn_value > -math.inf:
        found[drawn] = drawn_value
    found.pop(b"", None)
    return _Listing(found, lowest) if lowest < math.inf else None


def _ln_sum(logprobs: Sequence[float]) -> float:
    """Natural log of the sum of probabilities, at most 0."""
    if len(logprobs) == 1:
        return min(logprobs[0], 0.0)
    total = math.fsum(map(math.exp, logprobs))
    return min(math.log(total), 0.0) if total > 0 else -math.inf
