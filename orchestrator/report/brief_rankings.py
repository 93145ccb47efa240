"""Rankings as questions: the best model in a sentence, what is apart, and trust in the judges."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

import numpy as np

from orchestrator import numbers
from orchestrator.report.picture import MIN_SPAN
from orchestrator.report.questions import (
    Check,
    Question,
    Standing,
    State,
    missing_check,
    no_order_yet,
    of_coverage,
)
from orchestrator.report.words import (
    Name,
    Part,
    Phrase,
    few_words,
    names,
    neighbour_amount,
    phrase,
    rank_words,
    rating_bounds,
    told_apart,
)
from orchestrator.statistics.association import association
from orchestrator.statistics.ranking import ModelRating, Pair, RankingAnalysis
from orchestrator.statistics.trust import SHORT
from orchestrator.tables import counted_words

MEASURE: Final = "rating (Elo scale)"
_ONE: Final = "the judge"


def questions(
    rankings: Sequence[RankingAnalysis], exact_match: Mapping[str, float | None]
) -> list[Question]:
    """The questions of all rankings: a method's ranking by all its judges before each one's.

    Where a judge of several can't be trusted, the rankings by the others come first.

    Args:
        rankings: Of each method by each judge, and by all.
        exact_match: Share of answers equal to the reference, by model.
    """
    found: list[Question] = []
    for source in dict.fromkeys(one.source for one in rankings):
        of_source = [one for one in rankings if one.source == source]
        of_source.sort(key=lambda one: (bool(one.warning), one.judge is not None))
        # Where all judges together are not trusted, it is said of each.
        said = any(one.warning and one.judge is None for one in of_source)
        shown = [one for one in of_source if not (said and one.warning and one.judge is not None)]
        found += [_question(one, of_source, exact_match) for one in shown]
    # A result comes before the reasons why another method has none.
    return sorted(found, key=lambda one: one.state in ("withheld", "empty"))


def _question(
    analysis: RankingAnalysis,
    among: Sequence[RankingAnalysis],
    exact_match: Mapping[str, float | None],
) -> Question:
    state, answer = _answer(analysis)
    subject: list[Part] = [Name(analysis.source)] if analysis.source else ["ranking"]
    if analysis.judge is not None:
        subject += [", judged by ", Name(analysis.judge)]
    elif len(analysis.judges) > 1:
        subject += [", by all judges: ", *names(analysis.judges)]
    unranked = [model.model for model in analysis.ratings if model.rank is None]
    apart = told_apart(analysis)
    if unranked and len(unranked) < len(analysis.ratings):
        apart = phrase(apart, " Not ranked: ", names(unranked), ".")
    return Question(
        source=analysis.source,
        subject=phrase(subject),
        state=state,
        answer=answer,
        # Of no judgments, the answer and the checks say it all.
        detail=(analysis.warning.removeprefix("No ranking: ") or analysis.caution)
        if analysis.n_judged
        else "",
        measure=MEASURE,
        interval=f"{numbers.level(analysis.confidence_level)} interval",
        standings=tuple(map(_standing, analysis.ratings)),
        apart=apart,
        basis=_basis(analysis),
        checks=tuple(_checks(analysis, among, exact_match)),
        cautions=tuple(_notes(analysis, state, exact_match)),
        judge=analysis.judge,
        least_span=MIN_SPAN,
        n_pairs=len(analysis.pairs),
        n_apart=sum(pair.resolvable for pair in analysis.pairs),
    )


def _standing(model: ModelRating) -> Standing:
    return Standing(
        model=model.model,
        value=model.rating,
        low=model.low,
        high=model.high,
        low_open=model.low_open,
        high_open=model.high_open,
        rank=rank_words(model),
        shown=numbers.maybe(model.rating, numbers.rating),
        bounds=rating_bounds(model),
    )


def _basis(analysis: RankingAnalysis) -> str:
    if not analysis.n_judged:
        return ""
    level = numbers.level(analysis.confidence_level)
    few = f"; {few_words(analysis)}" if analysis.approximate else ""
    same = analysis.n_same_text
    equal = f" ({numbers.count(same)} of equal answers)" if same else ""
    counts = (
        f"{counted_words(analysis.n_items_used, analysis.n_clusters)}, "
        f"{numbers.counted(analysis.n_judged, 'judgment')}{equal}"
    )
    if analysis.warning:
        return counts
    n_pairs = len(analysis.pairs)
    together = f", each difference's allows for all {n_pairs} pairs" if n_pairs > 1 else ""
    return f"{counts}; {level} intervals, {analysis.uncertainty}{together}{few}"


def _answer(analysis: RankingAnalysis) -> tuple[State, Phrase]:
    """Return the kind of answer and its sentence."""
    if not analysis.n_judged:
        why = "there are no judgments"
        if analysis.n_units:
            why = f"all {numbers.counted(analysis.n_units, 'judgment')} failed"
        return "empty", phrase(f"No ranking: {why}.")
    if analysis.warning:
        bad = [trust for trust in analysis.trust if trust.verdict == "not trusted"]
        who: list[Part] = [f"{len(bad)} judges" if bad else _ONE]
        said = "cannot be trusted"
        if len(bad) == 1:
            who = [Name(bad[0].judge)] if bad[0].judge else [_ONE]
            said = " and ".join(SHORT[ground] for ground in bad[0].grounds) or said
        return "withheld", phrase("No ranking: ", who, f" {said}.")
    if analysis.caution:
        return "open", no_order_yet(analysis.trust)
    ranked = [model.model for model in analysis.ratings if model.rank is not None]
    if len(ranked) < 2:
        return "empty", phrase("No ranking: nothing can be compared.")
    beaten = {pair.worse for pair in analysis.pairs if pair.resolvable}
    leading = [model for model in ranked if model not in beaten]
    if len(leading) == len(ranked):
        return "open", _open(analysis, ranked)
    over = {(pair.better, pair.worse) for pair in analysis.pairs if pair.resolvable}
    behind = [model for model in ranked if model not in leading]
    above_all = all((model, other) in over for model in leading for other in behind)
    if len(leading) == 1 and above_all:
        return "answered", _best(analysis, ranked)
    return "tied", _tied(analysis, leading, behind, above_all=above_all)


def _best(analysis: RankingAnalysis, ranked: Sequence[str]) -> Phrase:
    """State the best model: by how much over the second, and how often it wins against it."""
    best, second = ranked[:2]
    amount = _amount(_pair(analysis, best, second))
    wins = analysis.wins
    row, column = wins.models.index(best), wins.models.index(second)
    value, low, high = (part[row][column] for part in (wins.preference, wins.low, wins.high))
    # Of more models the interval is for these two alone, and would not say what all pairs say.
    ends = numbers.bounds(low, high, low_open=False, high_open=False)
    alone = (math.nan, math.nan) if len(wins.models) > 2 else ends
    won = "" if value is None else numbers.percent(value, *alone, decimals=0)
    said = ", ".join(part for part in (amount, f"win rate {won}" if won else "") if part)
    if len(ranked) == 2:
        return phrase(Name(best), " is better than ", Name(second), f": {said}." if said else ".")
    over: list[Part] = [f": {said} against ", Name(second)] if said else []
    return phrase(Name(best), " is best", over, ".")


def _tied(
    analysis: RankingAnalysis, leading: Sequence[str], behind: Sequence[str], *, above_all: bool
) -> Phrase:
    others = numbers.counted(len(behind), "model")
    if len(leading) == 1:
        parts: list[Part] = [Name(leading[0]), " leads, but is not apart from every other model"]
    else:
        parts = ["No single best model: ", *names(leading), " cannot be told apart"]
    if len(leading) == 2:
        amount = _amount(_pair(analysis, leading[0], leading[1]))
        parts += [f" ({amount})"] if amount else []
    if above_all:
        each = "both are" if len(leading) == 2 else "each is"
        rest: list[Part] = [Name(behind[0])] if len(behind) == 1 else [f"the other {others}"]
        parts += [f"; {each} better than ", *rest]
    elif len(leading) > 1:
        parts += [f"; each of the other {others} is worse than one ranked above it"]
    return phrase(parts, ".")


def _open(analysis: RankingAnalysis, ranked: Sequence[str]) -> Phrase:
    first, last = ranked[0], ranked[-1]
    amount = _amount(_pair(analysis, first, last))
    if len(ranked) == 2:
        end = f": {amount}." if amount else "."
        return phrase("No winner: ", names(ranked), f" cannot be told apart{end}")
    parts: list[Part] = [f"No winner: none of the {len(ranked)} models can be told from another"]
    if amount:
        parts += ["; ", Name(first), f" is {amount} over ", Name(last)]
    return phrase(parts, ".")


def _pair(analysis: RankingAnalysis, better: str, worse: str) -> Pair:
    return next(one for one in analysis.pairs if (one.better, one.worse) == (better, worse))


def _amount(pair: Pair) -> str:
    """Return the difference of a pair, `+137 [113, 160] Elo`; empty where it has no bound."""
    if pair.difference is None:
        return ""
    amount, comma, rest = neighbour_amount(pair).partition(", without")
    return f"{amount} Elo{comma}{rest}"


def _checks(
    analysis: RankingAnalysis,
    among: Sequence[RankingAnalysis],
    exact_match: Mapping[str, float | None],
) -> Iterator[Check]:
    if analysis.n_judged:
        yield from _by_judge(analysis)
    if analysis.judge is None:
        yield from _agreement(among)
    if analysis.n_units:
        n_missing, said = analysis.n_units - analysis.n_judged, analysis.failures[:1]
        example = "".join(f"{one.message[:160]}{'…' * bool(one.message[160:])}" for one in said)
        yield missing_check(n_missing, analysis.n_units, analysis.trust, example)
    if analysis.approximate:
        text = f"{few_words(analysis)}."
        yield Check("sample", phrase(text), is_doubtful=True)
    by_mode = analysis.agreement.kendall_tau
    if by_mode is not None and not analysis.warning:
        order = "another" if by_mode < 1.0 else "the same"
        tau_shown = f" (Kendall's tau {by_mode:.2f})" * (by_mode < 1.0)
        text = f"reading only the likeliest label gives {order} order of the models{tau_shown}."
        yield Check("reading", phrase(text), by_mode < 1.0)
    ratings = {one.model: one.rating for one in analysis.ratings if one.rating is not None}
    shares = {model: share for model, share in exact_match.items() if share is not None}
    tau = _tau(ratings, shares)
    if not math.isnan(tau) and not analysis.warning:
        same = "orders the models the same way" if tau == 1.0 else "orders the models differently"
        text = f"exact match with the references {same} (Kendall's tau {tau:.2f})."
        yield Check("references", phrase(text), tau <= 0.0)


def _by_judge(analysis: RankingAnalysis) -> Iterator[Check]:
    for trust in analysis.trust if len(analysis.trust) > 1 else ():
        words = {"trusted": "passes the checks", "not trusted": "fails the checks"}
        said = words.get(trust.verdict, "cannot be checked yet")
        # Why there is no ranking stands under the answer.
        is_said = bool(analysis.warning) or not trust.reasons
        reasons = "" if is_said else f": {'; '.join(trust.reasons)}"
        doubtful = trust.verdict != "trusted"
        yield Check("judge", phrase(Name(trust.judge), f" {said}{reasons}."), doubtful)
    yield from of_coverage(analysis.coverage)
    if (position := analysis.position) is not None:
        same, bias = position.consistency, position.bias
        shown = numbers.percent(same.value, *same.ends)
        signed = numbers.percent(bias.value, *bias.ends, sign="+")
        text = (
            "no two different answers to see it by."
            if math.isnan(same.value)
            else f"same verdict or tie in both orders for {shown}; bias for the answer shown first "
            f"{signed}."
        )
        # Each pair is read in both orders, so that a bias which decides few of them cancels.
        by_order = {"order", "ties"}
        is_doubtful = any(
            one.verdict == "cannot be said yet" or by_order & set(one.grounds)
            for one in analysis.trust
        )
        yield Check("order", phrase(text), is_doubtful)


def _agreement(among: Sequence[RankingAnalysis]) -> Iterator[Check]:
    """Agreement of the judges' rankings with each other."""
    by_judge = [
        {model.model: model.rating for model in one.ratings if model.rating is not None}
        for one in among
        if one.judge is not None
    ]
    taus = [_tau(a, b) for a, b in combinations(by_judge, 2)]
    known = [tau for tau in taus if not math.isnan(tau)]
    firsts = [max(ratings, key=lambda model: ratings[model]) for ratings in by_judge if ratings]
    if not known or not firsts:
        return
    most = max(dict.fromkeys(firsts), key=firsts.count)
    spread = " to ".join(dict.fromkeys(f"{tau:.2f}" for tau in (min(known), max(known))))
    yield Check(
        "judges",
        phrase(
            f"{firsts.count(most)} of {len(firsts)} judges rate ",
            Name(most),
            f" highest; Kendall's tau between their rankings {spread}.",
        ),
        firsts.count(most) < len(firsts),
    )


def _tau(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    shared = [model for model in first if model in second]
    x, y = (np.array([of[model] for model in shared], np.float64) for of in (first, second))
    return association(x, y, "kendall")


def _notes(
    analysis: RankingAnalysis, state: State, exact_match: Mapping[str, float | None]
) -> Iterator[Phrase]:
    if state == "withheld":
        by = [Name(analysis.source or "this run")]
        # Another judge of the method may be trusted.
        who = [" by ", Name(analysis.judge)] if analysis.judge else [" by all judges together"]
        said = ["No model is better or worse by the judgments of ", *by, *who]
        yield phrase(said, ", whatever they say.")
        return
    if state == "empty":
        return
    if any(not pair.resolvable for pair in analysis.pairs):
        yield phrase("Models that cannot be told apart are not shown to be equally good.")
    these = "these judges" if len(analysis.judges) > 1 else "this judge"
    yield phrase(
        f"Another judge, or other kinds of prompts, may prefer other models: intervals are over "
        f"prompts like these, for {these}."
    )
    if not any(share is not None for share in exact_match.values()):
        yield phrase("Preferred answers need not be correct: nothing was compared with references.")
    yield phrase("Ratings compare the models of this run only: in each run their mean is 1,000.")
