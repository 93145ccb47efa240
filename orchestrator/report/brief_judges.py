"""Reasons to trust a judge or not, which rankings and measures share."""

from collections.abc import Iterator, Sequence
from typing import Final

from orchestrator import numbers
from orchestrator.report.phrases import Phrase, names, phrase
from orchestrator.report.questions import Check
from orchestrator.statistics.coverage import CoverageSummary
from orchestrator.statistics.trust import Trust

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
        shown = numbers.percent_with_interval(trust.flips.value, *numbers.ends(trust.flips))
        pairs = numbers.counted(trust.n_decided, "pair")
        text = f"the winner flips with the order in {shown} of {pairs} decided in both orders."
        yield Check("order", phrase(text), trust.verdict != "trusted")
    if trust.n_units:
        of = numbers.counted(trust.n_units, "judgment")
        missing = numbers.count(trust.n_missing) if trust.n_missing else "none"
        yield Check("missing", phrase(f"{missing} of {of} missing."), bool(trust.n_missing))
