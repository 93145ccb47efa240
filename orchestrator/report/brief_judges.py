"""Reasons to trust a judge or not, which rankings and measures share."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from orchestrator import numbers
from orchestrator.report.phrases import Name, Part, Phrase, Quote, names, phrase
from orchestrator.report.questions import Check
from orchestrator.statistics.coverage import CoverageSummary
from orchestrator.statistics.trust import Trust

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
        shown = numbers.percent_with_interval(trust.flips.value, *trust.flips.ends)
        pairs = numbers.counted(trust.n_decided, "pair")
        text = f"the winner flips with the order in {shown} of {pairs} decided in both orders."
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
