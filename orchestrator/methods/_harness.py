"""Formats, settings, rows, and the reading of texts and slots for judges that write their verdict.

A judge writes a text; its verdict is what the harness's own parser finds in it. Where asked for,
the whole distribution over the labels is read at the very place where the verdict stands, from the
judge's probabilities: the verdict of one greedy text hides how sure it was.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar

from pydantic import Field

from orchestrator.contracts.rows import failed_row
from orchestrator.judgment.distribution import LabelDistribution
from orchestrator.judgment.verdicts import NONE, Match, Reading, Winner, matched
from orchestrator.methods._drawing import (
    Drawing,
    Judges,
    OfAnswers,
    OfAnswersSettings,
    Turn,
    converse,
    fields,
    pairs_by_judge,
)
from orchestrator.methods._examples import BEGUN, BEGUN_REPLY, messages
from orchestrator.methods._verdicts import after_thinking, cut, distributions, spelled
from orchestrator.plugin import (
    Ask,
    ChooseAsk,
    Columns,
    Combination,
    Failure,
    Generation,
    Item,
    Label,
    Message,
    PairColumns,
    Prefix,
    Row,
    Stage,
    Unit,
    labels,
    typed,
)
from orchestrator.prompts import compact
from orchestrator.prompts.files import Wording


class Format(NamedTuple):
    """The format in which a harness writes verdicts.

    Attributes:
        read: The one verdict that a text has: a rating, or a winner in the order shown.
        labels: What may stand where a verdict does.
        values: What each label is worth: a rating, or P(first is better).
        published: What the released code reads, whatever its convention; left out, that reads no
            text otherwise.
        unparsed: What each convention writes for no verdict; of those left out, none.
        dropped: What the harness's own convention writes for no verdict and leaves out of means.
    """

    read: Callable[[str], Reading]
    labels: tuple[str, ...]
    values: tuple[float, ...]
    published: Callable[[str], Match | None] | None = None
    unparsed: Mapping[str, float] = {}
    dropped: float | None = None

    def by(self, text: str, convention: str | None) -> tuple[float | str | None, Match | None]:
        """The verdict by a convention, or by none, and its place; None for no verdict."""
        if convention is None or self.published is None:
            found = self.read(text).match
            return (None if found is None else found.value), found
        found = self.published(text)
        value = None if found is None else found.value
        return (self.unparsed.get(convention) if value is None else value), found


TEN: Final = tuple(str(rating) for rating in range(1, 11))
RATINGS: Final = tuple(map(float, TEN))
PAIR: Final = (1.0, 0.0, 0.5)
"""P(first is better) of the labels of a comparison: the first, the second, neither."""


def _alone(pattern: str, value_of: Callable[[str], float | str]) -> Callable[[str], Reading]:
    """Return the reading of a text that is nothing but a label."""
    whole = re.compile(rf"\s{{0,8}}({pattern})(?=\s{{0,8}}\Z)")

    def read(text: str) -> Reading:
        found = whole.match(text)
        return Reading() if found is None else Reading(matched(found, value_of(found[1])), cause="")

    return read


_WINNERS: Final = dict(zip(compact.LABELS, ("A", "A", "tie", "B", "B"), strict=True))
COMPACT_FORMATS: Final = (
    Format(_alone("[1-9]", float), compact.RATINGS, tuple(map(float, compact.RATINGS))),
    Format(
        _alone(r"\[\[(?:>>|>|=|<|<<)\]\]", _WINNERS.__getitem__),
        compact.LABELS,
        (1.0, 1.0, 0.5, 0.0, 0.0),
    ),
)
COMPACT: Final = {
    False: Wording(user=compact.RATING, form="jinja"),
    True: Wording(user=compact.PAIRWISE, form="jinja"),
}
"""Formats and wordings of the bundled judge (`prompts: compact`): a rating, and a comparison."""


class HarnessSettings(OfAnswersSettings):
    """Settings that all these judges have."""

    answer: Drawing = Field(Drawing(), description="Sampling settings of answers.")
    judgment: Drawing = Field(
        Drawing(max_tokens=2048), description="Sampling settings of the text of the judge."
    )
    distribution: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description="If true, also read the probability of every label at the verdict.",
    )

    # Of those derived from this one, which have them in their own order.
    if TYPE_CHECKING:
        prompts: str | dict[str, Wording]
        convention: str | None

    @property
    def pairwise(self) -> bool:
        """True if the judge compares two answers; else it rates one."""
        return getattr(self, "mode", "") == "pairwise"

    def wording(self, item: Item, n_turns: int) -> Wording:
        """Return the template for an item of whose conversation so many turns are shown.

        Raises:
            AskFailed: If the wording does not show as many turns.
        """
        raise NotImplementedError

    def fields(self, item: Item) -> Mapping[str, str | None]:  # noqa: ARG002 (of subclasses)
        """Return what a template may show besides the conversation.

        Raises:
            AskFailed: If the item lacks it.
        """
        return {}


class NamedJudgesSettings(HarnessSettings):
    """Settings of those whose judges the recipe names."""

    judges: Judges


class Verdict(NamedTuple):
    """The verdict of a judge in one text.

    Attributes:
        value: By the convention asked for; None where there is none.
        read: What the text says without a convention.
        counts: Whether the harness counts the value.
        drawn: The judge's text.
        slot: The text before the verdict, and the labels as they continue from there.
        distribution: Over the labels, where it was asked for and there is a slot.
    """

    value: Any
    read: Reading
    counts: bool
    drawn: Generation
    slot: tuple[Prefix, tuple[Label, ...]] | None = None
    distribution: LabelDistribution | None = None

    @property
    def p(self) -> list[float] | None:
        """The probabilities of the labels, where they are known."""
        known = None if self.distribution is None else self.distribution.probabilities
        return None if known is None else list(known)

    def expected(self, form: Format) -> float | None:
        """The mean of what the labels are worth, by these probabilities."""
        if self.p is None:
            return None
        return sum(share * value for share, value in zip(self.p, form.values, strict=True))


_NO_REFERENCE: Final = Item(key="", messages=(Message("user", ""),))
HarnessConfigT = TypeVar("HarnessConfigT", bound=HarnessSettings, covariant=True)


class HarnessJudge(OfAnswers[HarnessConfigT]):
    """Base of methods whose judges write their verdict.

    With one model a row has `rating`, and with `distribution` the probabilities `p` of the labels
    from the worst up and their mean `expected`. With two: `winner` over both orders, each order's
    in A's view, and P(A better) + P(tie)/2 as `prefer_a`. `dimensions` is JSON.
    """

    published_as: ClassVar[str]
    """Name of the harness in plans."""
    forms: ClassVar[Sequence[Format]]
    """Formats of verdicts under its own wordings: of a rating, then of a winner if it compares."""
    frame = "verdicts"
    unit_columns: ClassVar[Columns] = typed(
        "item category: str | turn: i64 | judge model model_a model_b: str"
    )
    columns: ClassVar[Columns] = typed(
        "rating: f64 | dimensions winner winner_ab winner_ba: str | parsed: bool",
        "p p_ba: list[f64] | expected prefer_a coverage: f64 | exact same_text: bool",
        "text text_ba: str",
    )
    pairs = PairColumns(
        judge="judge",
        turn="turn",
        winner_ab="winner_ab",
        winner_ba="winner_ba",
        parsed="parsed",
        same_text="same_text",
        ranked=False,
    )

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """A text for each verdict, two a comparison, and a reading at its slot where asked for."""
        config = self.config
        judged = Counter(combination.judge for combination in self.combinations(candidates))
        draw = config.model_dump_json(exclude={"name", "judges"})
        found = []
        for judge, n_combinations in judged.items():
            n = n_combinations * (2 if config.pairwise else 1)
            # Equal answers make equal prompts, which are asked once; each further turn asks again.
            found.append(
                Stage(
                    f"{self.published_as} judgments",
                    judge,
                    "generate",
                    n,
                    exact=False,
                    max_tokens=config.judgment.max_tokens,
                    draw=draw,
                )
            )
            if config.distribution:
                # A label behind a begun answer: the prompts need parts of their own.
                example = ChooseAsk(judge, BEGUN, labels(*"123456789"), Prefix(BEGUN_REPLY))
                name = f"{self.published_as} distributions"
                found.append(
                    Stage(name, judge, "choose", n, exact=False, draw=draw, examples=(example,))
                )
        return found

    def combinations(self, candidates: Sequence[str]) -> Sequence[Combination]:
        """Every model, or every pair of models, with every judge."""
        if not self.config.pairwise:
            return super().combinations(candidates)
        return pairs_by_judge(candidates, self.judges)

    def needs(self) -> frozenset[str]:
        """The reference, where the wording of an item that has none shows it."""
        is_shown = self.config.wording(_NO_REFERENCE, 1).shows("reference")
        return frozenset({"reference"} if is_shown else ())

    def identify(self, unit: Unit) -> Row:
        """Item, category, judge, and the model or the two models."""
        known = {**dict.fromkeys(self.unit_columns), **super().identify(unit)}
        return known | ({"model": None} if len(unit.models) > 1 else {})

    def form(self) -> Format:
        """Return how verdicts are written."""
        is_compact = self.config.prompts == "compact"
        return (COMPACT_FORMATS if is_compact else self.forms)[self.config.pairwise]

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """One verdict a turn, of the conversations up to it; a comparison has both orders."""
        form = self.form()
        turns = await converse(unit.item, unit.models, ask, self.config.answer)
        so_far = [list(zip(*turns[:n], strict=True)) for n in range(1, len(turns) + 1)]
        if not self.config.pairwise:
            read = await self._read(unit, ask, form, so_far)
            return [_row(number, form, one) for number, one in enumerate(read, 1)]
        both = [shown for a, b in so_far for shown in ((a, b), (b, a))]
        read = await self._read(unit, ask, form, both)
        return [
            _row(made[0].number, form, ab, ba)
            | {"same_text": made[0].answer.text == made[1].answer.text}
            for made, ab, ba in zip(turns, read[::2], read[1::2], strict=True)
        ]

    async def _read(
        self, unit: Unit, ask: Ask, form: Format, judged: Sequence[Sequence[Sequence[Turn]]]
    ) -> list[Verdict]:
        """The judge's verdict on each that it is shown, with its distribution where asked for.

        `judged` has one sequence of turns for each answer that is shown, in their order.
        """
        config, convention = self.config, self.config.convention
        more = config.fields(unit.item)
        prompts = [
            messages(
                config.wording(unit.item, len(shown[0])), {**fields(unit.item, *shown), **more}
            )
            for shown in judged
        ]
        sampling = config.judgment.sampling(unit.item.category)
        texts: list[Generation] = await ask.all(
            *(
                ask.generate(
                    unit.judge, one, sampling, item_key=unit.item.key, offsets=config.distribution
                )
                for one in prompts
            )
        )
        found = [_verdict(text, form, convention) for text in texts]
        read = enumerate(found if config.distribution else ())
        slots = {i: one.slot for i, one in read if one.slot is not None}
        asks = (
            ask.choose(unit.judge, prompts[i], labels, prefix=prefix)
            for i, (prefix, labels) in slots.items()
        )
        for i, seen in zip(slots, await distributions(ask, asks), strict=True):
            found[i] = found[i]._replace(distribution=seen)
        return found


def _verdict(text: Generation, form: Format, convention: str | None) -> Verdict:
    """Return the verdict after any thinking block; a text whose block never ends has none."""
    begin = after_thinking(text.text)
    said = "" if begin is None else text.text[begin:]
    read = form.read(said)
    value, match = form.by(said, convention)
    counts = value is not None and (read.value is not None or value != form.dropped)
    slot = None
    if match is not None:
        prefix, lead = cut(text, (begin or 0) + match.begin)
        named = [Label(name, (name + match.closing,)) for name in form.labels]
        slot = prefix, spelled(named, lead)
    return Verdict(value, read, counts, text, slot)


def two_games(game_1: Winner | None, game_2: Winner | None) -> Winner | None:
    """The result of two games with the answers swapped, both as seen in game 1's order.

    Different verdicts are a tie (FastChat's "tie (inconsistent)"); None where a game has none.
    """
    if game_1 is None or game_2 is None:
        return None
    return game_1 if game_1 == game_2 else "tie"


def swapped(winner: Winner | None) -> Winner | None:
    """A verdict of the swapped game in the view of the first."""
    return {"A": "B", "B": "A"}.get(winner or "", winner)  # type: ignore[return-value]


def _row(number: int, form: Format, *given: Verdict) -> Row:
    """The row of one rating, or of a comparison in both orders, A first and then B first.

    Without a verdict it is a failed one, with the judge's text.
    """
    first = given[0]
    seen = [one.distribution for one in given if one.distribution is not None]
    expected = [one.expected(form) for one in given]
    row: Row = {
        **dict.fromkeys(HarnessJudge.columns),
        "turn": number,
        "parsed": all(one.read.value is not None for one in given),
        "p": first.p,
        "coverage": min((one.coverage for one in seen), default=None),
        "exact": all(one.exact for one in seen) if seen else None,
        "text": first.drawn.text,
        **_status(next((one for one in given if not one.counts), first)),
    }
    if len(given) == 1:
        return row | {"rating": first.value, "expected": expected[0]}
    one, two = first.value, swapped(given[1].value)
    ab, ba = expected
    return row | {
        "winner": two_games(one, two),
        "winner_ab": one,
        "winner_ba": two,
        "p_ba": given[1].p,
        "prefer_a": None if ab is None or ba is None else 0.5 * (ab + 1.0 - ba),
        "text_ba": given[1].drawn.text,
    }


def _status(verdict: Verdict) -> Row:
    if verdict.counts:
        return {"status": "ok"}
    why = "was cut off" if verdict.drawn.finish_reason == "length" else "ended"
    said = verdict.read.message or f"{why} without a verdict"
    return failed_row(Failure(verdict.read.cause or NONE, f"the judge's text {said}"))
