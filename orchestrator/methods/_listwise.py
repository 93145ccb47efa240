"""Lists from best to worst: read one place after the other, and the rows made of them."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations as pairs_of
from statistics import fmean
from string import ascii_uppercase
from typing import Final, NamedTuple

from orchestrator.contracts.rows import failed_row
from orchestrator.judgment.distribution import from_logprobs
from orchestrator.judgment.listwise import ListJudgment, judge_list, likeliest
from orchestrator.judgment.pairwise import judge_pair
from orchestrator.methods._drawing import Turn
from orchestrator.methods._judging import JudgeSettings, begun_reply, reason, said
from orchestrator.methods._leading import LedSettings, continued
from orchestrator.methods._verdicts import Slot, after_thinking, slot_of_list, spelled
from orchestrator.plugin import (
    Ask,
    Choice,
    ChooseAsk,
    Failure,
    Generation,
    Item,
    Label,
    Message,
    Messages,
    Prefix,
    Row,
)
from orchestrator.prompts.judging import FIRST_TURN, ListForm, next_turn
from orchestrator.records import NO_PREFIX

LETTERS: Final = tuple(Label(letter, (letter, f" {letter}")) for letter in ascii_uppercase)
"""Labels of answers, in the order in which they are shown."""
_BETWEEN: Final = " > "


class Start(NamedTuple):
    """The beginning of a list.

    Attributes:
        messages: The conversation that asks for the list, or for its first place.
        n: Number of answers that it shows.
        slot: Place of the list in a reply that gives reasons and ends with a list; None for others.
        reasons: Reply of the judge that the prefix and the list follow; empty without one.
    """

    messages: Messages
    n: int
    slot: Slot | None = None
    reasons: str = ""


class Listing(NamedTuple):
    """The form in which a list is asked for.

    Attributes:
        judge: Name of the model to query.
        led: Settings that lead the judge to the letters, with all `LETTERS` as its verdicts.
        form: "list" for one reply, "turns" for a reply at each place.
    """

    judge: str
    led: LedSettings
    form: ListForm

    def place(self, start: Start, chosen: Sequence[int]) -> ChooseAsk:
        """Return the request for the next place."""
        left = tuple(LETTERS[at] for at in range(start.n) if at not in chosen)
        slot = start.slot
        if slot is not None and not chosen:
            return ChooseAsk(self.judge, start.messages, spelled(left, slot.lead), slot.prefix)
        begun, messages = self.led.prefix, start.messages
        if self.form == "turns":
            messages += turns(self.led, start.n, chosen)
        elif slot is not None:
            begun = f"{slot.prefix.text}{slot.lead}{_listed(chosen)} >"
        else:
            begun = begun_reply(
                start.reasons, f"{written(self.led, chosen)} >" if chosen else begun
            )
        prefix = Prefix(begun) if begun else NO_PREFIX
        return ChooseAsk(self.judge, messages, continued(left, begun), prefix)

    def behind(self, messages: Messages, n: int, trace: Generation) -> Start | None:
        """Return the start of a list behind the judge's reasons; None if they lead to no list.

        In the form "list" without a prefix, the trace has a list at its end.
        """
        at = after_thinking(trace.text)
        if at is None:
            return None
        if self.form == "turns":
            reasons = trace.text[at:].strip()
            return Start((*messages, *asked_behind(reasons)), n) if reasons else None
        if self.led.prefix:
            return Start(messages, n, reasons=trace.text)
        slot = slot_of_list(trace, ascii_uppercase[:n])
        return None if slot is None else Start(messages, n, slot)


def written(led: LedSettings, chosen: Sequence[int]) -> str:
    """Return answers as the judge lists them in one reply, begun as asked for."""
    first, *rest = chosen
    return _BETWEEN.join([led.replied(first), *([_listed(rest)] if rest else [])])


def _listed(chosen: Sequence[int]) -> str:
    return _BETWEEN.join(ascii_uppercase[at] for at in chosen)


def turns(led: LedSettings, n: int, chosen: Sequence[int]) -> Messages:
    """Return the judge's replies at the places so far, each with the question for the next."""
    waiting = list(range(n))
    found: list[Message] = []
    for at in chosen:
        waiting.remove(at)
        letters = ", ".join(ascii_uppercase[one] for one in waiting)
        found += [Message("assistant", led.replied(at)), Message("user", next_turn(letters))]
    return tuple(found)


def asked_behind(reasons: str) -> Messages:
    """Return the judge's reasons as its reply, with the question for the first place."""
    return (Message("assistant", reasons), Message("user", FIRST_TURN))


class Started(NamedTuple):
    """The lists behind one prompt.

    Attributes:
        starts: One a trace; a single one where the list is asked for directly.
        n_traces: Traces with a list; 0 where none were drawn.
        n_silent: Traces without one.
    """

    starts: tuple[Start, ...]
    n_traces: int = 0
    n_silent: int = 0


async def started(
    ask: Ask,
    listing: Listing,
    prompts: Sequence[tuple[Messages, int]],
    config: JudgeSettings,
    item: Item,
) -> list[Started]:
    """Return the starts of all lists, behind the judge's reasons where these are asked for.

    Raises:
        AskFailed: If a request fails, or no trace of a prompt leads to a list.
    """
    if not config.chain_of_thought:
        return [Started((Start(*prompt),)) for prompt in prompts]
    traces = await reason(ask, listing.judge, [messages for messages, _ in prompts], config, item)
    found = []
    for prompt, drawn in zip(prompts, traces, strict=True):
        starts = said([listing.behind(*prompt, trace) for trace in drawn], drawn)
        found.append(Started(tuple(starts), len(starts), len(drawn) - len(starts)))
    return found


class ReadList(NamedTuple):
    """The readings of one list.

    Attributes:
        judgment: None if the first place could not be read.
        coverages: Probability that was on the letters left, at each place.
        exact: True if the probability of each of these letters is known, at each place.
        undefined: Reason why the list ends early; empty if it is complete.
    """

    judgment: ListJudgment | None
    coverages: tuple[float, ...]
    exact: tuple[bool, ...]
    undefined: str


async def read_lists(ask: Ask, listing: Listing, starts: Sequence[Start]) -> list[ReadList]:
    """Read lists place by place, side by side.

    Raises:
        AskFailed: With the first failure of a request.
    """
    reading = [_Reading(start) for start in starts]
    while going := [one for one in reading if one.is_open]:
        found = await ask.all(*(listing.place(one.start, one.chosen) for one in going))
        for one, choice in zip(going, found, strict=True):
            one.take(choice)
    return [one.result() for one in reading]


class _Reading:
    """A list while it is read."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self.chosen: list[int] = []
        self._choices: list[list[float]] = []
        self._coverages: list[float] = []
        self._exact: list[bool] = []
        self._undefined = ""

    @property
    def is_open(self) -> bool:
        """True if a further place is to be read; the last one follows from the others."""
        return len(self.chosen) < self.start.n - 1 and not self._undefined

    def take(self, choice: Choice) -> None:
        """Take the distribution at the next place, and let the list go on with its mode."""
        seen = from_logprobs(choice.logprobs, choice.upper)
        if seen.probabilities is None:
            self._undefined = seen.undefined or "nothing is known"
            return
        n = self.start.n
        left = [at for at in range(n) if at not in self.chosen]
        row = [0.0] * n
        for at, p in zip(left, seen.probabilities, strict=True):
            row[at] = p
        self._choices.append(row)
        self._coverages.append(seen.coverage)
        self._exact.append(seen.exact)
        self.chosen.append(likeliest(seen.probabilities, left))

    def result(self) -> ReadList:
        """Return the readings."""
        judgment = judge_list(self._choices) if self._choices else None
        return ReadList(judgment, tuple(self._coverages), tuple(self._exact), self._undefined)


class Order(NamedTuple):
    """The lists of answers that were shown in one order, one a trace.

    Attributes:
        number: Of the turn, from 1.
        models: Authors of the answers, as they were shown.
        started: The beginnings of the lists.
        lists: As they were read.
    """

    number: int
    models: tuple[str, ...]
    started: Started
    lists: list[ReadList]


class _Pair(NamedTuple):
    """The verdict of one list on A and B.

    Attributes:
        before: P(A is named before B).
        shown: The places at which A and B were shown, from 1.
        places: Their places in the list; nan for one that it does not name.
        ranks: Their expected ranks; nan where the list ended early.
        coverage: The least at the places that `before` rests on.
        exact: True if all letters' probabilities were known there.
    """

    before: float
    shown: tuple[float, float]
    places: tuple[float, float]
    ranks: tuple[float, float]
    coverage: float
    exact: bool

    @property
    def is_a_first(self) -> bool:
        """True if the list names A first; what it does not name stands behind what it does."""
        a, b = self.places
        return math.isnan(b) or a < b


def turn_rows(
    number: int, models: Sequence[str], turn: dict[str, Turn], orders: Sequence[Order]
) -> list[Row]:
    """Return the rows of one turn, one a pair of models."""
    rows: list[Row] = []
    lists = [one for order in orders for one in order.lists]
    for pair in pairs_of(models, 2):
        missing = [model for model in pair if model not in turn]
        if missing:
            said = f"no answer of {' and '.join(missing)}"
            rows += failed_pairs(number, [pair], Failure("no_answer", said, permanent=True))
            continue
        read = [[_pair(order.models, one, *pair) for one in order.lists] for order in orders]
        said_of = [[one for one in order if one is not None] for order in read]
        n_ended = len(lists) - sum(map(len, said_of))
        if n_ended:
            why = next(one.undefined for one in lists if one.undefined)
            said = f"{n_ended} of {len(lists)} lists end before either: {why}"
            rows += failed_pairs(number, [pair], Failure("no_logprobs", said, permanent=True))
            continue
        a, b = (turn[model].answer.text for model in pair)
        rows.append(
            {
                "turn": number,
                "model_a": pair[0],
                "model_b": pair[1],
                "same_text": a == b,
                "n_listed": len(turn),
                "n_traces": sum(order.started.n_traces for order in orders),
                "n_silent": sum(order.started.n_silent for order in orders),
                **_averaged(said_of),
            }
        )
    return rows


def _pair(shown: Sequence[str], one: ReadList, a: str, b: str) -> _Pair | None:
    """Return the verdict of a list on two models; None if it names neither."""
    judgment = one.judgment
    i, j = shown.index(a), shown.index(b)
    if judgment is None or judgment.settled[i][j] < 0:
        return None
    places, ranks = judgment.places(), judgment.ranks()
    until = judgment.settled[i][j] + 1
    return _Pair(
        judgment.before[i][j],
        (i + 1.0, j + 1.0),
        (places[i], places[j]),
        (ranks[i], ranks[j]),
        min(one.coverages[:until]),
        all(one.exact[:until]),
    )


def _averaged(orders: Sequence[Sequence[_Pair]]) -> Row:
    """Return the columns of a pair, averaged over the lists of each order, then over orders."""
    read = [one for order in orders for one in order]
    ab = [order for order in orders if order[0].shown[0] < order[0].shown[1]]
    ba = [order for order in orders if order[0].shown[0] > order[0].shown[1]]
    first, second = (_mean(side, lambda one: one.before) for side in (ab, ba))
    # Three levels: a list has no ties.
    p_ab, p_ba = (first, 0.0, 1.0 - first), (second, 0.0, 1.0 - second)
    found = judge_pair(p_ab, p_ba[::-1])
    return {
        "p_ab": list(p_ab),
        "p_ba": list(p_ba),
        "prefer_a": found.prefer,
        "prefer_a_ab": found.prefer_ab,
        "prefer_a_ba": found.prefer_ba,
        "mean_pre": found.mean_pre,
        "mean_post": found.mean_post,
        "mode_post": _mean(orders, lambda one: 1.0 if one.is_a_first else -1.0),
        "coverage_ab": _mean(ab, lambda one: one.coverage),
        "coverage_ba": _mean(ba, lambda one: one.coverage),
        "exact": all(one.exact for one in read),
        "preferences": [one.before for one in read],
        **{
            f"{name}_{side}": [_known(getattr(one, name)[at]) for one in read]
            for name in ("shown", "places", "ranks")
            for at, side in enumerate("ab")
        },
    }


def _mean(orders: Sequence[Sequence[_Pair]], of: Callable[[_Pair], float]) -> float:
    """Return the mean over orders, in which lists behind several traces count as one."""
    return fmean(fmean(of(one) for one in order) for order in orders)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def failed_pairs(number: int, pairs: Iterable[tuple[str, str]], failure: Failure) -> list[Row]:
    """Return a failed row for each pair of models."""
    return [{"turn": number, "model_a": a, "model_b": b, **failed_row(failure)} for a, b in pairs]
