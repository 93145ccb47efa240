"""What leads a judge to its labels: system prompt, worked examples, the reply already begun."""

from collections.abc import Sequence

from pydantic import Field

from orchestrator.ask import AskFailed
from orchestrator.prompts import PromptError, render
from orchestrator.records import Failure, Label, Message, Messages
from orchestrator.settings import Settings


class WorkedExample(Settings):
    """A judgment that the judge is shown before the one that it is asked for."""

    shown: dict[str, str] = Field(
        description="Values of the fields that the prompt shows, such as answer_a."
    )
    reply: str = Field(min_length=1, description="Reply of the judge, with its verdict.")


def continued(labels: Sequence[Label], prefix: str) -> tuple[Label, ...]:
    """Return the labels as they go on from a begun reply.

    A prefix may end with what all labels begin with: behind `My verdict: [[` the label `[[>]]` goes
    on as `>]]`. Behind white space, spellings that begin with a space are left out.

    Args:
        labels: As they stand in a reply that is not begun.
        prefix: How the reply begins; the labels themselves where it is empty.

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


def led(
    prompt: Messages, template: str, system: str, examples: Sequence[WorkedExample]
) -> Messages:
    """Return a judge's prompt behind its system prompt and worked examples.

    Args:
        prompt: The question to the judge.
        template: Of the question, which the examples are shown by too.
        system: The system prompt; none where it is empty.
        examples: The examples, in their order.

    Raises:
        AskFailed: If an example lacks a field that the template needs.
    """
    before = [Message("system", system)] if system else []
    for example in examples:
        try:
            asked = render(template, dict(example.shown))
        except PromptError as error:
            said = f"a worked example can't be shown: {error}"
            raise AskFailed(Failure("bad_recipe", said, permanent=True)) from error
        before += [Message("user", asked), Message("assistant", example.reply)]
    return (*before, *prompt)
