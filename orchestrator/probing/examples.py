"""Findings about the very asks of a method, by made-up ones: labels, raw numbers, rewards."""

from typing import Final, TypeAlias

from orchestrator.ask import ChooseAsk, GenerateAsk, RewardAsk
from orchestrator.probing.checks import NOISE
from orchestrator.probing.choices import mass_of
from orchestrator.probing.record import BAD, GOOD, NO, WARNING, YES, Finding, refuses, unknown
from orchestrator.records import NO_PREFIX, Choice, Failure, Generation, Rewards
from orchestrator.wire.labels import ADVICE

Example: TypeAlias = ChooseAsk | GenerateAsk | RewardAsk

_SHOWN: Final = 5
_BEGUN: Final = (
    "a server that goes on from a begun answer: vLLM, SGLang, llama.cpp or embedded, or an "
    "endpoint with continue_final_message: true in its settings"
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
        if refuses(found):
            return Finding(name, NO, BAD, found.message, _SCORE)
        return unknown(name, found.message)
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
        if refuses(found):
            return Finding(name, NO, BAD, found.message, _RATES)
        return unknown(name, found.message)
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
