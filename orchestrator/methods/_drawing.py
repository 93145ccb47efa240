"""Texts that methods draw: settings, and the answers of one item, turn by turn."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, TypeVar

from pydantic import Field

from orchestrator.plugin import (
    Ask,
    AskFailed,
    Combination,
    Companion,
    Failure,
    GenerateAsk,
    Generation,
    Item,
    Message,
    Messages,
    Method,
    MethodSettings,
    ModelName,
    Sampling,
    Settings,
    Stage,
    Unit,
)

_WRITTEN: Final = 0.7
_BETWEEN: Final = 0.1

# FastChat, `llm_judge/common.py`, as ProbDiff's code applies it.
MT_BENCH: Final = {
    "writing": _WRITTEN,
    "roleplay": _WRITTEN,
    "reasoning": 0.0,
    "math": 0.0,
    "coding": 0.0,
    "extraction": 0.0,
    "stem": _BETWEEN,
    "humanities": _BETWEEN,
}
# AlignBench's own settings; the categories are writing, role play and open questions, and the rest.
ALIGN_BENCH: Final = {
    "文本写作": _WRITTEN,
    "角色扮演": _WRITTEN,
    "综合问答": _WRITTEN,
    "专业能力": _BETWEEN,
    "数学计算": _BETWEEN,
    "基本任务": _BETWEEN,
    "逻辑推理": _BETWEEN,
    "中文理解": _BETWEEN,
}
BY_BENCHMARK: Final = {"mt_bench": MT_BENCH, "align_bench": ALIGN_BENCH}
"""By the kind of the dataset."""


_Temperature = Annotated[float, Field(ge=0)]
Judges = Annotated[
    tuple[ModelName, ...], Field(description="Models that act as judges.", min_length=1)
]
"""Judges that the recipe names."""


def permanent(cause: str, said: object) -> AskFailed:
    """Return the failure of a unit that asking again would not mend."""
    return AskFailed(Failure(cause, str(said), permanent=True))


def pairs_by_judge(
    candidates: Sequence[str], judges: Sequence[str], baseline: str | None = None
) -> list[Combination]:
    """Return every pair of candidates with every judge, a judge's pairs together.

    With a baseline these are the pairs of it and each other candidate, which comes first.
    """
    pairs = (
        list(combinations(candidates, 2))
        if baseline is None
        else [(model, baseline) for model in candidates if model != baseline]
    )
    return [Combination(pair, judge) for judge in judges for pair in pairs]


class Drawing(Settings):
    """Settings for drawing texts."""

    max_tokens: int = Field(512, gt=0, description="Upper bound on generated tokens.")
    temperature: float = Field(0.0, ge=0, description="Sampling temperature; 0 is greedy.")
    top_p: float = Field(1.0, gt=0, le=1, description="1 is off.")
    top_k: int = Field(0, ge=0, description="0 is off.")
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Strings that end the text."""
    temperature_by_category: Literal["mt_bench", "align_bench"] | dict[str, _Temperature] = Field(
        default_factory=dict,
        description="Temperatures by category, overriding `temperature`: a mapping, or the name "
        "of a benchmark for the values of its authors.",
    )

    @property
    def by_category(self) -> Mapping[str, float]:
        """Temperatures of categories, over `temperature`."""
        given = self.temperature_by_category
        return BY_BENCHMARK[given] if isinstance(given, str) else given

    @property
    def can_vary(self) -> bool:
        """True if texts of any category are drawn at a temperature above 0."""
        return self.temperature > 0 or any(self.by_category.values())

    def temperature_of(self, category: str | None) -> float:
        """The temperature at which texts of a category are drawn."""
        return self.by_category.get(category or "", self.temperature)

    def sampling(self, category: str | None = None) -> Sampling:
        """The compact record that travels with a request, for an item of a category."""
        return Sampling(
            max_tokens=self.max_tokens,
            temperature=self.temperature_of(category),
            top_p=self.top_p,
            top_k=self.top_k,
            stop=self.stop,
        )


class AnswersConfig(MethodSettings):
    """Settings of `answers`, which other methods bring along."""

    answer: Drawing = Field(Drawing(), description="Sampling settings of answers.")
    top_logprobs: int = Field(
        0, ge=0, description="Alternatives to observe at each token; 0 observes none."
    )


def answer_stage(
    model: str, drawing: Drawing, top_logprobs: int, examples: tuple[GenerateAsk, ...] = ()
) -> Stage:
    """Return the draw of a model's answer, and of one more for each further turn."""
    return Stage(
        "answers",
        model,
        "generate",
        1,
        max_tokens=drawing.max_tokens,
        draw=drawing.model_dump_json(),
        top_logprobs=top_logprobs,
        examples=examples,
    )


class OfAnswersSettings(MethodSettings):
    """Settings of methods about answers that they draw."""

    # Of those derived from this one, which have it in their own order.
    if TYPE_CHECKING:
        answer: Drawing = Drawing()


ConfigT = TypeVar("ConfigT", bound=OfAnswersSettings, covariant=True)


class OfAnswers(Method[ConfigT]):
    """Base of methods about answers, which stand in a frame of their own."""

    @property
    def answering(self) -> tuple[ModelName, ...] | None:
        """Models whose answers are drawn; None for all that are not judges."""
        return self.config.candidates

    def companions(self) -> list[Companion]:
        """Return the answers that the rows are about."""
        settings = AnswersConfig(
            candidates=self.answering, answer=self.config.answer, top_logprobs=self.top_logprobs
        )
        return [Companion("answers", settings)]


def with_baseline(
    candidates: tuple[ModelName, ...] | None, baseline: ModelName | None
) -> tuple[ModelName, ...] | None:
    """Return the models that answer where all are compared with one; None for all."""
    if candidates is None or baseline is None:
        return candidates
    return tuple(dict.fromkeys((*candidates, baseline)))


# The answers of one item: one, or one a turn where the item has followups.
#
# Every method draws its answers here, so that methods over the same settings share them.


class Turn(NamedTuple):
    """An answer and what it answers.

    Attributes:
        number: From 1.
        model: Who answered.
        messages: The conversation so far, the user's turn last; earlier answers are this model's.
        answer: What the model said.
    """

    number: int
    model: str
    messages: Messages
    answer: Generation


async def converse(
    item: Item,
    models: Sequence[str],
    ask: Ask,
    drawing: Drawing,
    *,
    top_logprobs: int = 0,
    go_on: bool = False,
) -> list[tuple[Turn, ...]]:
    """Each turn's answers, one a model in the order of `models`.

    A model sees its own earlier answers. All models answer a turn before the next begins. Where
    the others `go_on`, models that failed for good are left out of the turn and all after it.

    Raises:
        AskFailed: With the first failure: without an answer the conversation can't go on. Where
            others go on, with the first of the moment: the next call may have that answer, and
            what is made without it would stay.
    """
    sampling = drawing.sampling(item.category)
    contexts = [(model, item.messages) for model in models]
    turns: list[tuple[Turn, ...]] = []
    for number, asked in enumerate((*item.followups, None), 1):
        made = await ask.settle(
            *(
                GenerateAsk(
                    model,
                    messages,
                    sampling,
                    item_key=item.key,
                    turn=number,
                    top_logprobs=top_logprobs,
                )
                for model, messages in contexts
            )
        )
        for outcome in made:
            if isinstance(outcome, Failure) and not (go_on and outcome.permanent):
                raise AskFailed(outcome)
        turns.append(
            tuple(
                Turn(number, model, messages, outcome)
                for (model, messages), outcome in zip(contexts, made, strict=True)
                if not isinstance(outcome, Failure)
            )
        )
        if asked is not None:
            said = [(turn, Message("assistant", turn.answer.text)) for turn in turns[-1]]
            contexts = [
                (turn.model, (*turn.messages, answered, Message("user", asked)))
                for turn, answered in said
            ]
    return turns


def further_draws(
    unit: Unit, ask: Ask, messages: Messages, drawing: Drawing, n: int, **hot: float
) -> list[GenerateAsk]:
    """Ask a unit's model n times more, told apart by their repeat index.

    `hot` are settings that take the place of those of `drawing`, of every category alike.
    """
    sampling = drawing.model_copy(update={**hot, "temperature_by_category": {}}).sampling()
    return [
        ask.generate(unit.models[0], messages, sampling, item_key=unit.item.key, repeat=repeat)
        for repeat in range(n)
    ]


def questions(turns: Sequence[Turn]) -> str:
    """Return the user's questions for a judge: the only one as it is, several numbered."""
    return _numbered([turn.messages[-1].content for turn in turns])


def replies(turns: Sequence[Turn]) -> str:
    """Return the model's answers for a judge: the only one as it is, several numbered."""
    return _numbered([turn.answer.text for turn in turns])


def references(item: Item, turns: Sequence[Turn]) -> str | None:
    """The references of these turns, for a judge: the one there is, or all of them, numbered."""
    known = [(turn.number, item.reference_of(turn.number)) for turn in turns]
    given = [f"[Turn {number}]\n{text}" for number, text in known if text is not None]
    if len(turns) == 1 or not given:
        return known[0][1]
    return "\n\n".join(given)


def _numbered(texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    return "\n\n".join(f"[Turn {number}]\n{text}" for number, text in enumerate(texts, 1))


def fields(item: Item, *shown: Sequence[Turn]) -> dict[str, str | None]:
    """Return what a judge's prompt may show, by our names and those of the harnesses.

    `shown` are the turns of one answer, or of the one shown first and the one shown second.
    """
    turns = shown[0]
    found: dict[str, str | None] = dict.fromkeys(
        ("question", "prompt", "instruction"), questions(turns)
    )
    found["reference"] = references(item, turns)
    # FastChat's names for the texts of each turn
    for turn in turns:
        found[f"question_{turn.number}"] = turn.messages[-1].content
        found[f"ref_answer_{turn.number}"] = item.reference_of(turn.number)
    sides = ("answer",) if len(shown) == 1 else ("answer_a", "answer_b")
    for name, side in zip(sides, shown, strict=True):
        found |= {f"{name}_{turn.number}": turn.answer.text for turn in side}
    if len(shown) == 1:
        return found | dict.fromkeys(("answer", "response"), replies(turns))
    first, second = map(replies, shown)
    found |= dict.fromkeys(("answer_a", "response", "response_1", "output_1"), first)
    return found | dict.fromkeys(("answer_b", "response_another", "response_2", "output_2"), second)
