"""Aids that lead a judge to its labels: system prompt, worked examples, a begun reply."""

from collections.abc import Sequence
from typing import Any, Final

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from orchestrator.methods._drawing import OfAnswersSettings, permanent
from orchestrator.plugin import Label, Message, Messages, Settings
from orchestrator.prompts import PromptError, render


class WorkedExample(Settings):
    """A judgment that the judge is shown before the one that it is asked for."""

    shown: dict[str, str] = Field(
        description="Values of the fields that the prompt shows, such as answer_a."
    )
    reply: str = Field(min_length=1, description="Reply of the judge, with its verdict.")


# Settings that came later, which fingerprints hold only where they are set.
_LATER: Final = frozenset({"prefix", "system", "examples", "labels"})


class LedSettings(OfAnswersSettings):
    """Settings of methods in which a judge is led to its labels."""

    prefix: str = Field(
        "",
        max_length=500,
        description="Beginning of the judge's reply, which the label continues, such as 'My "
        "verdict: [['; with chain_of_thought it follows the reasons. Needs a server that goes on "
        "from a begun reply. Default: none.",
    )
    system: str = Field(
        "", description="System prompt of the judge, before that of its model. Default: none."
    )
    examples: tuple[WorkedExample, ...] = Field(
        (),
        max_length=32,
        description="Judgments that the judge is shown before each one. Default: none.",
    )

    @model_serializer(mode="wrap")
    def _without_unset(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A fingerprint is made of the settings: those that came later must not change it unset.
        return {k: v for k, v in write(self).items() if k not in _LATER or v}

    def verdicts(self) -> tuple[Label, ...]:
        """Labels that the judge is asked for, as they stand in its reply."""
        return ()

    def elsewhere(self) -> tuple[str, ...]:
        """Texts other than the prompt that may show the judge its labels."""
        return (self.system, *(example.reply for example in self.examples))

    def check_examples(
        self, fields: Sequence[str], needed: Sequence[str], *, reasoned: bool = False
    ) -> None:
        """Check that labels go on from the prefix, and that the examples fit the prompt.

        Where `reasoned`, the judge gives reasons before the prefix.
        """
        labels = self.verdicts()
        continued(labels, self.prefix)
        for example in self.examples:
            if unknown := sorted(set(example.shown) - set(fields)):
                raise ValueError(
                    f"an example shows unknown fields {', '.join(unknown)}; available: "
                    f"{', '.join(fields)}"
                )
            if missing := sorted(set(needed) - set(example.shown)):
                raise ValueError(f"an example does not show {' and '.join(missing)}")
            if labels and not any(label.name in example.reply for label in labels):
                raise ValueError(f"the reply of an example has no label: {example.reply!r:.80}")
            if reasoned and self.prefix not in example.reply:
                raise ValueError(f"the reply of an example does not hold {self.prefix!r}")
            if not reasoned and not example.reply.startswith(self.prefix):
                raise ValueError(f"the reply of an example does not begin with {self.prefix!r}")


def continued(labels: Sequence[Label], prefix: str) -> tuple[Label, ...]:
    """Return the labels as they go on from a begun reply.

    A prefix may end with what all labels begin with: behind `My verdict: [[` the label `[[>]]` goes
    on as `>]]`. Behind white space, spellings that begin with a space are left out.

    Raises:
        ValueError: If nothing of a label is left, or two labels go on alike.
    """
    if not prefix:
        return tuple(labels)
    names = [label.name for label in labels]
    longest = min(map(len, names))
    shared = max(
        (n for n in range(longest + 1) if all(prefix.endswith(name[:n]) for name in names)),
        default=0,
    )
    found = []
    for label in labels:
        forms = [form[shared:] for form in label.spellings if prefix.endswith(form[:shared])]
        if prefix[-1].isspace() or shared:
            forms = [form for form in forms if not form[:1].isspace()]
        if not all(forms):
            raise ValueError(f"the prefix {prefix!r} leaves nothing of the label {label.name!r}")
        found.append(Label(label.name, tuple(dict.fromkeys(forms))))
    if any(not label.spellings for label in found):
        raise ValueError(f"no label goes on from the prefix {prefix!r}")
    every = [form for label in found for form in label.spellings]
    if len(every) != len(set(every)):
        raise ValueError(f"labels can't be told apart behind the prefix {prefix!r}")
    return tuple(found)


def lead(prompts: Sequence[Messages], template: str, config: LedSettings) -> Sequence[Messages]:
    """Return a judge's prompts behind its system prompt and worked examples.

    Raises:
        AskFailed: If an example lacks a field that the template needs.
    """
    before = [Message("system", config.system)] if config.system else []
    for example in config.examples:
        try:
            asked = render(template, dict(example.shown))
        except PromptError as error:
            said = f"a worked example can't be shown: {error}"
            raise permanent("bad_recipe", said) from error
        before += [Message("user", asked), Message("assistant", example.reply)]
    return [(*before, *prompt) for prompt in prompts] if before else prompts
