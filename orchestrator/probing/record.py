"""Results of a probe: one `Finding` a question, and what tells a model from others of its name."""

import math
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from orchestrator.probing.replies import Chat, listed
from orchestrator.records import REQUEST, UNCLEAR, Failure, Generation, Message, Messages

# Log-probabilities of several prompts: what tells one model from another of the same name.
#
# A server's numbers differ a little from one request to the next, since what is computed together
# rounds differently. How much is measured when the server is first probed, by asking alone and
# together; another model differs by many times that. See
# `docs/design/0018-server-identity-by-logprobs.md`.


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


def of_chat(found: Chat | None) -> Seen:
    """Return the tokens and alternatives that a chat completion lists."""
    positions = () if found is None else found.positions
    return Seen(
        tuple(token_name(one.token) for one in positions),
        tuple(_finite({token_name(t): v for t, v in listed(one).items()}) for one in positions),
    )


def of_text(drawn: Generation) -> Seen:
    """Return the tokens and log-probabilities of a text that comes without alternatives."""
    ids, logprobs = drawn.token_ids, drawn.logprobs
    if logprobs is None:
        return Seen()
    names = [str(at) for at in range(logprobs.size)] if ids is None else list(map(str, ids))
    values = zip(names, logprobs.tolist(), strict=False)
    return Seen(tuple(names), tuple(_finite({name: value}) for name, value in values))


def compare(before: Sequence[Seen], now: Sequence[Seen]) -> tuple[float, int] | None:
    """Compare the answers to the same prompts.

    Returns:
        Mean absolute difference of ln p in nats, and the number of log-probabilities that were
        compared; None where there is nothing to compare.
    """
    gaps = [gap for was, is_now in zip(before, now, strict=False) for gap in _gaps(was, is_now)]
    return (math.fsum(gaps) / len(gaps), len(gaps)) if gaps else None


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


GOOD: Final = "good"
WARNING: Final = "warning"
BAD: Final = "bad"
UNKNOWN: Final = "unknown"

YES: Final = "yes"
NO: Final = "no"

ALTERNATIVES: Final = 5
"""First tokens that are asked for."""


class Finding(msgspec.Struct, frozen=True):
    """The answer to one question about a server.

    Attributes:
        name: The question, e.g. "logprobs".
        value: The answer, one of few words or a whole number; what is compared between calls.
        state: GOOD, WARNING, BAD (what methods would read there is wrong), or UNKNOWN.
        said: The same in a sentence, with what was measured.
        remedy: What would help, where something would.
        number: What was measured, where that is a number; it differs a little between calls.
    """

    name: str
    value: str
    state: str
    said: str = ""
    remedy: str = ""
    number: float | None = None


class ProbeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a probe of one model on one server.

    Attributes:
        backend: Kind of the back-end.
        model: The server's name for the model.
        version: Of the server, as it says; empty where it does not.
        fingerprint: As it says.
        findings: In the order in which they are shown.
        n_prompt: Tokens of the probe's question, as the server counts them; None where it does not.
        seen: What the server answered to several prompts.
        noise: Mean absolute difference of those log-probabilities, asked alone and together, nats;
            None where that was not measured.
        n_compared: How often a server was compared with this since.
        largest: Largest mean difference that was found in these comparisons; None before the first.
    """

    backend: str
    model: str
    version: str = ""
    fingerprint: str = ""
    findings: tuple[Finding, ...] = ()
    n_prompt: int | None = None
    seen: tuple[Seen, ...] = ()
    noise: float | None = None
    n_compared: int = 0
    largest: float | None = None

    @property
    def limit(self) -> float:
        """The mean difference of log-probabilities above which another model answers, nats."""
        return limit(self.noise or 0.0)

    def find(self, name: str) -> Finding:
        """The finding of a name; an unknown one where the probe did not ask."""
        for finding in self.findings:
            if finding.name == name:
                return finding
        return unknown(name, "not asked")


def unknown(name: str, why: str) -> Finding:
    """A question that could not be answered, and why."""
    return Finding(name, UNKNOWN, UNKNOWN, why)


_UNREADABLE: Final = frozenset({"unparseable", "too_long", "no_answer", "moderation"})


def refuses(failure: Failure) -> bool:
    """Return whether a failure says that a server can't do what was asked.

    One of the moment or of the account does not, and one of the question itself says nothing of
    other questions.
    """
    is_own = failure.scope == REQUEST and failure.permanent and failure.cause not in _UNREADABLE
    return is_own or failure.scope == UNCLEAR


def failed(name: str, failure: Failure, state: str, remedy: str = "", what: str = "") -> Finding:
    """A question that failed: a refusal of this state and remedy, or one that is still open."""
    said = what + failure.message
    return Finding(name, NO, state, said, remedy) if refuses(failure) else unknown(name, said)


def differences(before: ProbeRecord, now: ProbeRecord) -> list[str]:
    """Describe the changes of a server since an earlier probe, each in a few words.

    Only questions that were answered both times count: a probe that went on from an earlier one
    asks less, and an answer that did not come is no change. What a server refuses says nothing of
    which model answers: that it was refused, and no longer is, is a server that was mended.
    """
    found = []
    for finding in now.findings:
        earlier = before.find(finding.name)
        is_known = not {UNKNOWN, BAD} & {earlier.state, finding.state}
        if is_known and earlier.value != finding.value:
            found.append(f"{finding.name} was {earlier.value}, is {finding.value}")
    # Signs that another model answers under the same name.
    alike = compare(before.seen, now.seen)
    if alike is not None and alike[0] > before.limit:
        found.append(
            f"{alike[1]} log-probabilities of the same prompts differ by {alike[0]:.2g} nats on "
            f"average, where {before.limit:.2g} would still be this server's own noise"
        )
    # A template that writes the day has another length on another one.
    counts = (before.n_prompt, now.n_prompt)
    if None not in counts and counts[0] != counts[1] and before.find("date").value != YES:
        found.append(f"the same question had {counts[0]} tokens, has {counts[1]}")
    return found
