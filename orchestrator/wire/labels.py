"""Label probabilities read from the alternatives of one generated token.

For servers that can do no better. It holds only for labels that are one token each, which the
server's list itself must show: a token whose bytes are a spelling's counts for it; a token that is
only the beginning of a spelling says that the label is longer, and then this refuses rather than
guess. Labels that are not listed stay unknown, with an upper bound.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from orchestrator.records import UNKNOWN_ID, Choice, Failure, Label, unparseable, unsupported
from orchestrator.wire._located import check_list, misspelled
from orchestrator.wire.answers import Answer, Entry, Logprobs, Message, withheld
from orchestrator.wire.by_ids import ln_sum
from orchestrator.wire.failures import Failed, as_value, known
from orchestrator.wire.parsing import (
    NO_USAGE,
    ROUNDING,
    SENTINEL,
    Decoder,
    Reply,
    logprob,
    no_logprobs,
)
from orchestrator.wire.spelling import bytes_of, id_in, is_in, way_of

METHOD: Final = "top_logprobs"
ADVICE: Final = (
    "; use a server of kind embedded, vllm, sglang or llamacpp, or labels of one token, such as "
    "A, B, C"
)
"""End of a refusal of longer labels; left out where a method's own advice follows."""
NEGLIGIBLE: Final = math.log(1e-4)
"""Below this ln p the beginning of a longer label is only a bound, not a reason to refuse."""


class _Entry(Entry, gc=False):
    top_logprobs: list[Entry] = msgspec.field(default_factory=list)


_chat: Final = Decoder(Reply[Answer[_Entry]], needs="choices")


@as_value
def choice_from_top(body: bytes, labels: Sequence[Label], secret: str = "") -> Choice:
    """Label probabilities, over the whole vocabulary, from the first generated token.

    Failures: "no_logprobs" where nothing is listed, "unsupported" where a label is more than one
    token or shares its first token with another, "unparseable" where the reply contradicts itself,
    and those of `orchestrator.wire.answers.withheld`.
    """
    reply = _chat(body, secret)
    answer = reply.first
    message = answer.message = answer.message or Message()
    message.settle()
    if (absent := withheld(answer, secret)) is not None:
        raise Failed(absent)
    if message.thought and not message.text:
        said = (
            "the first token belongs to the reasoning that the server sets aside, not to the "
            "answer; switch the reasoning off, or let the judge write before its verdict "
            "(chain_of_thought)"
        )
        raise Failed(unsupported(said))
    entry = answer.logprobs and _first(answer.logprobs)
    if not entry:
        raise Failed(_UNLISTED)
    listed, bound, twice = _listed(entry, message.text)
    logprobs, upper = known(read_labels(listed, bound, tuple(labels)))
    # Looked at only then: labels take long to hash.
    forms = set[bytes]().union(*(_spellings(tuple(labels)) or ())) if twice else ()
    if doubled := twice.intersection(forms):
        # One number is one label's, once or twice.
        shown = min(doubled).decode("utf-8", "replace")
        said = f"the reply lists {shown!r} twice with one number: one token, or two"
        raise Failed(unparseable(said))
    usage = reply.usage or NO_USAGE
    return Choice(logprobs, upper, METHOD, usage.n_prompt, usage.n_cached)


@as_value
def read_labels(
    logprobs: Mapping[bytes, float], bound: float, labels: tuple[Label, ...]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(ln p, upper bounds of ln p) of every label.

    Args:
        logprobs: ln p of each listed token, by its bytes.
        bound: What ln p of any other token can be at most.
        labels: The labels, each with its spellings.
    """
    spellings = _spellings(labels)
    if spellings is None:
        said = "two labels share a spelling, so they cannot be told apart"
        raise Failed(Failure("bad_request", said, permanent=True))
    read = [_read(forms, logprobs, bound) for forms in spellings]
    unread = [(at, label.begun) for at, label in enumerate(read) if label.begun]
    if not unread:
        return tuple(label.value for label in read), tuple(label.upper for label in read)
    for at, begun in unread:
        heavy = [token for token in begun if token.strip() and logprobs[token] >= NEGLIGIBLE]
        if heavy:
            raise Failed(_refusal(at, max(heavy, key=logprobs.__getitem__), labels, spellings))
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
        value = ln_sum(found)
        return _Read(value, value)
    missing = [form for form in forms if form not in logprobs]
    # Listed tokens that are a proper beginning of a spelling.
    begun = frozenset(
        form[:n] for form in missing for n in range(1, len(form)) if form[:n] in logprobs
    )
    upper = ln_sum([*found, *[bound] * len(missing), *(logprobs[token] for token in begun)])
    return _Read(ln_sum(found), upper) if found else _Read(math.nan, upper, begun)


@lru_cache(maxsize=256)
def _spellings(labels: tuple[Label, ...]) -> tuple[tuple[bytes, ...], ...] | None:
    """Distinct spellings of each label as bytes; None where two labels share one."""
    found = tuple(
        tuple({form.encode("utf-8", "replace"): None for form in label.spellings if form})
        for label in labels
    )
    return found if len(set().union(*found)) == sum(map(len, found)) else None


def _refusal(
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
    return unsupported(said)


def _first(found: Logprobs[_Entry]) -> _Entry | None:
    """The first token of either form: an entry, or the lists of legacy completions."""
    if found.content or not (found.tokens and found.token_logprobs and found.top_logprobs):
        return found.content[0] if found.content else None
    top = [Entry(token, value) for token, value in (found.top_logprobs[0] or {}).items()]
    return _Entry(found.tokens[0], found.token_logprobs[0], top_logprobs=top)


def _listed(entry: _Entry, text: str) -> tuple[Mapping[bytes, float], float, set[bytes]]:
    """The listed tokens.

    Args:
        entry: The first token.
        text: That came with it.

    Returns:
        ln p by the tokens' bytes, a bound of ln p for every other token, and those that are listed
        twice with one number, which may be one token or two.
    """
    if id_in(entry.token) != UNKNOWN_ID:
        said = (
            f"the reply names tokens by ids ({entry.token!r}), so that labels can't be told; start "
            "the server without --return-tokens-as-token-ids, or if it is vLLM itself, set "
            "`backend: vllm` for the model"
        )
        raise Failed(unsupported(said))
    way = bytes_of if entry.utf8 else way_of([entry.token], text)
    found: dict[bytes, float] = {}
    values: list[float] = []
    twice: set[bytes] = set()
    unknown = False
    for one in entry.top_logprobs:
        value = one.logprob
        if value is None or value <= SENTINEL or value != value:
            # Minus infinity is null in JSON; so is nan, which alone may stand before a number.
            unknown = unknown or value is None or value != value
            continue
        if value > ROUNDING or unknown:
            raise Failed(_UNLISTED)
        values.append(value)
        token = way(one.token) if not one.utf8 else bytes(one.utf8)
        if (before := found.get(token)) is None:
            found[token] = value
            continue
        if abs(value - before) <= _SAME:
            twice.add(token)
        found[token] = ln_sum((before, value))
    if not values:
        raise Failed(_UNLISTED)
    # vLLM puts the drawn token first and cuts the list; then only the others bound what is missing.
    lowest = min(values[1:] if len(values) > 1 and values[0] < values[1] else values)
    own = way(entry.token) if not entry.utf8 else bytes(entry.utf8)
    if not is_in(own, text):
        raise Failed(misspelled([own], text))
    drawn = logprob(entry.logprob)
    if own not in found and drawn > -math.inf:
        found[own] = drawn
        values.append(drawn)
    check_list(values)
    found.pop(b"", None)
    return found, lowest, twice


_UNLISTED: Final = no_logprobs("the reply lists no alternatives with log-probabilities")
_SAME: Final = 1e-4
"""Two numbers of one token differ by no more."""
