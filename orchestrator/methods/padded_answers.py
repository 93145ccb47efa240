"""Padded answers: a judge compares an answer with a padded copy of it, in both orders.

The copy says nothing more, so a judge that calls it better is taken in by length. `list` says every
item of the answer's lists twice, `repeat` says the whole answer twice, and a template pads as it
likes. With `rephrased_by` a model says the answer's first list in other words, and its list is put
in front.

Source: the repetitive list attack of Zheng et al. 2023, "Judging LLM-as-a-Judge with MT-Bench and
Chatbot Arena" (arXiv 2306.05685), section 3.3, Table 3: the share of padded answers that a judge
calls better than the originals, 91.3 % for GPT-3.5 and Claude-v1 and 8.7 % for GPT-4.

Deviations: there GPT-4 rephrases the list that stands in front, which here takes `rephrased_by`;
without it items are repeated word for word. The prompt for rephrasing is ours. The judge's whole
distribution is read in both orders, and its verdict is the likeliest label of both together.
Answers that the padding does not change are not judged. A rephrasing without as many items, or with
the same words, is a failure.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from orchestrator.contracts.rows import failed_row
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
from orchestrator.methods._verdicts import after_thinking
from orchestrator.plugin import (
    Ask,
    AskFailed,
    Columns,
    Combination,
    Companion,
    Failure,
    Generation,
    Message,
    ModelName,
    Row,
    Stage,
    Unit,
)
from orchestrator.prompts import PromptError, render
from orchestrator.prompts.files import TemplateText
from orchestrator.prompts.rewriting import REPHRASE_LIST
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

    @property
    def is_spaced(self) -> bool:
        """True if a blank line stands between items."""
        return self.items[0][-1] == ""

    def said(self) -> list[str]:
        """Return the words of each item, without marks and with single spaces."""
        return [" ".join("\n".join(_unmarked(item)).split()) for item in self.items]


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
        result[found.lines] = _in_front(found, found.items)
    return "\n".join(result)


def with_list_before(text: str, other: TextList) -> str:
    """Return a text in which the items of another list precede those of its first list.

    The other's items take the marks of the text's list; numbers are counted on.

    Raises:
        ValueError: If the text has no list.
    """
    found = next(lists_in(text), None)
    if found is None:
        raise ValueError("a text without a list")
    end = [""] if found.is_spaced else []
    others = [[*(line for line in item if line.strip()), *end] for item in other.items]
    result = text.split("\n")
    result[found.lines] = _in_front(found, others)
    return "\n".join(result)


def _in_front(like: TextList, items: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a list behind those of other items, numbers counted on."""
    *front, last = items
    # A blank line between items stands between the two lists too.
    between = [""] if like.is_spaced and last[-1] != "" else []
    result: list[str] = []
    for number, item in enumerate([*front, [*last, *between], *like.items]):
        result += [_numbered(item[0], like.items[0][0], number), *item[1:]]
    return result


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
        elif lines[here].strip() and len(_indent(lines[here])) <= len(first["indent"]):
            break
        if lines[here].strip():
            end = here + 1
    return end, starts


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _numbered(line: str, first: str, number: int) -> str:
    """Return the first line of an item with the mark that it has in the longer list."""
    begun, found = _ITEM.match(first), _ITEM.match(line)
    if begun is None or found is None:
        return line
    mark = begun["mark"]
    if mark[0].isdigit():
        mark = f"{int(mark[:-1]) + number}{mark[-1]}"
    return f"{begun['indent']}{mark}{found['space']}{line[found.end() :]}"


def _unmarked(item: Sequence[str]) -> list[str]:
    found = _ITEM.match(item[0])
    return [item[0][found.end() :] if found else item[0], *item[1:]]


NAMED: Final = ("list", "repeat")
_SHOWN: Final = ("prompt", "answer")


class Config(ChangeJudge):
    """Settings of `padded_answers`."""

    candidates: tuple[ModelName, ...] | None = Field(
        None, description="Models whose answers are padded. Default: all that are not judges."
    )
    answer: Drawing = Field(Drawing(), description="Sampling settings of answers.")
    padding: TemplateText = Field(
        "list",
        description="Form of the padded copy. list: every list item twice, answers without a list "
        "are left out; repeat: the whole answer twice; or a Jinja template (or a .j2 file) with "
        "prompt and answer.",
    )

    rephrased_by: ModelName | None = Field(
        None,
        description="Model that rephrases the first list of each answer, with padding: list; its "
        "list is put before the original. Default: items are repeated word for word.",
    )
    rephrasing: Drawing = Field(Drawing(), description="Sampling settings of rephrased lists.")

    @field_validator("padding")
    @classmethod
    def _padding_exists(cls, value: str) -> str:
        return checked_prompt(value, NAMED, _SHOWN, ("answer",))

    @model_validator(mode="after")
    def _a_list_is_rephrased(self) -> Self:
        if self.rephrased_by is not None and self.padding != "list":
            raise ValueError("rephrased_by needs padding: list")
        return self

    @model_serializer(mode="wrap")
    def _without_unset(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        unset = {"rephrased_by", "rephrasing"} if self.rephrased_by is None else set()
        return {k: v for k, v in super()._without_unset(write).items() if k not in unset}


class PaddedAnswers(ChangedAnswers[Config]):
    """A judge compares an answer with a padded copy of it, in both orders."""

    cites = ("zheng2023judging",)
    columns: ClassVar[Columns] = {
        "turn": "i64",
        "answer": "str",
        "padded": "str",
        **changed_columns("padded"),
    }

    @property
    def judges(self) -> tuple[str, ...]:
        """Models that judge, and the one that rephrases."""
        rephraser = self.config.rephrased_by
        return tuple(dict.fromkeys([*self.config.judges, *([rephraser] if rephraser else [])]))

    def combinations(self, candidates: Sequence[str]) -> list[Combination]:
        """Return each candidate with every judge."""
        return [
            Combination((model,), judge) for judge in self.config.judges for model in candidates
        ]

    def companions(self) -> list[Companion]:
        """Return the answers that are padded, as a frame of their own."""
        return [answers.companion(self.config.candidates, self.config.answer)]

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """Return two judgments of each padded answer, and the rephrasing that was asked for."""
        config = self.config
        judging = config.judging()
        draw = f"padded_answers {config.model_dump_json(exclude={'name', 'judges'})}"
        judgments = stages_of(
            draw,
            judging,
            2 * len(candidates),
            partial(pairwise_ranking.examples_of, config=judging),
        )
        if config.rephrased_by is None:
            return judgments
        tokens = config.rephrasing.max_tokens
        rephrasings = Stage(
            "rephrasings", config.rephrased_by, "generate", len(candidates), exact=False,
            max_tokens=tokens, draw=draw,
        )  # fmt: skip
        return [rephrasings, *judgments]

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """Judge each turn's padded answer against the answer; return one row a turn."""
        config = self.config
        drawn = await converse(unit.item, unit.models[:1], ask, config.answer)
        turns = [turn for (turn,) in drawn]
        padded = await _padded(unit, ask, turns, config)
        # A turn whose padding failed is not judged.
        texts = [
            turn.answer.text if isinstance(copy, Failure) else copy
            for turn, copy in zip(turns, padded, strict=True)
        ]
        copies = [Generation(text, GIVEN) for text in texts]
        judged = await judge_changes(unit, ask, turns, copies, config.judging())
        return [
            {
                **blank_row(PaddedAnswers.columns),
                **self.identify(unit),
                "turn": turn.number,
                "answer": turn.answer.text,
                **(
                    failed_row(copy)
                    if isinstance(copy, Failure)
                    else {"padded": copy, **changed_row("padded", both)}
                ),
            }
            for turn, copy, both in zip(turns, padded, judged, strict=True)
        ]


async def _padded(
    unit: Unit, ask: Ask, turns: Sequence[Turn], config: Config
) -> list[str | Failure]:
    """Return the padded copy of each turn's answer, or the failure of its rephrasing."""
    rephraser = config.rephrased_by
    if rephraser is None:
        return [pad(turn, config.padding) for turn in turns]
    listed = [turn for turn in turns if first_list(turn.answer.text)]
    sampling = config.rephrasing.sampling(unit.item.category)
    replies: list[Generation] = await ask.all(
        *(
            ask.generate(
                rephraser,
                (Message("user", render(REPHRASE_LIST, {"list": first_list(turn.answer.text)})),),
                sampling,
                item_key=unit.item.key,
                turn=turn.number,
            )
            for turn in listed
        )
    )
    found = {
        turn.number: with_list_rephrased(turn.answer.text, reply)
        for turn, reply in zip(listed, replies, strict=True)
    }
    return [found.get(turn.number, turn.answer.text) for turn in turns]


def first_list(text: str) -> str:
    """Return the first list of a text; empty where there is none."""
    found = next(lists_in(text), None)
    return "" if found is None else "\n".join(text.split("\n")[found.lines])


def with_list_rephrased(text: str, reply: Generation) -> str | Failure:
    """Return a text with the list of a reply before its own first list, numbers counted on.

    A reply without a list of as many items, one that was cut off, and one that only repeats items
    word for word are failures.
    """
    original = next(lists_in(text))
    at = after_thinking(reply.text)
    made = None if at is None else next(lists_in(reply.text[at:]), None)
    if reply.finish_reason == "length":
        why = "the rephrased list was cut off; raise rephrasing.max_tokens"
    elif made is None or len(made.items) != len(original.items):
        n = 0 if made is None else len(made.items)
        why = f"asked for {len(original.items)} rephrased items, got a list of {n}"
    elif set(made.said()) <= set(original.said()):
        why = "the rephrased list repeats items of the list word for word"
    else:
        return with_list_before(text, made)
    return Failure("no_rephrasing", why, permanent=True)


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
