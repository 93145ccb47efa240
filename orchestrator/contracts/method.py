"""The base classes of methods, and of what reads their rows: statistics, summaries and analyses."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import TypeVar

from orchestrator import plugins
from orchestrator.ask import Ask, ChooseAsk, GenerateAsk, RewardAsk
from orchestrator.columns import AnswerColumns, PairColumns, RewriteColumns, RowRoles, ScoreColumns
from orchestrator.plugins.base import ConfigT as _SettingsT
from orchestrator.plugins.base import Plugin, Settings
from orchestrator.records import Row, Unit

if TYPE_CHECKING:
    import polars as pl

    from orchestrator.contracts.context import Context
    from orchestrator.figures import Figure
    from orchestrator.tables import Table

Values = NDArray[np.float64]
Columns = Mapping[str, str]
"""Columns of a frame: name to one of `COLUMN_TYPES`."""


def typed(*rows: str) -> Columns:
    """Columns with their types, in this order: `"item judge: str | mean std: f64"`."""
    groups = (group.split(": ") for row in rows for group in row.split(" | "))
    return {name: kind for names, kind in groups for name in names.split()}


STATUS_COLUMNS: Final[Columns] = typed("status cause message: str")
"""Columns that every frame of a method has."""


class NamesModel:
    """Marks a setting whose text is the name of a model of the recipe."""


ModelName = Annotated[str, NamesModel()]
"""The type of a setting that names a model of the recipe: one that it has not is a fault."""


class MethodSettings(Settings):
    """Base of every method's settings."""

    name: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_. -]*$",
        max_length=60,
        description="Name of the method in tables and in the column `method` of its rows. "
        "Default: its kind. Required if a recipe has several methods of one kind.",
    )
    candidates: tuple[ModelName, ...] | None = Field(
        None, description="Models to evaluate. Default: all that are not judges.", min_length=1
    )


ConfigT = TypeVar("ConfigT", bound=MethodSettings, covariant=True, default=MethodSettings)


class Combination(msgspec.Struct, frozen=True):
    """The models that one unit compares, and its judge where there is one."""

    models: tuple[str, ...]
    judge: str = ""

    @property
    def gate(self) -> str:
        """The model that is asked last, the judge where there is one."""
        return self.judge or self.models[-1]


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


class Companion(msgspec.Struct, frozen=True):
    """Another method whose frame comes with a method's own, from the same answers.

    Attributes:
        kind: Of the other method.
        config: Its settings.
    """

    kind: str
    config: MethodSettings


class Comparer(msgspec.Struct, frozen=True):
    """A back-end on this machine that compares texts.

    Attributes:
        kind: Of the back-end.
        settings: Its settings, by name.
    """

    kind: str
    settings: Mapping[str, Any]


class Stage(msgspec.Struct, frozen=True):
    """A kind of request that one item leads to.

    Attributes:
        name: "answers", "reasoning", "judgments", …
        model: Who is asked.
        ask: "generate", "score", "choose", "similarity" or "reward".
        per_item: Requests for one turn of an item.
        exact: False where the number depends on what is answered: then it is an upper bound.
        max_tokens: Bound on generated tokens of one request.
        features: Of `records.FEATURES`, what is observed in a scoring pass and can't be done
            without.
        draw: What else decides the texts: stages of several methods that are alike in name, model
            and this are counted once.
        per_turn: Whether each turn of an item leads to as many; else the first alone does.
        top_logprobs: How many alternatives of each token are asked for.
        known: False if the method does not say how many requests it sends: `per_item` is then no
            bound.
        examples: Asks of a made-up item, with which a server is tried before the first request: of
            "choose" one for each place at which labels are read, of "generate" a text whose
            log-probabilities have to be the model's own, of "reward" a conversation to rate.
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
    known: bool = True
    examples: tuple[ChooseAsk | GenerateAsk | RewardAsk, ...] = ()

    @property
    def mark(self) -> tuple[str, str, str]:
        """Name, model and draw; stages of several methods that are alike in them are one."""
        return self.name, self.model, self.draw


class Method(Plugin[ConfigT], ABC):
    """A method of evaluation: a coroutine over `ask` that turns a unit into rows.

    `columns` and `evaluate` must be given, all else has a default: one unit a model, with each
    judge if there are any, whose rows have `item`, `category` and `model` beside `columns`.

    Attributes:
        version: Raise it whenever prompts or arithmetic change: rows of an older version are then
            computed anew.
        frame: Name of the frame that its rows go to; the last part of its kind where empty.
        unit_columns: Columns that say what a row is about; `identify` gives their values.
        columns: The other columns, besides `status`, `cause` and `message`, which all rows have.
        feeds_others: Whether its units draw answers that units of other methods use: those are
            opened when its units of the same item have ended.
        pairs: Columns of rows that compare two models: they give rankings and figures.
        distribution: Columns of rows with a distribution over scores: they give figures.
        rewriting: Columns of rows in which a model rewrites its answer: they give examples.
        answers: Columns of rows that are answers, which rows of other methods are about.
        derived: Scores that analyses compute of several columns, and name like a column.
        summary: Turns its rows into tables; None for the default: a table of the mean of each
            column of `scores` by model and judge. Bundled kinds have
            `orchestrator/summaries/<kind>.py` instead, if there is one.
    """

    Config: ClassVar[type[MethodSettings]] = MethodSettings
    version: ClassVar[int] = 1
    frame: ClassVar[str] = ""
    unit_columns: ClassVar[Columns] = {"item": "str", "category": "str", "model": "str"}
    columns: ClassVar[Columns]
    feeds_others: ClassVar[bool] = False
    pairs: ClassVar[PairColumns | None] = None
    distribution: ClassVar[ScoreColumns | None] = None
    rewriting: ClassVar[RewriteColumns | None] = None
    answers: ClassVar[AnswerColumns | None] = None
    derived: ClassVar[Sequence[str]] = ()
    summary: ClassVar[type[Summary[MethodSettings]] | None] = None

    @property
    def name(self) -> str | None:
        """Its name in tables as the recipe gives it; None for the kind."""
        return self.config.name

    @property
    def candidates(self) -> tuple[str, ...] | None:
        """Models to evaluate; None for all models that are not judges."""
        return self.config.candidates

    @property
    def judges(self) -> tuple[str, ...]:
        """Models that take part without being evaluated; by default the setting `judges`."""
        return getattr(self.config, "judges", ())

    @property
    def scores(self) -> Mapping[str, int]:
        """Columns that say how good an answer is, with 1 if more is better and -1 if less is.

        In a frame of pairs (`model_a`, `model_b`) a score is the probability that A is better.
        """
        return {}

    @property
    def top_logprobs(self) -> int:
        """Number of alternatives that are observed at each token of the candidates' answers."""
        return 0

    def combinations(self, candidates: Sequence[str]) -> Sequence[Combination]:
        """Return the units of one item: who is evaluated, and by which judge."""
        judges = self.judges or ("",)
        return [Combination((model,), judge) for judge in judges for model in candidates]

    def identify(self, unit: Unit) -> Row:
        """Return the values of `unit_columns`, also for the row of a unit that failed."""
        known: Row = {
            "item": unit.item.key,
            "category": unit.item.category,
            "model": unit.models[0],
            "judge": unit.judge,
        }
        if len(unit.models) == 2:
            known["model_a"], known["model_b"] = unit.models
        return {name: known[name] for name in self.unit_columns if name in known}

    def stages(self, candidates: Sequence[str]) -> Sequence[Stage]:
        """Return the requests that one item leads to, for the plan.

        By default that is not known: a text a unit, or more.
        """
        units = self.combinations(candidates)
        asked = [unit.judge or unit.models[0] for unit in units]
        name, draw = type(self).__name__, self.config.model_dump_json()
        return [
            Stage(name, model, "generate", asked.count(model), exact=False, draw=draw, known=False)
            for model in dict.fromkeys(asked)
        ]

    def needs(self) -> frozenset[str]:
        """Return the parts of an item that it can't do without, such as `reference`."""
        return frozenset()

    def companions(self) -> Sequence[Companion]:
        """Return the methods whose frames come with this one."""
        return ()

    def comparers(self) -> Mapping[str, Comparer]:
        """Return the back-ends on this machine that it asks to compare texts, by name."""
        return {}

    def compared(self) -> Compared | None:
        """Return the column that compares two models on an item, so that a run may stop early."""
        return None

    @property
    def derives_from(self) -> Collection[str] | None:
        """Columns that `derive` reads, texts as categories where that is enough; all where None."""
        return None

    def derive(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows with further columns, which need all of them."""
        return rows

    @abstractmethod
    async def evaluate(self, unit: Unit, ask: Ask) -> Row | list[Row]:
        """Evaluate a unit and return its row or rows.

        A row may leave out what `identify` gives, `status` where it is "ok", and, where it is
        "failed", all others but `cause`. Any other column must be there, None where it is
        undefined.

        Raises:
            AskFailed: If the unit fails; it need not be caught.
        """


def frame_of(method: type[Method[MethodSettings]], kind: str) -> str:
    """Return the name of the frame that the rows of a kind go to."""
    return method.frame or re.sub(r"\W", "_", plugins.label(kind), flags=re.ASCII)


def roles_of(method: type[Method[MethodSettings]]) -> RowRoles:
    """Return the roles of the columns of a method's rows."""
    return RowRoles(method.pairs, method.distribution, method.rewriting, method.answers)


def clash_in(frame: str, one: type[Method], other: type[Method]) -> str:
    """Return what two methods that write one frame declare differently; empty for nothing."""
    what = ""
    if list(schema_of(one).items()) != list(schema_of(other).items()):
        what = "columns"
    elif roles := roles_of(one).differing(roles_of(other)):
        what = f"roles of columns ({', '.join(roles)})"
    if not what:
        return ""
    return f"write the frame {frame!r} with different {what}; set a different 'frame' for each"


def is_judging(method: Method[MethodSettings]) -> bool:
    """Return True if a method's rows say which of two answers is better, by a judge."""
    return method.distribution is not None or (method.pairs is not None and method.pairs.ranked)


def schema_of(method: type[Method[MethodSettings]]) -> Columns:
    """Return all columns that a method's rows have, in their order."""
    return {**method.unit_columns, **method.columns, **STATUS_COLUMNS}


# -- what reads the rows of methods ----------------------------------------------------------------


class StatisticSettings(Settings):
    """Base of every statistic's settings."""

    method: str = Field(description="Name of a method of this recipe.")
    column: str = Field(description="A column of numbers in its rows.")


StatisticConfigT = TypeVar(
    "StatisticConfigT", bound=StatisticSettings, covariant=True, default=StatisticSettings
)


class Statistic(Plugin[StatisticConfigT], ABC):
    """One number a model, of a column of a method's rows, with a bootstrap interval.

    `of` is called with the values of one model and with each resample of them: whole items are
    drawn with replacement, or whole clusters of items where the dataset names them.
    """

    Config = StatisticSettings

    @property
    def title(self) -> str:
        """Heading of the number in tables; the name of the class by default."""
        return type(self).__name__

    @abstractmethod
    def of(self, values: Values) -> float:
        """Return the number for values of shape (n,), n >= 1; nan where it is undefined."""


class Summary(Plugin[_SettingsT], ABC):
    """Tables of a method's rows; its settings are those of the method.

    It sends nothing: what it needs is in the frames. It is asked only where its method has rows.

    Attributes:
        reads: Columns of the rows that it is given; all where None. No others are read, so that the
            texts of a long run take no memory. Of methods of this project the rows are those of
            `ranking.cells.numbered`, which also reads columns that depend on settings.
        reads_alone: Whether its tables depend on nothing but the rows of the method, the clusters
            of items and settings: then a run keeps them, and computes them once. Of kinds of this
            project only.
        bradley_terry: True if its ratings are Bradley-Terry's over the pairs of its method: then
            those at equal style stand beside them, as they do where reports rank by the pairs.
        section: Heading of its figures in the report; the name of the method where empty.
    """

    reads: ClassVar[Sequence[str] | None] = None
    reads_alone: ClassVar[bool] = False
    bradley_terry: ClassVar[bool] = False
    section: ClassVar[str] = ""

    @abstractmethod
    def summarise(self, context: Context) -> list[Table]:
        """Return the tables, most important first; [] where there is nothing to say."""

    def figures(self, context: Context) -> list[Figure]:  # noqa: ARG002 (for those that draw)
        """Return figures for the HTML report, most important first; none by default.

        Where a summary makes none, the first column with intervals of its first table is drawn.

        Args:
            context: As of `summarise`, but with all methods of the recipe as `sources`.
        """
        return []


class Analysis(Plugin[_SettingsT], ABC):
    """Tables over the frames of a run, asked for under `analyses:` in a recipe.

    It sends nothing: what it needs is in the frames.
    """

    def check(self, items: Callable[[], Collection[str]], models: Collection[str]) -> None:
        """Check files that the settings name, before a run begins; by default there are none.

        Args:
            items: Gives the keys of all items of the dataset.
            models: Names of the recipe's models.

        Raises:
            OrchestratorError: With what is wrong, by file and line.
        """

    @abstractmethod
    def summarise(self, context: Context) -> list[Table]:
        """Return the tables, most important first; [] where there is nothing to say.

        Raises:
            OrchestratorError: If it can't be made; the text becomes a note of an empty table.
        """
