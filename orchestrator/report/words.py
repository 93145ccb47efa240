"""What a ranking says, in sentences that every format shares; names in them are as given."""

from typing import Final

from orchestrator.report import numbers
from orchestrator.statistics.ranking import ModelRating, Neighbours, RankingAnalysis
from orchestrator.statistics.results import APPROXIMATE_BELOW

_USUAL: Final = "pairwise_ranking"


def subject(analysis: RankingAnalysis) -> str:
    """What was ranked by whom, and by which method where that is not the usual one."""
    what = f"Ranking of {numbers.count(len(analysis.ratings))} models"
    if analysis.judge is not None:
        what = f"{what} by {analysis.judge}"
    elif analysis.judges:
        what = f"{what} by all judges: {', '.join(analysis.judges)}"
    return what if analysis.source in ("", _USUAL) else f"{what} ({analysis.source})"


def verdict(analysis: RankingAnalysis) -> str:
    """A warning where the order of the table means nothing; empty where it means something."""
    if not analysis.neighbours or any(pair.resolvable for pair in analysis.neighbours):
        return ""
    return (
        "Not resolvable: no two neighbours can be told apart. "
        "The order of the rows is not a result."
    )


def few_words(analysis: RankingAnalysis) -> str:
    """What an analysis has too few of for its intervals to be exact."""
    alone = analysis.n_clusters == analysis.n_items_used
    what = "prompts" if alone else "clusters of prompts"
    return f"fewer than {APPROXIMATE_BELOW} {what}"


def neighbour_words(pair: Neighbours) -> str:
    """`expert over apprentice: +212 [180, 245]`, or that their order is not resolvable."""
    amount = neighbour_amount(pair)
    if pair.resolvable:
        return f"{pair.better} over {pair.worse}: {amount}"
    return f"{pair.better} and {pair.worse}: not resolvable, {amount}"


def neighbour_amount(pair: Neighbours) -> str:
    """The difference of a pair with its interval, or why there is none."""
    if pair.difference is None:
        return "the difference has no bound"
    low, high = numbers.bounds(
        pair.low,
        pair.high,
        low_open=pair.low is None and pair.high is not None,
        high_open=pair.high is None and pair.low is not None,
    )
    text = numbers.difference(pair.difference, low, high)
    has_interval = pair.low is not None or pair.high is not None
    return text if has_interval else f"{text}, without an interval"


def rank_words(model: ModelRating) -> str:
    """The ranks that the data leave open to a model."""
    if model.rank_low is None or model.rank_high is None:
        return numbers.UNDEFINED
    return numbers.rank(model.rank_low, model.rank_high)


def rating_bounds(model: ModelRating) -> str:
    """The interval of a rating; in words where a model won, or lost, everything."""
    if model.rating is None and model.low_open != model.high_open:
        return "above the others" if model.high_open else "below the others"
    low, high = numbers.bounds(
        model.low, model.high, low_open=model.low_open, high_open=model.high_open
    )
    return numbers.interval(low, high)
