"""A question that a run answers, the numbers behind it, and reasons to trust or doubt them."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from orchestrator import numbers
from orchestrator.report.words import Name, Part, Phrase, Quote, names, phrase
from orchestrator.statistics.judgments import CoverageSummary
from orchestrator.statistics.trust import Trust
from orchestrator.tables import Cell, Measured, Table

State = Literal["answered", "tied", "open", "withheld", "empty"]
"""One model leads; some lead together; no two can be told apart; no result; no data."""


class Standing(msgspec.Struct, frozen=True):
    """One model, or score, as the answer ranks it.

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
    is_doubtful: bool = msgspec.field(default=False, name="doubtful")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question, its answer and what the answer rests on.

    Attributes:
        source: Name of the method.
        judge: Whose judgments; None for those of all judges, or where there are none.
        subject: The method and its judge, in words.
        state: Kind of answer.
        answer: In a sentence.
        detail: What must be read with the answer, e.g. why there is none; empty for nothing.
        over: Kind of what is ordered: "model" or "score".
        measure: The number by which models are ordered, with its unit.
        interval: Heading of its intervals, with their level where that is known.
        standings: The models, best or highest first.
        apart: Models that can be told apart, over all pairs.
        n_pairs: Pairs of models compared.
        n_apart: Of these, pairs that can be told apart.
        basis: Sample size and intervals.
        checks: Reasons to trust the answer or not.
        cautions: What not to conclude from it.
        is_percent: Whether the numbers are shares, shown as percentages.
        least_span: Least length of an axis on which they are drawn; 0 fits it to the numbers.
    """

    source: str
    judge: str | None = None
    subject: Phrase
    state: State
    answer: Phrase
    detail: str = ""
    over: str = "model"
    measure: str = ""
    interval: str = "interval"
    standings: tuple[Standing, ...] = msgspec.field(default=(), name="models")
    apart: Phrase = Phrase()
    n_pairs: int = 0
    n_apart: int = 0
    basis: str = ""
    checks: tuple[Check, ...] = ()
    cautions: tuple[Phrase, ...] = ()
    is_percent: bool = False
    least_span: float = 0.0

    @property
    def is_drawn(self) -> bool:
        """True if its numbers may be drawn: a picture of meaningless ones would mislead."""
        return self.state != "withheld" and any(one.value is not None for one in self.standings)


# Times as large a share of missing judgments as that of another model.
_CONCENTRATED: Final = 1.5
_MANY: Final = 0.05
# A share of judgments with little mass on the labels that deserves a mark.
_MUCH_LOW_MASS: Final = 0.05


def no_order_yet(trusts: Sequence[Trust]) -> Phrase:
    """State that there is no order of the models while trust in a judge is open."""
    open_ = [
        trust.judge or "the judge" for trust in trusts if trust.verdict == "cannot be said yet"
    ]
    return phrase("No ranking yet: whether ", names(open_), " can be trusted cannot be said yet.")


def of_coverage(coverage: CoverageSummary) -> Iterator[Check]:
    """Yield how much of the judge's probability is on the labels, if that is known."""
    if coverage.n:
        low = numbers.percent(coverage.share_low)
        text = (
            f"{numbers.probability(coverage.mean)} of the judge's probability is on the labels "
            f"(mean); {low} of readings have less than half there."
        )
        yield Check("form", phrase(text), coverage.share_low > _MUCH_LOW_MASS)


def of_judge(trust: Trust) -> Iterator[Check]:
    """Yield what the rows of a judge without a ranking say of it."""
    yield from of_coverage(trust.coverage)
    if trust.n_decided:
        shown = numbers.percent(trust.flips.value, *trust.flips.ends)
        pairs = f"{numbers.counted(trust.n_decided, 'pair')} with a winner in both orders"
        text = f"the winner flips with the order in {shown} of {pairs}."
        yield Check("order", phrase(text), trust.verdict != "trusted")
    if trust.n_units:
        yield missing_check(trust.n_missing, trust.n_units, [trust])


def missing_check(
    n_missing: int, n_units: int, trusts: Sequence[Trust], example: str = ""
) -> Check:
    """Return how many judgments are missing, why, and of which model most.

    Args:
        n_missing: Judgments without a result.
        n_units: Judgments that have ended.
        trusts: Of the judges that they are of.
        example: A message of one that failed.
    """
    of = numbers.counted(n_units, "judgment")
    if not n_missing:
        return Check("missing", phrase(f"none of {of} missing."))
    causes: Counter[str] = Counter()
    of_models: dict[str, tuple[int, int]] = {}
    for trust in trusts:
        causes.update(dict(trust.causes))
        for one in trust.of_models:
            n, lost = of_models.get(one.model, (0, 0))
            of_models[one.model] = (n + one.n_units, lost + one.n_missing)
    said: list[Part] = [f"{numbers.count(n_missing)} of {of} missing and not filled in"]
    if causes:
        most = ", ".join(f"{cause} {numbers.count(n)}" for cause, n in causes.most_common(3))
        said += [" (", Quote(most), ")"]
    shares = {model: lost / n for model, (n, lost) in of_models.items() if n}
    if len(shares) > 1:
        model = max(shares, key=lambda name: shares[name])
        if shares[model] >= max(_MANY, _CONCENTRATED * min(shares.values())):
            n, lost = of_models[model]
            said += [
                f"; {numbers.count(lost)} of them among the {numbers.count(n)} with ",
                Name(model),
            ]
    said += [". For example: ", Quote(example)] if example else ["."]
    return Check("missing", phrase(said), is_doubtful=True)


_BUNDLED: Final = "bundled:"
_DEMO: Final = "demo"
_LEAST_FAMILY: Final = 3
# Beginnings of names that say nothing of a family.
_PLAIN: Final = frozenset({"model", "judge", "chat", "base", "test"})
_STYLED: Final = ["rating", "at equal style", "change"]
# A change of a rating that deserves a mark even if the same model leads, Elo points.
_MUCH: Final = 50.0


def of_settings(settings: Mapping[str, Any], source: str, judge: str | None) -> Iterator[Check]:
    """Yield what a recipe says of the judges of a method.

    Args:
        settings: The resolved recipe.
        source: Name of the method.
        judge: The one that a question is about; None for all of the method.
    """
    entries = settings.get("methods") or ()
    entry = next((one for one in entries if source in (one.get("name"), one.get("kind"))), None)
    if entry is None:
        return
    models = settings.get("models") or {}
    every = {one for other in entries for one in other.get("judges") or ()}
    candidates = entry.get("candidates") or [one for one in models if one not in every]
    dataset = (settings.get("dataset") or {}).get("kind")
    for one in entry.get("judges") or ():
        if judge in (None, one):
            yield from _alike(one, candidates, models)
            if _name(one, models).startswith(_BUNDLED) and dataset != _DEMO:
                text = " is a bundled model, trained on the tasks of the demo alone: "
                end = "what it says of other prompts means little."
                yield Check("judge", phrase(Name(one), text, end), is_doubtful=True)


def _alike(judge: str, candidates: Sequence[str], models: Mapping[str, Any]) -> Iterator[Check]:
    own = _name(judge, models)
    family = _family(own)
    called = {one: _name(one, models) for one in candidates}
    same = [one for one in candidates if one == judge or called[one] == own]
    kin = [one for one in candidates if family and _family(called[one]) == family]
    kin = [one for one in kin if one not in same]
    if same:
        said = phrase(Name(judge), " judges itself (as ", names(same), "): it may favour itself.")
        yield Check("judge", said, is_doubtful=True)
    if kin:
        why: list[Part] = [" by their names (", Quote(family), "): it may prefer their answers."]
        said = phrase(Name(judge), " is of one family with ", names(kin), why)
        yield Check("judge", said, is_doubtful=True)


def _name(name: str, models: Mapping[str, Any]) -> str:
    """The model behind a name: its weights, or what its server calls it."""
    entry = models.get(name) or {}
    return str(entry.get("weights") or entry.get("model") or name)


def _family(called: str) -> str:
    """The letters that a model's own name begins with; empty where they say nothing."""
    letters = "".join(re.findall("^[a-z]+", re.split("[/:]", called.lower())[-1]))
    return "" if len(letters) < _LEAST_FAMILY or letters in _PLAIN else letters


def of_style(tables: Sequence[Table], source: str) -> Iterator[Check]:
    """Yield what control of length and style makes of the ratings of a method.

    Args:
        tables: Of summaries and analyses.
        source: Name of the method.
    """
    styled = (one for one in tables if (one.source, one.key) == (source, "style_control"))
    table = next(styled, None)
    if table is None or [column.name for column in table.columns[1:4]] != _STYLED:
        return
    names_of = [str(row[0]) for row in table.rows]
    plain, equal, change = ([_value(row[at]) for row in table.rows] for at in (1, 2, 3))
    if len(names_of) < 2 or not all(map(math.isfinite, (*plain, *equal, *change))):
        return
    first, then = (names_of[max(range(len(of)), key=of.__getitem__)] for of in (plain, equal))
    at = max(range(len(change)), key=lambda k: abs(change[k]))
    moved: list[Part] = ["."]
    if points := round(abs(change[at])):
        way = "rises" if change[at] > 0 else "falls"
        moved = ["; ", Name(names_of[at]), f" {way} by {numbers.counted(points, 'point')}."]
    highest = " is rated highest" + ", too" * (first == then)
    said = phrase("at equal length and style ", Name(then), highest, moved)
    cell = table.rows[at][3]
    low, high = (cell.low, cell.high) if isinstance(cell, Measured) else (None, None)
    is_sure = low is not None and high is not None and low * high > 0.0
    yield Check("style", said, first != then or (is_sure and abs(change[at]) >= _MUCH))


def _value(cell: Cell) -> float:
    return cell.value if isinstance(cell, Measured) and cell.value is not None else math.nan
