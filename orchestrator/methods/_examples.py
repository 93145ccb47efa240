"""Asks of a made-up judgment, so that a server can be tried before anything is paid for.

An example has the method's own prompt and labels. Whether a label is one token, and whether the
judge begins its answer with one, depends on both.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from orchestrator.methods._drawing import Drawing
from orchestrator.plugin import ChooseAsk, GenerateAsk, Label, Message, Prefix
from orchestrator.prompts import PromptError, render
from orchestrator.prompts.files import Wording

FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "prompt": "What is the capital of France? Answer in one sentence.",
        "reference": "The capital of France is Paris.",
        "answer": "The capital of France is Paris.",
        "answer_a": "The capital of France is Paris.",
        "answer_b": "It is Lyon, I think.",
        "low": "1",
        "high": "9",
    }
)
"""Values of what a template may show."""
REASONED: Final = "The answer names the capital of France, as it was asked to."
"""A judge's reasoning up to its verdict."""
_TOKENS: Final = 4
BEGUN: Final = (Message("user", "Rate this answer to 'What is 2 + 2?' from 1 to 9: It is 4."),)
BEGUN_REPLY: Final = f"{REASONED} Rating: [["
"""A judge's reply up to its rating."""


def example(
    template: str, asked: tuple[Label, ...], *, begun: str = "", **shown: str
) -> tuple[ChooseAsk, ...]:
    """One ask, of a judge without a name; none where made-up values can't fill the template.

    `begun` stands before the label in the judge's answer; `shown` is what the template shows in
    place of made-up values.
    """
    try:
        text = render(template, {**FIELDS, **shown})
    except PromptError:
        return ()
    return (ChooseAsk("", (Message("user", text),), asked, Prefix(begun)),)


def worded_example(judge: str, wording: Wording, asked: tuple[Label, ...]) -> tuple[ChooseAsk, ...]:
    """The same for a template of a harness, with the names that harnesses use."""
    first, second, question = FIELDS["answer_a"], FIELDS["answer_b"], FIELDS["prompt"]
    shown = {
        "reference": FIELDS["reference"],
        **dict.fromkeys(("question", "prompt", "instruction"), question),
        **dict.fromkeys(("answer_a", "response", "response_1", "output_1"), first),
        **dict.fromkeys(("answer_b", "response_another", "response_2", "output_2"), second),
    }
    try:
        system, user = wording.fill(shown)
    except PromptError:
        return ()
    before = (Message("system", system),) if system else ()
    return (ChooseAsk(judge, (*before, Message("user", user)), asked),)


def drawn_example(model: str, drawing: Drawing) -> GenerateAsk:
    """A short text, drawn as the answers are."""
    sampling = msgspec.structs.replace(drawing.sampling(), max_tokens=_TOKENS, stop=())
    return GenerateAsk(model, (Message("user", FIELDS["prompt"]),), sampling)
