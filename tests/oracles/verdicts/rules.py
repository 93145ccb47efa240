"""Which statements contradict each other: each rule yields what does, in a sentence."""

import math
from collections.abc import Callable, Iterator
from itertools import combinations, permutations
from typing import Final, TypeVar

from tests.oracles.verdicts.facts import (
    Apart,
    Best,
    Counted,
    Even,
    Facts,
    Gated,
    Grouped,
    Kind,
    Listed,
    Number,
    Ranks,
    Size,
    ends,
    excludes,
    touches,
)

T = TypeVar("T", Apart, Even)
Rule = Callable[[Facts], Iterator[str]]
_ELO: Final = 400.0
_CLOSE: Final = 1e-6


def contradictions(facts: Facts) -> list[str]:
    """Return every contradiction, with the rule that found it."""
    return [f"{rule.__name__}: {one}" for rule in RULES for one in rule(facts)]


def one_verdict_a_pair(facts: Facts) -> Iterator[str]:
    """Two models can be told apart everywhere or nowhere, and in one direction."""
    if facts.trust != "trusted":
        return
    apart = {(one.better, one.worse): one for one in _same_question(facts, Apart)}
    for pair, one in apart.items():
        other = apart.get(pair[::-1])
        if other and pair < pair[::-1]:
            yield f"{one} and {other}"
    for even in _same_question(facts, Even):
        for pair in ((even.first, even.second), (even.second, even.first)):
            if pair in apart:
                yield f"{even} and {apart[pair]}"


def better_is_transitive(facts: Facts) -> Iterator[str]:
    """A model that is better than one that is better than a third is better than that."""
    apart = _apart(facts)
    for a, b, c in permutations(facts.models, 3):
        if {(a, b), (b, c)} <= apart and (a, c) not in apart:
            yield f"{a} over {b} and {b} over {c}, but not {a} over {c}"


def all_pairs_are_said(facts: Facts) -> Iterator[str]:
    """Every pair that is neither apart nor even is unknown to a reader: there is none."""
    known = _apart(facts)
    known |= {(one.first, one.second) for one in facts.of(Even) if not one.is_mean}
    for a, b in combinations(_ranked(facts), 2):
        if not {(a, b), (b, a)} & known:
            yield f"nothing is said about {a} and {b}"


def best_is_above_all(facts: Facts) -> Iterator[str]:
    """One model is best if and only if it can be told from every other one, as better."""
    apart, ranked = _apart(facts), _ranked(facts)
    best = {one.model: one for one in facts.of(Best)}
    for model in ranked:
        is_above = all((model, other) in apart for other in ranked if other != model)
        if model in best and not is_above:
            yield f"{best[model]}, but not above all others"
        if model not in best and is_above and len(ranked) > 1 and facts.trust == "trusted":
            yield f"{model} is above all others and is not said to be best"


def ranks_follow_from_pairs(facts: Facts) -> Iterator[str]:
    """A model's ranks begin behind those that are better and end before those that are worse."""
    apart = _apart(facts)
    n_ranked = len({one.model for one in facts.of(Ranks)})
    for one in facts.of(Ranks):
        low = 1 + sum(worse == one.model for _, worse in apart)
        high = n_ranked - sum(better == one.model for better, _ in apart)
        if (one.low, one.high) != (low, high):
            yield f"{one}, but by the pairs {low} to {high}"


def groups_follow_from_pairs(facts: Facts) -> Iterator[str]:
    """Two models share a group if and only if they cannot be told apart."""
    apart = _apart(facts)
    for where in {one.where for one in facts.of(Grouped)}:
        groups = {one.model: one.groups for one in facts.of(Grouped) if one.where == where}
        for a, b in combinations(groups, 2):
            is_apart = bool({(a, b), (b, a)} & apart)
            if is_apart == bool(groups[a] & groups[b]):
                word = "apart" if is_apart else "not apart"
                yield f"{where}: {a} in {set(groups[a])} and {b} in {set(groups[b])}, but {word}"


def counts_follow_from_pairs(facts: Facts) -> Iterator[str]:
    """The number of pairs that can be told apart is that of the pairs that are named so."""
    n_apart, counted = len(_apart(facts)), facts.of(Counted)
    n_pairs = {one.n_pairs for one in counted}
    for one in counted:
        if (one.n_apart != n_apart and facts.trust == "trusted") or len(n_pairs) > 1:
            yield f"{one}, but {n_apart} are named, of {n_pairs}"


def intervals_decide(facts: Facts) -> Iterator[str]:
    """A difference's interval excludes 0 if and only if the two models can be told apart."""
    yield from _decided(facts, "difference", 0.0)
    if facts.is_complete:
        yield from _decided(facts, "mean difference", 0.0)


def win_rates_of_two_decide(facts: Facts) -> Iterator[str]:
    """Of two models the win rate asks the same as the rating: its interval excludes one half."""
    if len(facts.models) == 2:
        yield from _decided(facts, "win", 0.5)


def _decided(facts: Facts, kind: Kind, null: float) -> Iterator[str]:
    if facts.trust != "trusted":
        return
    apart = _apart(facts)
    for one in facts.of(Number):
        is_told = one.low is not None and one.high is not None
        if one.kind != kind or not one.judged or not is_told or touches(one, null):
            continue
        pair = (one.of[0], one.of[1])
        is_apart = bool({pair, pair[::-1]} & apart)
        if is_apart != excludes(one, null):
            yield f"{one}, but {'apart' if is_apart else 'not apart'}"
        if is_apart and one.value is not None:
            is_first = pair in apart
            if (one.value < null - one.unit) if is_first else (one.value > null + one.unit):
                yield f"{one}, but {pair if is_first else pair[::-1]}"


def verdicts_have_intervals(facts: Facts) -> Iterator[str]:
    """Two models that can be told apart have an interval of their difference in the data."""
    shown = {
        frozenset(one.of): one for one in facts.numbers("difference") if one.where == "json pairs"
    }
    for a, b in _apart(facts):
        one = shown.get(frozenset((a, b)))
        if one is not None and one.low is None and one.high is None:
            yield f"{a} over {b} without an interval"


def ratings_of_two_decide(facts: Facts) -> Iterator[str]:
    """Of two models each rating's interval excludes their mean if and only if they are apart."""
    if len(facts.models) > 2 or facts.trust != "trusted":
        return
    is_apart = bool(_apart(facts))
    for one in facts.numbers("rating"):
        if one.low is None or one.high is None or touches(one, 1000.0):
            continue
        if excludes(one, 1000.0) != is_apart:
            yield f"{one}, but {'apart' if is_apart else 'not apart'}"


def intervals_of_ratings_say_that_they_stand_alone(facts: Facts) -> Iterator[str]:
    """Intervals of two ratings may lie apart though no test of all pairs does: it must be said."""
    if facts.trust != "trusted" or facts.says_alone:
        return
    known = {one.of[0]: one for one in facts.numbers("rating") if one.where == "json ratings"}
    for even in facts.of(Even):
        a, b = known.get(even.first), known.get(even.second)
        if a is None or b is None or not {a.low, a.high, b.low, b.high}.isdisjoint({None}):
            continue
        if ends(a)[0] > ends(b)[1] or ends(b)[0] > ends(a)[1]:
            yield f"{a} and {b}, but {even}"


def scales_agree(facts: Facts) -> Iterator[str]:
    """Of two models the rating difference and the win rate are one number on two scales."""
    if len(facts.models) > 2:
        return
    wins = {one.of: one for one in facts.numbers("win") if one.where == "json wins"}
    for one in facts.numbers("difference"):
        rate = wins.get(one.of)
        if one.where != "json pairs" or rate is None:
            continue
        for name in ("value", "low", "high"):
            points, share = getattr(one, name), getattr(rate, name)
            if points is None or share is None or not math.isfinite(points):
                continue
            if abs(1.0 / (1.0 + 10.0 ** (-points / _ELO)) - share) > 1e-4:
                yield f"{name} of {one} and of {rate}"


def intervals_contain_values(facts: Facts) -> Iterator[str]:
    """An interval contains its estimate, and has a width."""
    for one in facts.of(Number):
        if one.low is None and one.high is None:
            continue
        if one.value is not None and math.isfinite(one.value):
            low, high = ends(one)
            slack = _CLOSE + one.unit
            if not low - slack <= one.value <= high + slack:
                yield f"{one} is outside of its interval"
        if one.low is not None and one.low == one.high and one.unit == 0.0:
            yield f"{one} has no width"


def numbers_are_one(facts: Facts) -> Iterator[str]:
    """A number that is shown in two places is the same, as far as it is rounded."""
    known: dict[object, Number] = {}
    for one in sorted(facts.of(Number), key=lambda one: one.unit):
        if one.kind == "any" or one.value is None or not math.isfinite(one.value):
            continue
        first = known.setdefault((one.kind, one.of), one)
        slack = _CLOSE + max(one.unit, first.unit)
        pairs: list[tuple[float | None, float | None]] = [(one.value, first.value)]
        if one.judged and first.judged:
            pairs += [(one.low, first.low), (one.high, first.high)]
        for a, b in pairs:
            if a is not None and b is not None and a != b and abs(a - b) > slack:
                yield f"{one} and {first}"
                break


def sizes_are_one(facts: Facts) -> Iterator[str]:
    """Everything rests on the same prompts and clusters; copies of a prompt are one."""
    sizes = facts.of(Size)
    if facts.is_complete and sizes and facts.n_prompts not in (None, sizes[0].n_items):
        yield f"{sizes[0]}, but {facts.n_prompts} prompts differ"
    for one in sizes[1:]:
        if (one.n_items, one.n_clusters) != (sizes[0].n_items, sizes[0].n_clusters):
            yield f"{sizes[0]} and {one}"


def nothing_vanishes(facts: Facts) -> Iterator[str]:
    """Each model is in each table and chart that lists them."""
    for one in facts.of(Listed):
        if one.models != frozenset(facts.models):
            yield f"{one.where} has only {sorted(one.models)}"


def all_are_ranked(facts: Facts) -> Iterator[str]:
    """Where all were compared on every prompt, each model has a rank wherever one has."""
    if not facts.is_complete:
        return
    for where in sorted({one.where for one in facts.of(Ranks)}):
        ranked = {one.model for one in facts.of(Ranks) if one.where == where}
        if ranked != set(facts.models):
            yield f"{where}: only {sorted(ranked)} have ranks"


def trust_is_part_of_the_verdict(facts: Facts) -> Iterator[str]:
    """By a judge that is not known to be trusted nothing is best, apart, or shown to hold."""
    if facts.trust == "trusted":
        return
    yield from (f"{one}, judge: {facts.trust}" for one in facts.of(Best))
    if facts.trust == "not trusted":
        yield from (f"{one}, judge: {facts.trust}" for one in facts.of(Apart))
    for one in facts.of(Gated):
        if one.verdict != "not known yet":
            yield f"{one}, judge: {facts.trust}"


def gates_say_one_thing(facts: Facts) -> Iterator[str]:
    """Every format has the verdict; if one model is shown to be better, that the other is fails."""
    opposite = {"holds": "fails", "fails": "holds", "not known yet": "not known yet"}
    asked = {
        (one.question, one.better, one.worse): one for one in facts.of(Gated) if one.n_asked == 1
    }
    for (question, a, b), one in asked.items():
        other = asked.get((question, b, a))
        if other is not None and other.verdict != opposite[one.verdict]:
            yield f"{one} and {other}"


def gates_ask_what_rankings_do(facts: Facts) -> Iterator[str]:
    """What all pairs together show, one gate alone does; what gates together show, all pairs do."""
    if facts.trust != "trusted":
        return
    apart, n_pairs = _apart(facts), len(facts.models) * (len(facts.models) - 1) // 2
    for one in facts.of(Gated):
        if one.question != "rating" and len(facts.models) > 2:
            continue
        decided = {"holds": (one.better, one.worse), "fails": (one.worse, one.better)}
        shown = decided.get(one.verdict)
        if shown and shown[::-1] in apart:
            yield f"{one}, but {shown[::-1]} are apart"
        if shown and one.n_asked == n_pairs and shown not in apart:
            yield f"{one}, but they are not apart"
        if (
            not shown
            and one.n_asked == 1
            and {(one.better, one.worse), (one.worse, one.better)} & apart
        ):
            yield f"{one}, but they are apart"


def gate_intervals_decide(facts: Facts) -> Iterator[str]:
    """A gate holds if its interval is above the threshold, and fails if it is below."""
    for one in facts.of(Gated):
        null = 0.0 if one.question == "rating" else 0.5
        kind: Kind = "difference" if one.question == "rating" else "win"
        for number in facts.numbers(kind):
            if number.where != one.where or number.low is None or facts.trust != "trusted":
                continue
            expected = "not known yet"
            if excludes(number, null):
                expected = "holds" if number.low > null else "fails"
            if one.verdict != expected:
                yield f"{one}, but {number}"


def everything_is_read(facts: Facts) -> Iterator[str]:
    """The reader knows each answer, and finds the ratings wherever they are."""
    yield from (f"unknown sentence: {one}" for one in facts.unread)


def _apart(facts: Facts) -> set[tuple[str, str]]:
    """Pairs that the ranking tells apart, the better first."""
    return {(one.better, one.worse) for one in facts.of(Apart) if not one.is_mean}


def _ranked(facts: Facts) -> list[str]:
    """Models that have a rank; all where the question has no ranks."""
    return sorted({one.model for one in facts.of(Ranks)} or facts.models)


def _same_question(facts: Facts, kind: type[T]) -> list[T]:
    """Verdicts of the ranking, and those on mean preferences where they ask the same.

    Where every pair was judged on every prompt, the order of two models by their mean preference
    is that by their ratings.
    """
    return [one for one in facts.of(kind) if facts.is_complete or not one.is_mean]


RULES: Final[tuple[Rule, ...]] = (
    everything_is_read,
    one_verdict_a_pair,
    better_is_transitive,
    all_pairs_are_said,
    best_is_above_all,
    ranks_follow_from_pairs,
    groups_follow_from_pairs,
    counts_follow_from_pairs,
    intervals_decide,
    win_rates_of_two_decide,
    ratings_of_two_decide,
    intervals_of_ratings_say_that_they_stand_alone,
    verdicts_have_intervals,
    scales_agree,
    intervals_contain_values,
    numbers_are_one,
    sizes_are_one,
    nothing_vanishes,
    all_are_ranked,
    trust_is_part_of_the_verdict,
    gates_say_one_thing,
    gates_ask_what_rankings_do,
    gate_intervals_decide,
)
