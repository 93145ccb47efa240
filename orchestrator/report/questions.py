"""A question that a run answers: the answer in a sentence, and the numbers behind it."""

from typing import Any, Literal

import msgspec

from orchestrator.report.phrases import Phrase
from orchestrator.report.structured import plain

State = Literal["answered", "tied", "open", "withheld", "empty"]
"""One model leads; some lead together; no two can be told apart; no result; no data."""


class Standing(msgspec.Struct, frozen=True):
    """One model, as the answer ranks it.

    Attributes:
        model: Name.
        value: Its number; None where it is undefined or has no bound.
        low: Lower bound; None where open or where there is no interval.
        high: Upper bound likewise.
        low_open: Whether the data do not bound it from below.
        high_open: Whether they do not bound it from above.
        rank: The ranks that the data leave open to it, in words; empty without ranks.
        shown: The number in words.
        bounds: Its interval in words; empty without one.
    """

    model: str
    value: float | None
    low: float | None = None
    high: float | None = None
    low_open: bool = False
    high_open: bool = False
    rank: str = ""
    shown: str = ""
    bounds: str = ""


class Check(msgspec.Struct, frozen=True):
    """A reason to trust a result, or not to.

    Attributes:
        about: Its subject in a word or two.
        says: In a sentence.
        is_doubtful: Whether it speaks against the result.
    """

    about: str
    says: Phrase
    is_doubtful: bool = False

    def as_json(self) -> dict[str, Any]:
        """The check as JSON values."""
        return {"about": self.about, "says": self.says.text(), "doubtful": self.is_doubtful}


class Question(msgspec.Struct, frozen=True):
    """A question, its answer and what the answer rests on.

    Attributes:
        source: Name of the method.
        subject: The method and its judge, in words.
        state: Kind of answer.
        answer: In a sentence.
        detail: What must be read with the answer, e.g. why there is none; empty for nothing.
        measure: The number by which models are ordered, with its unit.
        interval: Heading of its intervals, with their level where that is known.
        standings: The models, best or highest first.
        apart: Models that can be told apart, over all pairs.
        basis: Sample size and intervals.
        checks: Reasons to trust the answer or not.
        cautions: What not to conclude from it.
        judge: Whose judgments; None for those of all judges, or where there are none.
        is_percent: Whether the numbers are shares, shown as percentages.
        least_span: Least length of an axis on which they are drawn; 0 fits it to the numbers.
        n_pairs: Pairs of models compared.
        n_apart: Of these, pairs that can be told apart.
    """

    source: str
    subject: Phrase
    state: State
    answer: Phrase
    detail: str = ""
    measure: str = ""
    interval: str = "interval"
    standings: tuple[Standing, ...] = ()
    apart: Phrase = Phrase()
    basis: str = ""
    checks: tuple[Check, ...] = ()
    cautions: tuple[Phrase, ...] = ()
    judge: str | None = None
    is_percent: bool = False
    least_span: float = 0.0
    n_pairs: int = 0
    n_apart: int = 0

    @property
    def is_drawn(self) -> bool:
        """True if its numbers may be drawn: a picture of meaningless ones would mislead."""
        return self.state != "withheld" and any(one.value is not None for one in self.standings)

    def as_json(self) -> dict[str, Any]:
        """The question as JSON values, its sentences as texts."""
        return {
            "source": self.source,
            "judge": self.judge,
            "subject": self.subject.text(),
            "state": self.state,
            "answer": self.answer.text(),
            "detail": self.detail,
            "measure": self.measure,
            "interval": self.interval,
            "models": [plain(msgspec.to_builtins(one)) for one in self.standings],
            "apart": self.apart.text(),
            "n_pairs": self.n_pairs,
            "n_apart": self.n_apart,
            "basis": self.basis,
            "checks": [check.as_json() for check in self.checks],
        }
