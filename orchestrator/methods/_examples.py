"""Prompts of judges, and asks of a made-up judgment, to try a server before anything is paid for.

An example has the method's own prompt and labels. Whether a label is one token, and whether the
judge begins its answer with one, depends on both.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from orchestrator.methods._drawing import Drawing, permanent
from orchestrator.plugin import AskFailed, ChooseAsk, GenerateAsk, Label, Message, Messages, Prefix
from orchestrator.prompts import PromptError, render
from orchestrator.prompts.files import Wording

_RIGHT: Final = "The capital of France is Paris."
FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("prompt", "question", "instruction"),
            "What is the capital of France? Answer in one sentence.",
        ),
        **dict.fromkeys(
            ("reference", "answer", "answer_a", "response", "response_1", "output_1"), _RIGHT
        ),
        **dict.fromkeys(
            ("answer_b", "response_another", "response_2", "output_2"), "It is Lyon, I think."
        ),
        "low": "1",
        "high": "9",
    }
)
"""Values of what a template may show, also by the names that harnesses use."""
REASONED: Final = "The answer names the capital of France, as it was asked to."
"""A judge's reasoning up to its verdict."""
_TOKENS: Final = 4
BEGUN: Final = (Message("user", "Rate this answer to 'What is 2 + 2?' from 1 to 9: It is 4."),)
BEGUN_REPLY: Final = f"{REASONED} Rating: [["
"""A judge's reply up to its rating."""


def messages(wording: Wording | str, shown: Mapping[str, Any]) -> Messages:
    """Return the prompt of a judge, of a harness's wording or of a Jinja template.

    Raises:
        AskFailed: If the item lacks what the prompt shows.
    """
    try:
        if isinstance(wording, str):
            return (Message("user", render(wording, dict(shown))),)
        system, user = wording.fill(shown)
    except PromptError as error:
        raise permanent("bad_item", error) from error
    asked = Message("user", user)
    return (Message("system", system), asked) if system else (asked,)


def example(
    wording: Wording | str, asked: tuple[Label, ...], *, begun: str = "", **shown: str
) -> tuple[ChooseAsk, ...]:
    """One ask, of a judge without a name; none where made-up values can't fill the template.

    `begun` stands before the label in the judge's answer; `shown` is what the template shows in
    place of made-up values.
    """
    try:
        prompt = messages(wording, {**FIELDS, **shown})
    except AskFailed:
        return ()
    return (ChooseAsk("", prompt, asked, Prefix(begun)),)


def drawn_example(model: str, drawing: Drawing) -> GenerateAsk:
    """A short text, drawn as the answers are."""
    sampling = msgspec.structs.replace(drawing.sampling(), max_tokens=_TOKENS, stop=())
    return GenerateAsk(model, (Message("user", FIELDS["prompt"]),), sampling)
