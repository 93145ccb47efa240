"""The contract of a method file, and settings for drawing texts, which all methods share.

A method file exports

* `Config`: a frozen pydantic model; the fields `candidates` and `judges` name models by convention,
* `VERSION`: raised whenever its prompts or its arithmetic change, so that stale rows are not shown,
* `FRAME` and `SCHEMA`: the name and the columns (name -> type) of the frame its rows go to,
* `combinations(candidates, config)`: who is evaluated with whom, for each item,
* `columns(unit)`: the columns that identify a unit, also in the row of a failed one,
* `stages(candidates, config)`: what one item costs, for the plan,
* `needs(config)`, if it has one: parts of an item (such as `reference`) that it can't do without,
* `summarise(context)`, if it has one (see `orchestrator/summaries/_base.py`): what its rows mean,
* `demonstrates(config)`, if it has one: whether a unit brings another item with a reference along,
* `SCORES`, if it has some: columns that say how good an answer is, with 1 where more is better and
  -1 where less is; in a frame of pairs (`model_a`, `model_b`) the probability that A is better,
* `compared(config)`, if its rows say on each item which of two models is better: the column that
  does and its bounds, so that a run may stop asking (`orchestrator/scheduler/blocks.py`),
* `scores(config)` instead of `SCORES` where the columns depend on the settings, and
  `derive(rows, config)`, if it has one: its rows with columns that need all of them,
* `comparers(config)`, if it compares texts: what does, as name -> (kind of back-end, settings); it
  runs on this machine and is asked by that name (`orchestrator/recipe/similarity.py`),
* `companions(config)`: other methods whose frames come with it, from the same answers,
* `evaluate(unit, ask, config)`: the coroutine itself. It returns rows. A row whose status is "ok"
  gives every column of `SCHEMA`, None where a value is undefined, except "cause" and "message";
  one whose status is "failed" gives a cause. Any other row is a fault of the method.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol

import msgspec
from pydantic import BaseModel, Field

from orchestrator.ask import Ask, ChooseAsk, GenerateAsk
from orchestrator.contracts import STATUS_COLUMNS as STATUS_COLUMNS
from orchestrator.methods._temperatures import BY_BENCHMARK
from orchestrator.records import Row, Sampling, Unit
from orchestrator.settings import Settings

_Temperature = Annotated[float, Field(ge=0)]


def blank_row(schema: Mapping[str, str]) -> Row:
    """Return a row in which every column is undefined, for methods that fill in some of them."""
    return dict.fromkeys(schema)


class Combination(msgspec.Struct, frozen=True):
    """The models that one unit compares, and its judge where there is one."""

    models: tuple[str, ...]
    judge: str = ""


class Compared(msgspec.Struct, frozen=True):
    """The column that compares two models on an item, higher for the better one.

    Attributes:
        column: Its name. In rows of two models it is for the first, and in the middle for a tie.
        low: Least value there can be.
        high: Largest.
    """

    column: str
    low: float
    high: float


class Stage(msgspec.Struct, frozen=True):
    """A kind of request that one item leads to.

    Attributes:
        name: "answers", "reasoning", "judgments", …
        model: Who is asked.
        ask: "generate", "score", "choose" or "similarity".
        per_item: Requests for one turn of an item.
        exact: False where the number depends on what is answered: then it is an upper bound.
        max_tokens: Bound on generated tokens of one request.
        features: Of `records.FEATURES`, what is observed in a scoring pass and can't be done
            without.
        draw: What else decides the texts: stages of several methods that are alike in name, model
            and this are counted once.
        per_turn: Whether each turn of an item leads to as many; else the first alone does.
        top_logprobs: How many alternatives of each token are asked for.
        examples: Asks of a made-up item, with which a server is tried before the first request: of
            "choose" one for each place at which labels are read, of "generate" a text whose
            log-probabilities have to be the model's own.
    """

    name: str
    model: str
    ask: str
    per_item: int
    exact: bool = True
    max_tokens: int = 0
    features: tuple[str, ...] = ()
    draw: str = ""
    per_turn: bool = True
    top_logprobs: int = 0
    examples: tuple[ChooseAsk | GenerateAsk, ...] = ()


class MethodSettings(Settings):
    """Base of every method's `Config`."""

    name: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_. -]*$",
        max_length=60,
        description="What tables call it, in the column `method` of its rows; the kind where left "
        "out. Needed where a recipe has several of one kind.",
    )


class Drawing(Settings):
    """Settings for drawing texts."""

    max_tokens: int = Field(512, gt=0, description="Upper bound on generated tokens.")
    temperature: float = Field(0.0, ge=0, description="0 is greedy.")
    top_p: float = Field(1.0, gt=0, le=1, description="1 is off.")
    top_k: int = Field(0, ge=0, description="0 is off.")
    stop: tuple[str, ...] = Field((), description="Strings that end the text.")
    temperature_by_category: Literal["mt_bench", "align_bench"] | dict[str, _Temperature] = Field(
        default_factory=dict,
        description="Temperatures of categories, over `temperature`: a mapping, or the name of a "
        "benchmark for what its authors set.",
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


class Method(Protocol):
    """The contract of a method module."""

    Config: type[BaseModel]
    VERSION: int
    FRAME: str
    SCHEMA: dict[str, str]

    def combinations(self, candidates: Sequence[str], config: Any) -> list[Combination]:  # noqa: ANN401
        """Return the combinations of models and judge that evaluate each item."""
        ...

    def columns(self, unit: Unit) -> Row:
        """The columns that identify a unit."""
        ...

    def stages(self, candidates: Sequence[str], config: Any) -> list[Stage]:  # noqa: ANN401
        """Return the requests that one item needs, by stage."""
        ...

    def companions(self, config: Any) -> list[tuple[str, BaseModel]]:  # noqa: ANN401
        """Kinds and settings of methods whose frames come with this one."""
        ...

    async def evaluate(self, unit: Unit, ask: Ask, config: Any) -> list[Row]:  # noqa: ANN401
        """The method itself."""
        ...
