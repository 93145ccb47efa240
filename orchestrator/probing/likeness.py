"""Log-probabilities of several prompts: what tells one model from another of the same name.

A server's numbers differ a little from one request to the next, since what is computed together
rounds differently. How much is measured when the server is first probed, by asking alone and
together; another model differs by many times that. See
`docs/design/0018-server-identity-by-logprobs.md`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from orchestrator.probing.replies import Chat
from orchestrator.records import Generation, Message, Messages

PROMPTS: Final[tuple[Messages, ...]] = tuple(
    (Message("user", text),)
    for text in (
        "Name three things that one finds by the sea.",
        "What is the capital of Italy? Answer in one sentence.",
        "Write the next line of a story that begins: The lamp went out.",
        "List the first five prime numbers.",
        "Explain in one sentence why ice floats on water.",
        "Translate into French: The train leaves at noon.",
    )
)
"""Asked of every server, in this order."""
TOKENS: Final = 8
"""Tokens of each answer."""
FLOOR: Final = 0.04
"""Least difference in the mean, in nats, that is taken for another model: twenty times what another
order of the same sums changes in bfloat16."""
TIMES: Final = 5.0
"""By how many times its measured noise a server has to differ."""


class Seen(msgspec.Struct, frozen=True):
    """A greedy answer to one prompt.

    Attributes:
        drawn: Token at each position, as `token_name` has it.
        listed: ln p of the tokens listed there.
    """

    drawn: tuple[str, ...] = ()
    listed: tuple[dict[str, float], ...] = ()


class Likeness(msgspec.Struct, frozen=True):
    """Distance between the numbers of two probes.

    Attributes:
        mean: Mean absolute difference of ln p, nats.
        n: Log-probabilities that were compared.
    """

    mean: float
    n: int


def of_chat(found: Chat | None) -> Seen:
    """Return the tokens and alternatives that a chat completion lists."""
    positions = () if found is None else found.positions
    return Seen(
        tuple(token_name(one.drawn.token) for one in positions),
        tuple(_finite({token_name(t): v for t, v in one.logprobs().items()}) for one in positions),
    )


def of_text(drawn: Generation) -> Seen:
    """Return the tokens and log-probabilities of a text that comes without alternatives."""
    ids, logprobs = drawn.token_ids, drawn.logprobs
    if logprobs is None:
        return Seen()
    names = [str(at) for at in range(logprobs.size)] if ids is None else list(map(str, ids))
    values = zip(names, logprobs.tolist(), strict=False)
    return Seen(tuple(names), tuple(_finite({name: value}) for name, value in values))


def compare(before: Sequence[Seen], now: Sequence[Seen]) -> Likeness | None:
    """Compare the answers to the same prompts; None where there is nothing to compare."""
    gaps = [gap for was, is_now in zip(before, now, strict=False) for gap in _gaps(was, is_now)]
    return Likeness(math.fsum(gaps) / len(gaps), len(gaps)) if gaps else None


def limit(noise: float) -> float:
    """The mean difference above which another model answers, by the noise that was measured."""
    return max(FLOOR, TIMES * noise)


def _gaps(before: Seen, now: Seen) -> Iterator[float]:
    """Absolute differences at the positions that both answers reach by the same tokens."""
    for was, is_now, *drawn in zip(
        before.listed, now.listed, before.drawn, now.drawn, strict=False
    ):
        for token, value in was.items():
            yield _gap(value, token, is_now)
        for token, value in is_now.items():
            if token not in was:
                yield _gap(value, token, was)
        if drawn[0] != drawn[1]:
            return


def _gap(value: float, token: str, others: Mapping[str, float]) -> float:
    """To what the other list says of a token: one that is missing there is below all listed."""
    other = others.get(token)
    if other is not None:
        return abs(value - other)
    return max(0.0, value - min(others.values(), default=value))


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if math.isfinite(value)}


def token_name(token: str) -> str:
    """Name a token without its text, which may repeat the key, or a part of it."""
    return blake2b(token.encode("utf-8", "replace"), digest_size=6).hexdigest()
