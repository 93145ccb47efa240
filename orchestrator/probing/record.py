"""Results of a probe: one `Finding` for each question, together a `ProbeRecord`."""

import math
from typing import Final

import msgspec

from orchestrator.probing import likeness
from orchestrator.probing.likeness import Seen
from orchestrator.records import REQUEST, UNCLEAR, Failure

GOOD: Final = "good"
WARNING: Final = "warning"
BAD: Final = "bad"
UNKNOWN: Final = "unknown"

YES: Final = "yes"
NO: Final = "no"

OTHER: Final = 1.0
"""Two answers of one model to one question differ by less, in ln p of a likely token."""
LIKELY: Final = -2.0
"""Less likely tokens are not compared."""
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
        first: Log-probabilities of the likeliest first tokens of the answer to it, by the tokens'
            texts; in records of earlier versions only.
        named: The same by `likeness.token_name`.
        seen: What the server answered to several prompts; empty in records of earlier versions.
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
    first: dict[str, float] = {}
    named: dict[str, float] = {}
    seen: tuple[Seen, ...] = ()
    noise: float | None = None
    n_compared: int = 0
    largest: float | None = None

    @property
    def limit(self) -> float:
        """The mean difference of log-probabilities above which another model answers, nats."""
        return likeness.limit(self.noise or 0.0)

    @property
    def firsts(self) -> dict[str, float]:
        """`named`, whatever version made the record."""
        old = {likeness.token_name(token): value for token, value in self.first.items()}
        return self.named or old

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
    alike = likeness.compare(before.seen, now.seen)
    if alike is not None and alike.mean > before.limit:
        found.append(
            f"{alike.n} log-probabilities of the same prompts differ by {alike.mean:.2g} nats on "
            f"average, where {before.limit:.2g} would still be this server's own noise"
        )
    # A template that writes the day has another length on another one.
    counts = (before.n_prompt, now.n_prompt)
    if None not in counts and counts[0] != counts[1] and before.find("date").value != YES:
        found.append(f"the same question had {counts[0]} tokens, has {counts[1]}")
    # Where few are listed, two that are almost as likely may take turns.
    first, first_now = before.firsts, now.firsts
    is_full = min(len(first), len(first_now)) >= ALTERNATIVES
    for token in dict.fromkeys((*first, *first_now)):
        was, is_now = first.get(token, -math.inf), first_now.get(token, -math.inf)
        known = is_full or (token in first and token in first_now)
        if known and max(was, is_now) > LIKELY and abs(was - is_now) > OTHER:
            said = f"ln p of a token as the answer's first token was {was:.2f}, is {is_now:.2f}"
            return [*found, said]
    return found
