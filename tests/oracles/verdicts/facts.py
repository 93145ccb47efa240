"""What outputs say about a run, in a form in which they can be compared."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

T = TypeVar("T")
Kind = Literal["rating", "difference", "win", "category", "mean", "mean difference", "any"]


@dataclass(frozen=True)
class Number:
    """A number with its interval, as it is shown.

    Attributes:
        where: Output and place.
        kind: Of the quantity; "any" is one of which only the interval is checked.
        of: Models that it is about, of a difference or a win rate the one that it is for first.
        value: None where it is undefined or has no bound.
        low: Lower end; None without an interval, -inf where open.
        high: Upper end likewise.
        unit: Of the last digit that is shown; 0 where all are.
        judged: True if it stands beside a verdict without being called something else.
    """

    where: str
    kind: Kind
    of: tuple[str, ...]
    value: float | None
    low: float | None = None
    high: float | None = None
    unit: float = 0.0
    judged: bool = True

    def __str__(self) -> str:
        return f"{self.where}: {self.kind} {self.of} {self.value} [{self.low}, {self.high}]"


@dataclass(frozen=True)
class Apart:
    """Two models that can be told apart, the better first.

    Attributes:
        where: Output and place.
        better: Name.
        worse: Name.
        is_mean: True if the question is about means of scores and not about the ranking.
    """

    where: str
    better: str
    worse: str
    is_mean: bool = False


@dataclass(frozen=True)
class Even:
    """Two models that cannot be told apart; the rest as of `Apart`."""

    where: str
    first: str
    second: str
    is_mean: bool = False


@dataclass(frozen=True)
class Best:
    """A model that is said to be the best of all."""

    where: str
    model: str


@dataclass(frozen=True)
class Ranks:
    """The ranks that a model may have."""

    where: str
    model: str
    low: int
    high: int


@dataclass(frozen=True)
class Counted:
    """Pairs of models that can be told apart, of how many."""

    where: str
    n_apart: int
    n_pairs: int


@dataclass(frozen=True)
class Size:
    """Prompts that everything rests on, and their clusters."""

    where: str
    n_items: int
    n_clusters: int


@dataclass(frozen=True)
class Listed:
    """Models with a row, or a mark, each where all should have one."""

    where: str
    models: frozenset[str]


@dataclass(frozen=True)
class Grouped:
    """Groups of a model: two share one if and only if they cannot be told apart."""

    where: str
    model: str
    groups: frozenset[str]


@dataclass(frozen=True)
class Gated:
    """The verdict of a gate that asks whether one model is better than another.

    Attributes:
        where: The requirement.
        question: "rating" or "win_rate".
        better: The model that the requirement claims to be better.
        worse: The other.
        verdict: "holds", "fails" or "not known yet".
        n_asked: Requirements that were decided together.
    """

    where: str
    question: str
    better: str
    worse: str
    verdict: str
    n_asked: int


@dataclass
class Facts:
    """Everything that the outputs of a run say about one ranking.

    Attributes:
        models: Of the run.
        said: The statements.
        trust: Verdict on the judge: "trusted", "not trusted" or "cannot be said yet".
        is_complete: Whether every pair was judged on every prompt.
        n_prompts: Distinct prompts of the run; None where that is not known.
        says_alone: Whether every output says that the interval of a rating is for its model alone.
        unread: Sentences that should state a verdict and that the reader does not know.
    """

    models: tuple[str, ...]
    said: list[object] = field(default_factory=list)
    trust: str = "trusted"
    is_complete: bool = True
    n_prompts: int | None = None
    says_alone: bool = False
    unread: list[str] = field(default_factory=list)

    def of(self, kind: type[T]) -> list[T]:
        """Return the statements of a kind."""
        return [one for one in self.said if isinstance(one, kind)]

    def numbers(self, kind: Kind) -> list[Number]:
        """Return the numbers of a kind."""
        return [one for one in self.of(Number) if one.kind == kind]

    def add(self, said: Iterable[object]) -> None:
        """Add statements."""
        self.said += said


def excludes(number: Number, value: float) -> bool:
    """Return True if an interval surely does not contain a value, given how it is rounded."""
    low, high = ends(number)
    return value < low - number.unit / 2 or value > high + number.unit / 2


def touches(number: Number, value: float) -> bool:
    """Return True if rounding hides whether an interval contains a value."""
    return any(abs(end - value) <= number.unit / 2 for end in ends(number))


def ends(number: Number) -> tuple[float, float]:
    """Return the ends of an interval; a missing one is open."""
    return (
        -math.inf if number.low is None else number.low,
        math.inf if number.high is None else number.high,
    )
