"""Padded answers: a judge compares an answer with a padded copy of it, in both orders.

The copy says nothing more, so a judge that calls it better is taken in by length. `list` says every
item of the answer's lists twice, `repeat` says the whole answer twice, and a template pads as it
likes.

Source: the repetitive list attack of Zheng et al. 2023, "Judging LLM-as-a-Judge with MT-Bench and
Chatbot Arena" (arXiv 2306.05685), section 3.3, Table 3: the share of padded answers that a judge
calls better than the originals, 91.3 % for GPT-3.5 and Claude-v1 and 8.7 % for GPT-4.

Deviations: there GPT-4 rephrases the list that stands in front; here items are repeated word for
word. The judge's whole distribution is read in both orders, and its verdict is the likeliest label
of both together. Answers that the padding does not change are not judged.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar, Final, NamedTuple

from pydantic import Field, field_validator

from orchestrator.methods import answers, pairwise_ranking
from orchestrator.methods._changed import (
    ChangedAnswers,
    ChangeJudge,
    changed_columns,
    changed_row,
    judge_changes,
)
from orchestrator.methods._drawing import Drawing, Turn, blank_row, converse
from orchestrator.methods._judging import checked_prompt, stages_of
from orchestrator.plugin import (
    Ask,
    AskFailed,
    Columns,
    Companion,
    Failure,
    Generation,
    Row,
    Stage,
    Unit,
)
from orchestrator.prompts import PromptError, render
from orchestrator.prompts.files import TemplateText
from orchestrator.records import GIVEN

_ITEM: Final = re.compile(r"(?P<indent>[ \t]*)(?P<mark>\d+[.)]|[-*+•])(?P<space>[ \t]+)(?=\S)")


class TextList(NamedTuple):
    """A list in a text.

    Two or more lines in a row that begin with the same kind of mark (a number, or one of - * + •)
    at the same indent; blank lines and indented lines between them belong to it.

    Attributes:
        lines: Of the text.
        items: Lines of each item.
    """

    lines: slice
    items: list[list[str]]


def lists_in(text: str) -> Iterator[TextList]:
    """Return the lists of a text, in their order."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        end, starts = _list_from(lines, at)
        if len(starts) < 2:
            at += 1
            continue
        bounds = zip(starts, [*starts[1:], end], strict=True)
        yield TextList(slice(at, end), [lines[a:b] for a, b in bounds])
        at = end


def with_lists_twice(text: str) -> str:
    """Return a text in which the items of each list stand twice, numbers counted on."""
    result = text.split("\n")
    for found in reversed(list(lists_in(text))):
        first, *_ = found.items
        *front, last = found.items
        # A blank line between items stands between the two lists too.
        between = [""] if first[-1] == "" and last[-1] != "" else []
        twice: list[str] = []
        for number, item in enumerate([*front, [*last, *between], *found.items]):
            twice += [_numbered(item[0], first[0], number), *item[1:]]
        result[found.lines] = twice
    return "\n".join(result)


def _list_from(lines: Sequence[str], at: int) -> tuple[int, list[int]]:
    """Return the end of the list that begins at a line, and its items' lines; [] for no list."""
    first = _ITEM.match(lines[at])
    if first is None:
        return at, []
    starts, end = [at], at + 1
    for here in range(at + 1, len(lines)):
        found = _ITEM.match(lines[here])
        same = found is not None and found["indent"] == first["indent"]
        if same and found is not None and found["mark"][-1] == first["mark"][-1]:
            starts.append(here)
        elif lines[here].strip() and not lines[here][: len(first["indent"]) + 1].isspace():
            break
        if lines[here].strip():
            end = here + 1
    return end, starts


def _numbered(line: str, first: str, number: int) -> str:
    """Return the first line of an item with the mark that it has in the longer list."""
    begun, found = _ITEM.match(first), _ITEM.match(line)
    if begun is None or found is None:
        return line
    mark = begun["mark"]
    if mark[0].isdigit():
        mark = f"{int(mark[:-1]) + number}{mark[-1]}"
    return f"{begun['indent']}{mark}{found['space']}{line[found.end() :]}"


NAMED: Final = ("list", "repeat")
_SHOWN: Final = ("prompt", "answer")


class Config(ChangeJudge):
    """Settings of `padded_answers`."""

    answer: Drawing = Field(Drawing(), description="Sampling settings of answers.")
    padding: TemplateText = Field(
        "list",
        description="Form of the padded copy. list: every list item twice, answers without a list "
        "are left out; repeat: the whole answer twice; or a Jinja template (or a .j2 file) with "
        "prompt and answer.",
    )

    @field_validator("padding")
    @classmethod
    def _padding_exists(cls, value: str) -> str:
        return checked_prompt(value, NAMED, _SHOWN, ("answer",))


class PaddedAnswers(ChangedAnswers[Config]):
    """A judge compares an answer with a padded copy of it, in both orders."""

    cites = ("zheng2023judging",)
    columns: ClassVar[Columns] = {
        "turn": "i64",
        "answer": "str",
        "padded": "str",
        **changed_columns("padded"),
    }

    def companions(self) -> list[Companion]:
        """Return the answers that are padded, as a frame of their own."""
        return [answers.companion(self.config.candidates, self.config.answer)]

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """Return two judgments of each padded answer."""
        config = self.config
        judging = config.judging()
        draw = f"padded_answers {config.model_dump_json(exclude={'name', 'judges'})}"
        return stages_of(
            draw,
            judging,
            2 * len(candidates),
            partial(pairwise_ranking.examples_of, config=judging),
        )

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """Judge each turn's padded answer against the answer; return one row a turn."""
        config = self.config
        drawn = await converse(unit.item, unit.models[:1], ask, config.answer)
        turns = [turn for (turn,) in drawn]
        copies = [Generation(pad(turn, config.padding), GIVEN) for turn in turns]
        judged = await judge_changes(unit, ask, turns, copies, config.judging())
        return [
            {
                **blank_row(PaddedAnswers.columns),
                **self.identify(unit),
                "turn": turn.number,
                "answer": turn.answer.text,
                "padded": copy.text,
                **changed_row("padded", both),
            }
            for turn, copy, both in zip(turns, copies, judged, strict=True)
        ]


def pad(turn: Turn, padding: str) -> str:
    """Return the padded copy of an answer; the answer itself where there is nothing to pad.

    `padding` is one of `NAMED`, or a template.

    Raises:
        AskFailed: If the template can't be rendered.
    """
    text = turn.answer.text
    if padding == "list":
        return with_lists_twice(text)
    if padding == "repeat":
        return f"{text}\n\n{text}" if text.strip() else text
    fields: dict[str, str | None] = {"prompt": turn.messages[-1].content, "answer": text}
    try:
        return render(padding, fields)
    except PromptError as error:
        raise AskFailed(Failure("bad_item", str(error), permanent=True)) from error
