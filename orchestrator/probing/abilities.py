"""Findings about labels and about the asks of a method, and what methods can do with a server."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from orchestrator.ask import ChooseAsk, GenerateAsk, RewardAsk
from orchestrator.probing.checks import NOISE
from orchestrator.probing.record import (
    BAD,
    GOOD,
    NO,
    UNKNOWN,
    WARNING,
    YES,
    Finding,
    ProbeRecord,
    failed,
    refuses,
    unknown,
)
from orchestrator.probing.replies import HttpReply, chat, listed
from orchestrator.records import NO_PREFIX, Choice, Failure, Generation, Label, Rewards, labels
from orchestrator.wire.labels import ADVICE

ONE_TOKEN: Final = labels("A", "B", "C")
MANY_TOKENS: Final = labels("[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]")

_REMEDY: Final = {
    "choose_letters": "a server that lists log-probabilities of alternatives",
    "choose_verdicts": "labels of one token each, such as A, B, C; or vLLM, SGLang or embedded",
}
_KINDS: Final = {"choose_letters": "labels A, B, C", "choose_verdicts": "labels [[>>]] … [[<<]]"}


def choice(name: str, found: Choice | Failure) -> Finding:
    """Report the quality with which label probabilities can be read.

    Args:
        name: "choose_letters" or "choose_verdicts".
        found: What a choice among them gave.
    """
    what = _KINDS[name]
    if isinstance(found, Failure):
        return failed(name, found, WARNING, _REMEDY[name], f"{what}: ")
    mass = mass_of(found)
    if mass > 1 + NOISE:
        said = f"{what}: their probabilities add up to {mass:.3g}"
        return Finding(name, "wrong", BAD, said, "another server or back-end", mass)
    said = f"{what}: by {found.method}, {found.n_requests} requests, mass {mass:.2g}"
    if found.exact:
        return Finding(name, "exact", GOOD, said, number=mass)
    unread = [
        upper for value, upper in zip(found.logprobs, found.upper, strict=True) if value != value
    ]
    return Finding(
        name,
        "bounded",
        WARNING,
        f"{said}; {len(unread)} of {len(found.logprobs)} labels are only bounded, by "
        f"{math.exp(max(unread, default=0.0)):.2g} at most",
        _BOUNDED,
        mass,
    )


def mass_of(found: Choice) -> float:
    """The probability of the labels that were read, together."""
    return math.fsum(math.exp(value) for value in found.logprobs if value == value)


def agreement(found: Choice | Failure, asked: Sequence[Label], reply: HttpReply) -> Finding:
    """Compare label probabilities with those of generation, for labels of one listed token.

    Args:
        found: A choice among `asked`.
        asked: Labels of one spelling each.
        reply: One greedy token with alternatives after the same prompt.
    """
    name = "choose_agrees"
    drawn = chat(reply)
    if isinstance(found, Failure) or drawn is None or not drawn.positions:
        return unknown(name, "nothing to compare with")
    there = listed(drawn.positions[0])
    gaps = [
        abs(value - there[label.spellings[0]])
        for label, value in zip(asked, found.logprobs, strict=True)
        if label.spellings[0] in there and math.isfinite(value)
    ]
    if not gaps:
        return Finding(name, UNKNOWN, UNKNOWN, "no label is among the listed alternatives")
    number = max(gaps)
    said = f"label ln p differ from the listed ones by at most {number:.2g}"
    if number <= NOISE:
        return Finding(name, "consistent", GOOD, said, number=number)
    return Finding(name, "inconsistent", BAD, said, "another back-end kind or server", number)


Example: TypeAlias = ChooseAsk | GenerateAsk | RewardAsk

_SHOWN: Final = 5
_BEGUN: Final = (
    "a server that goes on from a begun answer: vLLM, SGLang, llama.cpp or embedded, or an "
    "endpoint that takes `backend: {kind: openai, continue_final_message: true}`"
)
_SHORTER: Final = (
    "shorter labels (`labels: two` of pairwise_ranking, scores of one digit), or a server that "
    "reads any: vLLM, SGLang, llama.cpp or embedded"
)
_UNREAD: Final = (
    "a prompt after which the judge begins with its verdict, a higher cap of alternatives, or a "
    "server that reads every label: vLLM, SGLang, llama.cpp or embedded; `probe: false` tries it "
    "all the same"
)
_BOUNDED: Final = (
    "choose_negligible: 0 where the back-end has it, else a higher cap of alternatives"
)
_RATES: Final = "a reward model on vLLM, SGLang or the embedded server"
_SCORE: Final = "`logprobs: score` or `observe: score`, or a draw at temperature 1 without top-p"


def name_of(ask: Example) -> str:
    """The question of an example, in the words of its finding."""
    if isinstance(ask, GenerateAsk):
        sampling = ask.sampling
        off = ", ".join(
            f"{name} {value:g}"
            for name, value, usual in (
                ("temperature", sampling.temperature, None),
                ("top_p", sampling.top_p, 1.0),
                ("top_k", sampling.top_k, 0),
            )
            if value != usual
        )
        return f"raw log-probabilities at {off}"
    if isinstance(ask, RewardAsk):
        return "rewards"
    names = [label.name.strip() for label in ask.labels]
    shown = names if len(names) <= _SHOWN else [*names[:2], "…", names[-1]]
    behind = " behind a begun answer" if ask.prefix != NO_PREFIX else ""
    # A few letters tell prompts apart. Neither identity nor model: it is asked of one model.
    return f"labels {' '.join(shown)}{behind} ({ask.key(b'', 0).hex()[:6]})"


def tried_drawing(ask: GenerateAsk, found: Generation | Failure) -> Finding:
    """Check that log-probabilities that come with such a text are the model's own."""
    name = name_of(ask)
    if isinstance(found, Failure):
        return failed(name, found, BAD, _SCORE)
    if found.logprobs is None:
        return Finding(name, NO, BAD, "no log-probabilities come with a text", _SCORE)
    if not found.raw:
        said = f"{name}: those that come with a text are changed by how it is drawn"
        return Finding(name, NO, BAD, said, _SCORE)
    return Finding(name, YES, GOOD, "those that come with a text are the model's own")


def tried_rating(ask: RewardAsk, found: Rewards | Failure) -> Finding:
    """Check that a conversation is rated."""
    name = name_of(ask)
    if isinstance(found, Failure):
        return failed(name, found, BAD, _RATES)
    n_places, n_outputs = found.values.shape
    what = f"{n_outputs} at each of {n_places} places" if found.by_place else f"{n_outputs}"
    said = f"outputs of a reward model by {found.method}: {what}"
    return Finding(name, YES, GOOD, said)


def tried_choice(ask: ChooseAsk, found: Choice | Failure) -> Finding:
    """Check that the labels of a method can be read at their place.

    Args:
        ask: The example.
        found: What came of it.
    """
    name = name_of(ask)
    what = name.rpartition(" (")[0]
    if isinstance(found, Failure):
        if refuses(found):
            remedy = _BEGUN if ask.prefix != NO_PREFIX else _SHORTER
            said = f"{what}: {found.message.removesuffix(ADVICE)}"
            # What a server says of its own comes with its own advice.
            is_ours = found.cause == "unsupported" and not found.status
            return Finding(name, NO, BAD, said, remedy if is_ours else "")
        return unknown(name, f"{what}: {found.message}")
    mass = mass_of(found)
    if mass > 1 + NOISE:
        said = f"{what}: their probabilities add up to {mass:.3g}"
        return Finding(name, NO, BAD, said, "another server or back-end", mass)
    n_read = sum(value == value for value in found.logprobs)
    if not n_read:
        said = f"{what}: a made-up judgment lists none of them among the alternatives"
        # The judge did not write what a begun answer says, and need not go on from it.
        state = (YES, WARNING) if ask.prefix != NO_PREFIX else (NO, BAD)
        return Finding(name, *state, said, _UNREAD)
    said = f"{what}: by {found.method}, mass {mass:.2g}"
    if found.exact:
        return Finding(name, YES, GOOD, said, number=mass)
    said += f"; {len(found.logprobs) - n_read} of them are only bounded"
    return Finding(name, YES, WARNING, said, _BOUNDED, mass)


EXACT: Final = "exact"
BOUNDED: Final = "bounded"
NOT_KNOWN: Final = "not known"
IMPOSSIBLE: Final = "impossible"
_WORST_LAST: Final = (EXACT, BOUNDED, NOT_KNOWN, IMPOSSIBLE)

_BY_STATE: Final = {GOOD: EXACT, WARNING: BOUNDED, BAD: IMPOSSIBLE, UNKNOWN: NOT_KNOWN}

_FEATURES: Final = "launch the weights by server: embedded, or score by another model"


class Need(msgspec.Struct, frozen=True):
    """A requirement of a method on a model.

    Attributes:
        ask: "generate", "score", "choose", "similarity" or "reward".
        features: What is observed in a scoring pass.
        top_logprobs: Alternatives of each token.
        examples: Made-up asks: one for each place at which labels are read, or a text whose
            log-probabilities have to be those of the model, or a conversation to rate.
    """

    ask: str
    features: tuple[str, ...] = ()
    top_logprobs: int = 0
    examples: tuple[Example, ...] = ()


class Verdict(msgspec.Struct, frozen=True):
    """Suitability of a model for a method, with the reason and the remedy."""

    method: str
    verdict: str
    why: str = ""
    remedy: str = ""


def verdict(
    method: str, needs: Iterable[Need], record: ProbeRecord, features: frozenset[str]
) -> Verdict:
    """Judge a model's suitability for a method by the worst of the method's needs.

    Args:
        method: Its name.
        needs: What it asks of this model; nothing is always possible.
        record: What the server does.
        features: What its back-end observes in a scoring pass.
    """
    found = [_of(method, need, record, features) for need in needs]
    return max(
        found, key=lambda one: _WORST_LAST.index(one.verdict), default=Verdict(method, EXACT)
    )


def _of(method: str, need: Need, record: ProbeRecord, features: frozenset[str]) -> Verdict:
    if lacking := sorted(set(need.features) - features):
        return Verdict(method, IMPOSSIBLE, f"it does not provide {', '.join(lacking)}", _FEATURES)
    cap = record.find("cap")
    # One that lists what there is refuses nothing, and there is nothing to be done about it.
    most = int(cap.value) if cap.remedy and cap.value.isdecimal() else need.top_logprobs
    if need.top_logprobs > most:
        why = f"{cap.said}, and {need.top_logprobs} are asked for"
        return Verdict(method, IMPOSSIBLE, why, f"top_logprobs: {most}; or {cap.remedy}")
    match need.ask:
        case "generate":
            drawn = _by(method, record.find("generate"), {YES: EXACT})
            if drawn.verdict != EXACT or not need.examples:
                return drawn
            return _tried(method, need, record)
        case "score":
            return _by(method, record.find("score"), {"consistent": EXACT, "noisy": BOUNDED})
        case "choose":
            return _choice(method, need, record)
        case "reward" if need.examples:
            return _tried(method, need, record)
        case _:
            return Verdict(method, EXACT)


def _by(method: str, finding: Finding, good: Mapping[str, str] | None = None) -> Verdict:
    """Judge by the answer to a question: its state, or what each good answer means."""
    word = _BY_STATE[finding.state]
    if good is not None:
        word = good.get(finding.value, NOT_KNOWN if finding.value == UNKNOWN else IMPOSSIBLE)
    return Verdict(method, word, finding.said, finding.remedy if word != EXACT else "")


def _choice(method: str, need: Need, record: ProbeRecord) -> Verdict:
    for name in ("choose_agrees", "choose_letters", "choose_verdicts"):
        finding = record.find(name)
        if finding.state == BAD:
            return Verdict(method, IMPOSSIBLE, finding.said, finding.remedy)
    if need.examples:
        return _tried(method, need, record)
    words = {"exact": EXACT, "bounded": BOUNDED}
    long = _by(method, record.find("choose_verdicts"), words)
    short = _by(method, record.find("choose_letters"), words)
    if long.verdict in {EXACT, BOUNDED}:
        return short if short.verdict == BOUNDED else long
    if short.verdict not in {EXACT, BOUNDED}:
        return long if long.verdict == NOT_KNOWN else short
    why = "only labels of one token can be read; " + long.why
    return Verdict(method, BOUNDED, why, long.remedy)


def _tried(method: str, need: Need, record: ProbeRecord) -> Verdict:
    """Return the worst verdict of the examples; of equally bad ones the last, which asks most."""
    tried = [_by(method, record.find(name_of(one))) for one in reversed(need.examples)]
    return max(tried, key=lambda one: _WORST_LAST.index(one.verdict))
