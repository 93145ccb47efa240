"""Listwise ranking: a judge lists all answers to a prompt from best to worst.

For every item the judge is shown the answers of all candidates under letters and names the best
one, then the best of those left, and so on. At each place the whole distribution over the letters
left is read, given the list so far, which goes on with the most likely letter. The *mode* is that
list; the *mean* is the probability, for every two answers, that one is named before the other. Both
are averaged over several orders in which the answers are shown. One row holds what the lists of one
turn say about two models, so that rankings are made of it as of pairwise judgments.

Source: Wang, Zhang and Choi, "Improving LLM-as-a-Judge Inference with the Judgment Distribution"
(arXiv 2503.03064), compares mean and mode of lists and finds lists asked for directly better than
those behind pairwise verdicts. Its listwise prompt and formula were not at hand (2026-11-27):
prompt, formula and orders of presentation are ours (`docs/methods/listwise.md`).

Letters that are already listed are not read, so that no letter stands twice or is left out; the
probability on them is missing from the coverage. Behind a place that can't be read the list ends:
pairs of which neither is listed then fail. An answer that failed for good is not shown, and its
pairs fail. With a chain of thought the judge reasons once for each list, and all places are read
behind it.
"""

from collections.abc import Sequence
from functools import partial
from itertools import combinations as pairs_of
from string import ascii_uppercase
from typing import Any, ClassVar, Final, Self

import msgspec
from pydantic import Field, field_validator, model_validator

from orchestrator.ask import digest
from orchestrator.judgment.listwise import presentations
from orchestrator.methods._drawing import (
    Turn,
    converse_where_answered,
    questions,
    references,
    replies,
)
from orchestrator.methods._examples import FIELDS as EXAMPLE
from orchestrator.methods._examples import REASONED
from orchestrator.methods._judging import JudgeMethod, JudgeSettings, stages_of, user_message
from orchestrator.methods._leading import NOTHING, WorkedExample, lead
from orchestrator.methods._listwise import (
    LETTERS,
    Listing,
    Order,
    Start,
    asked_behind,
    failed_pairs,
    read_lists,
    started,
    turn_rows,
    turns,
    written,
)
from orchestrator.methods._pairwise import PAIR_COLUMNS
from orchestrator.methods._verdicts import FoundList, Slot, last_list
from orchestrator.plugin import (
    Ask,
    AskFailed,
    ChooseAsk,
    Columns,
    Combination,
    Item,
    Label,
    Message,
    Messages,
    ModelName,
    Prefix,
    Row,
    Stage,
    Unit,
    UsageError,
    typed,
)
from orchestrator.prompts import PromptError, render
from orchestrator.prompts.files import TemplateText
from orchestrator.prompts.judging import LIST_FORMS, ListForm

FIELDS: Final = ("prompt", "reference", "answers")
"""Fields that a template may show."""
LISTWISE: Final = "listwise"
"""Name of the prompt of this project."""
FEWEST: Final = 2
MOST: Final = len(ascii_uppercase)
"""Answers that have a letter."""
_TEXTS: Final = (EXAMPLE["answer_a"], EXAMPLE["answer_b"], NOTHING)


class ListExample(WorkedExample):
    """A list that the judge is shown before the one that it is asked for."""

    shown: dict[str, str] = Field(
        description="Values of the other fields that the prompt shows: prompt, reference."
    )
    answers: tuple[str, ...] = Field(
        description="The answers that it ranks, A first.", min_length=FEWEST, max_length=MOST
    )
    reply: str = Field(
        min_length=1,
        description="Reply of the judge, which ends with the list, such as 'B > A > C'.",
    )

    def found(self) -> FoundList:
        """Return the list at the end of the reply.

        Raises:
            ValueError: If there is none.
        """
        found = last_list(self.reply, ascii_uppercase[: len(self.answers)])
        if found is None or self.reply[found.end :].strip():
            raise ValueError(
                f"the reply of an example does not end with a list of its {len(self.answers)} "
                f"letters such as 'B > A': {self.reply!r:.80}"
            )
        return found

    def reasons(self, prefix: str) -> str:
        """Return the text before the list and its prefix; empty where there is none.

        Raises:
            ValueError: If the reply does not end with a list.
        """
        before = self.reply[: self.found().begin].rstrip()
        return before.removesuffix(prefix.rstrip()).strip()


class Config(JudgeSettings):
    """Settings of `listwise`."""

    NAMED: ClassVar = (LISTWISE,)
    FIELDS: ClassVar = FIELDS
    SHOWN: ClassVar = ("answers",)
    CONCLUDES: ClassVar = True

    candidates: tuple[ModelName, ...] | None = Field(
        None,
        description="Models to rank. Default: all that are not judges.",
        min_length=FEWEST,
        max_length=MOST,
    )
    prompt: TemplateText = Field(
        LISTWISE,
        description="Name of a prompt (listwise), or a Jinja template (or a .j2 file) with prompt, "
        "reference, and answers: a list with letter and text.",
    )
    form: ListForm = Field(
        "list",
        description="list: one reply such as 'B > A > C', each letter read behind those before it "
        "(of three models and more, and behind reasons, needs a server that goes on from a begun "
        "reply); turns: a question and a reply for each place, which every server can do that "
        "lists the alternatives of one token.",
    )
    orders: int = Field(
        2,
        ge=2,
        le=2 * MOST,
        description="Number of orders in which the answers are shown, even: rotations of one that "
        "is drawn for each item, and their reverses. Of n models at most 2n are used.",
    )

    @field_validator("orders")
    @classmethod
    def _orders_are_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("each order is shown with its reverse; give an even number")
        return value

    examples: tuple[ListExample, ...] = Field(
        (),
        max_length=32,
        description="Lists that the judge is shown before each one. Default: none.",
    )

    @model_validator(mode="after")
    def _examples_hold_lists(self) -> Self:
        for example in self.examples:
            reasons = example.reasons(self.prefix)
            if self.form == "turns" and bool(reasons) != self.chain_of_thought:
                wanted = "has no reasons before" if self.chain_of_thought else "holds more than"
                raise ValueError(
                    f"the reply of an example {wanted} its list: {example.reply!r:.80}"
                )
        return self

    def check_examples(
        self, fields: Sequence[str], needed: Sequence[str], *, reasoned: bool = False
    ) -> None:
        """Check that letters go on from the prefix, and that the examples fit the prompt.

        Where `reasoned`, the judge gives reasons before the prefix.
        """
        apart = {"answers"}
        super().check_examples(
            [name for name in fields if name not in apart],
            [name for name in needed if name not in apart],
            reasoned=reasoned,
        )

    def verdicts(self) -> tuple[Label, ...]:
        """Return all letters."""
        return LETTERS

    def template(self) -> str:
        """Return the template of the form that is asked for."""
        if self.prompt != LISTWISE:
            return self.prompt
        return LIST_FORMS[self.form].form(chain_of_thought=self.chain_of_thought)

    def of_dataset(self, item: Item) -> tuple[WorkedExample, ...]:
        """Return the reference and an answer that says nothing, in both orders."""
        reference = item.reference or ""
        shown = {"prompt": item.messages[-1].content, "reference": reference}
        return (
            ListExample(shown=shown, answers=(reference, NOTHING), reply=written(self, (0, 1))),
            ListExample(shown=shown, answers=(NOTHING, reference), reply=written(self, (1, 0))),
        )

    def exchanged(self, template: str, example: WorkedExample) -> Messages:
        """Return an example as a conversation with the judge, in the form that is asked for.

        Raises:
            PromptError: If it lacks a field that the template needs.
        """
        if not isinstance(example, ListExample):
            return super().exchanged(template, example)
        fields: dict[str, Any] = {**example.shown, "answers": _shown(example.answers)}
        asked = Message("user", render(template, fields))
        if self.form == "list":
            return (asked, Message("assistant", example.reply))
        order, reasons = example.found().order, example.reasons(self.prefix)
        *chosen, last = order[:-1]
        before = asked_behind(reasons) if reasons else ()
        replied = turns(self, len(order), chosen)
        return (asked, *before, *replied, Message("assistant", self.replied(last)))


class Listwise(JudgeMethod[Config]):
    """A judge lists all answers to a prompt from best to worst."""

    cites = ("wang2025judgment",)
    version = 2
    frame = "lists"
    unit_columns: ClassVar[Columns] = typed(
        "item category: str | turn: i64 | model_a model_b judge: str"
    )
    columns: ClassVar[Columns] = typed(
        "p_ab p_ba: list[f64]",
        "prefer_a prefer_a_ab prefer_a_ba mean_pre mean_post mode_post coverage_ab: f64",
        "coverage_ba: f64 | exact same_text: bool | n_listed n_traces n_silent: i64",
        "preferences shown_a shown_b places_a places_b ranks_a ranks_b: list[f64]",
    )
    scores: ClassVar = {"prefer_a": 1}
    pairs = msgspec.structs.replace(
        PAIR_COLUMNS, estimators=("mode_post", "mean_pre", "mean_post"), verdicts=False
    )

    def combinations(self, candidates: Sequence[str]) -> list[Combination]:
        """Return all candidates at once, with every judge."""
        if not FEWEST <= len(candidates) <= MOST:
            raise UsageError(
                f"listwise: {len(candidates)} candidates; a list has {FEWEST} to {MOST}, one a "
                "letter (name some by `candidates`)"
            )
        return [Combination(tuple(candidates), judge) for judge in self.config.judges]

    def identify(self, unit: Unit) -> Row:
        """Return item, category and judge; each row adds its two models."""
        return {"item": unit.item.key, "category": unit.item.category, "judge": unit.judge}

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """Return the places of each list but the last, and the reasoning that was asked for."""
        n = len(candidates)
        n_lists = len(presentations(range(n), self.config.orders))
        examples = partial(_examples_of, config=self.config, n=n)
        return stages_of("listwise", self.config, n_lists, examples, n_reads=max(n - 1, 0))

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """Draw the answers and read their lists; return one row a turn and pair of models."""
        drawn = await converse_where_answered(unit.item, unit.models, ask, self.config.answer)
        try:
            presented = _presented(unit, drawn, self.config)
            prompts = [(prompt, len(models)) for _, models, prompt in presented]
            listing = Listing(unit.judge, self.config, self.config.form)
            begun = await started(ask, listing, prompts, self.config, unit.item)
            read = iter(await read_lists(ask, listing, [at for one in begun for at in one.starts]))
        except AskFailed as failed:
            if not failed.failure.permanent:
                raise
            return [
                row
                for number in range(1, len(drawn) + 1)
                for row in failed_pairs(number, pairs_of(unit.models, 2), failed.failure)
            ]
        orders = [
            Order(number, models, one, [next(read) for _ in one.starts])
            for (number, models, _), one in zip(presented, begun, strict=True)
        ]
        rows = []
        for number, turn in enumerate(drawn, 1):
            mine = [one for one in orders if one.number == number]
            rows += turn_rows(number, unit.models, turn, mine)
        return rows


def _examples_of(judge: str, config: Config, n: int) -> tuple[ChooseAsk, ...]:
    """Return the first place of a list of n made-up answers, and the second if it is read."""
    fields: dict[str, Any] = dict(EXAMPLE)
    fields["answers"] = _shown([_TEXTS[at % len(_TEXTS)] for at in range(n)])
    try:
        text = render(config.template(), fields)
    except PromptError:
        return ()
    asked = Message("user", text)
    start = Start((asked,), n)
    if config.chain_of_thought and config.form == "turns":
        start = start._replace(messages=(asked, *asked_behind(REASONED)))
    elif config.chain_of_thought and config.prefix:
        start = start._replace(reasons=REASONED)
    elif config.chain_of_thought:
        start = start._replace(slot=Slot(Prefix(REASONED), "\n", 0))
    listing = Listing(judge, config, config.form)
    return tuple(listing.place(start, range(at)) for at in range(min(n - 1, 2)))


def _shown(texts: Sequence[str]) -> list[dict[str, str]]:
    return [
        {"letter": letter, "text": text}
        for letter, text in zip(ascii_uppercase, texts, strict=False)
    ]


def _presented(
    unit: Unit, drawn: Sequence[dict[str, Turn]], config: Config
) -> list[tuple[int, tuple[str, ...], Messages]]:
    """Return the turn, the authors in the order shown, and the prompt of each list.

    There is none for a turn with fewer than two answers.
    """
    found = []
    for number, turn in enumerate(drawn, 1):
        if len(turn) < FEWEST:
            continue
        models = list(turn)
        base = _drawn(unit.item, len(models))
        for order in presentations(base, config.orders):
            named = tuple(models[at] for at in order)
            said = [[of[model] for of in drawn[:number]] for model in named]
            fields: dict[str, Any] = {
                "prompt": questions(said[0]),
                "reference": references(unit.item, said[0]),
                "answers": _shown([replies(one) for one in said]),
            }
            (prompt,) = lead(
                [user_message(config.template(), fields)], config.template(), config, unit
            )
            found.append((number, named, prompt))
    return found


def _drawn(item: Item, n: int) -> tuple[int, ...]:
    """Draw a permutation for an item by hash, the same for every judge and call."""
    return tuple(sorted(range(n), key=lambda at: digest("presented", item.key, at)))
