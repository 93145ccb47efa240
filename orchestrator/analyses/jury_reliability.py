"""Reliability of judges learned without gold, by Dawid and Skene's model, and their consensus.

A vote is a judge's distribution over A better, tie and B better, the mean of both orders. Which
answer is called A changes nothing. Pairs that one of the judges did not judge are left out, as are
pairs of equal answers. Judges who err together break the model, which the second table shows.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
import polars as pl
from pydantic import Field

from orchestrator.clusters import prompt_words
from orchestrator.contracts.method import is_judging
from orchestrator.contracts.settings import Calibrate, Winner
from orchestrator.plugin import (
    Analysis,
    Cell,
    Column,
    Context,
    Measured,
    Settings,
    Source,
    Table,
    UsageError,
    make_table,
    table_columns,
)
from orchestrator.ranking.calibration import recalibrated
from orchestrator.ranking.cells import without_n
from orchestrator.ranking.preferences import (
    COLUMNS,
    SOFT,
    TIED,
    Preferences,
    between,
    judged_rows,
    preferences,
)
from orchestrator.ranking.winners import source_of_judges, truths
from orchestrator.records import Floats
from orchestrator.statistics.correlation import compare_accuracies
from orchestrator.statistics.dawid_skene import (
    DawidSkene,
    Uncertainty,
    Votes,
    dependence,
    fit_dawid_skene,
    uncertainty,
)
from orchestrator.statistics.means import clustered_share
from orchestrator.statistics.ratings import Ratings
from orchestrator.statistics.resampling import Resampling
from orchestrator.statistics.trust import no_ranking_by_judge
from orchestrator.tables import measured, untrusted, with_interval

_FIRST, _TIE, _SECOND = 0, 1, -1
_FEW_TIES: Final = 0.01
"""Mean share of votes on ties below which there is no verdict "tie": one that nobody gives would
stand for pairs that are disputed."""
_FEWER_RESAMPLES: Final = 1000
_WEAK: Final = 0.05


class Config(Settings):
    """Settings of `jury_reliability`."""

    method: str | None = Field(
        None, description="Name of a judging method with several judges. Default: the first."
    )
    judges: tuple[str, ...] = Field(
        (),
        description="Judges that vote, at least two. Default: all. Name one alone of judges that "
        "err together, such as sizes of one model.",
    )
    calibrate: Calibrate | None = Field(
        None, description="Calibrate each judge's probabilities first. Default: as they are."
    )
    winner: Winner | None = Field(
        None,
        description="Source of the better answer where it is known, against which the reliability "
        "is held. It is not used to learn. Default: none.",
    )


@dataclass(frozen=True, slots=True)
class _Study:
    """The fit to the votes of J judges on n pairs.

    Attributes:
        source: Name of the method.
        judges: Names.
        pairs: As of the first judge, in the order of the votes.
        votes: Labels A, tie, B, or A, B where the judges give no ties.
        fit: The model.
        found: Its intervals.
        related: Shape (J, J), correlation of errors.
        n_left_out: Pairs that some judge did not judge.
    """

    source: str
    judges: tuple[str, ...]
    pairs: Preferences
    votes: Votes
    fit: DawidSkene
    found: Uncertainty
    related: Floats
    n_left_out: int

    @property
    def has_ties(self) -> bool:
        """True if a tie is a verdict."""
        return bool(self.votes.shares.shape[2] > 2)

    def dependent(self) -> list[tuple[int, int]]:
        """Return the pairs of judges whose errors are significantly correlated."""
        above = np.argwhere(np.triu(self.found.dependence[0], k=1) > 0.0)
        return [(int(one), int(two)) for one, two in above]

    @property
    def learned(self) -> Floats:
        """Preference for A by the consensus, a tie as half, shape (n,)."""
        return _preference(self.fit.posterior)

    @property
    def equal(self) -> Floats:
        """The same by the mean vote."""
        return _preference(self.votes.shares.mean(axis=1))


class JuryReliabilityAnalysis(Analysis[Config]):
    """Confusion matrices of judges without gold, their dependence, and ratings by consensus."""

    cites = ("dawid1979maximum",)

    def summarise(self, context: Context) -> list[Table]:
        """Tabulate judges, their dependence, ratings, and accuracies where gold is known."""
        source = source_of_judges(context, self.config.method)
        study = _studied(context, source, self.config)
        gold = None
        if self.config.winner is not None:
            gold = truths(context, self.config.winner, study.pairs.rows, source.name)
        tables = [
            _judges(study, gold, context),
            _dependence(study, context),
            _ratings(study, context),
        ]
        if gold is not None:
            tables.append(_accuracies(study, gold, context))
        trusts = context.trust.get(source.name, ())
        warnings = no_ranking_by_judge([one for one in trusts if one.judge in study.judges])
        return [untrusted(table, warnings) for table in tables]


def _studied(context: Context, source: Source, config: Config) -> _Study:
    if not is_judging(source.method):
        raise UsageError(f"{context.name}: {source.name!r} gives no preferences")
    found = preferences(judged_rows(context, source, (*COLUMNS, TIED)))
    found = recalibrated(context, config.calibrate, found, source.name, config.winner)
    by_judge = dict(found.by_judge())
    if unknown := sorted(set(config.judges) - set(by_judge)):
        raise UsageError(f"{context.name}: {', '.join(unknown)} judged no pair of {source.name!r}")
    judges = config.judges or tuple(j for j in source.method.judges if j in by_judge)
    if len(judges) < 2:
        raise UsageError(
            f"{context.name}: reliability without gold needs two judges, better three; "
            f"{source.name!r} has rows of {len(judges)}"
        )
    keys = ["item", "turn", "model_a", "model_b"]
    joined = by_judge[judges[0]].rows
    for at, judge in enumerate(judges):
        mine = by_judge[judge].rows.select(
            *keys, pl.col(SOFT).alias(f"soft_{at}"), pl.col(TIED).fill_null(0.0).alias(f"tie_{at}")
        )
        joined = joined.join(mine.drop_nans(), on=keys, maintain_order="left")
    n_units = found.rows.filter(pl.col("judge").is_in(judges)).select(keys).n_unique()
    n_left_out = n_units - len(joined)
    joined = joined.filter(~pl.col("same_text").fill_null(value=False))
    if joined.is_empty():
        raise UsageError(f"{context.name}: no pair of different answers was judged by all judges")
    soft, tie = (
        joined.select(f"{name}_{at}" for at in range(len(judges))).to_numpy().astype(np.float64)
        for name in ("soft", "tie")
    )
    if tie.mean() < _FEW_TIES:
        shares = np.stack([soft, 1.0 - soft], axis=2)
    else:
        sides = [np.maximum(side - 0.5 * tie, 0.0) for side in (soft, 1.0 - soft)]
        shares = np.stack([sides[0], tie, sides[1]], axis=2)
        shares /= shares.sum(axis=2, keepdims=True)
    mirror = tuple(reversed(range(shares.shape[2])))
    pairs = Preferences(joined, found.estimators, found.mean, found.n_missing)
    votes = Votes(np.clip(shares, 0.0, 1.0), pairs.prompts(), mirror)
    fit = fit_dawid_skene(votes, context.rng())
    fewer = min(context.n_resamples, _FEWER_RESAMPLES)
    resampling = Resampling(fewer, context.rng(), context.confidence_level)
    return _Study(
        source.name,
        judges,
        pairs,
        votes,
        fit,
        uncertainty(votes, fit, resampling),
        dependence(votes, fit),
        n_left_out,
    )


def _judges(study: _Study, gold: Floats | None, context: Context) -> Table:
    """Tabulate the reliability of each judge, learned and by gold."""
    columns = table_columns(
        "judge | reliability: percent | right side: percent | wrong side: percent",
        "tie: percent | tie on ties: percent",
    )
    if gold is not None:
        columns = (*columns, Column("right side by gold", "percent"))
    lines: list[list[Cell]] = []
    for at, judge in enumerate(study.judges):
        line: list[Cell] = [judge, _bounded(study.fit.accuracy()[at], study.found.accuracy[:, at])]
        for true, said in ((_FIRST, _FIRST), (_FIRST, _SECOND), (_FIRST, _TIE), (_TIE, _TIE)):
            if _TIE in (true, said) and not study.has_ties:
                line.append(Measured(None, why="the judges give no ties"))
                continue
            value = study.fit.shares[at, true, said]
            line.append(_bounded(value, study.found.shares[:, at, true, said]))
        if gold is not None:
            line.append(_by_gold(study, gold, at, context.confidence_level))
        lines.append(line)
    tied = float(study.fit.prior[_TIE]) if study.has_ties else 0.0
    notes = [
        "reliability: mean probability that the judge gives the true verdict, learned from the "
        "judges' agreement alone (Dawid and Skene 1979); intervals: bootstrap over prompts",
        "right side, wrong side, tie: the judge's mean probabilities where one answer is better; "
        f"tie on ties: where neither is, {tied:.0%} of the pairs by the model",
        f"{study.fit.n_agreeing} of {study.fit.n_starts} starts found this fit",
        *_cautions(study),
    ]
    title, basis = "Reliability of the judges, without gold", _basis(study)
    return make_table("jury_reliability", title, columns, lines, basis=basis, notes=notes)


def _cautions(study: _Study) -> list[str]:
    """Return warnings on the reliabilities, for the reader."""
    found = []
    if together := study.dependent():
        names = ", ".join(f"{study.judges[j]} and {study.judges[k]}" for j, k in together)
        found.append(
            f"not to be relied on: {names} err together, and the model takes them for independent "
            "witnesses, so that it overrates them; keep one of each such pair ('judges')"
        )
    if len(study.judges) < 3:
        found.append("two judges alone can't tell which of them errs where they disagree")
    right = study.fit.shares[:, _FIRST, _FIRST] - study.fit.shares[:, _FIRST, _SECOND]
    if np.abs(right).max() < _WEAK:
        found.append("no judge tells better from worse answers: the consensus means nothing")
    if not study.fit.settled:
        found.append("the fit has not come to rest")
    return found


def _by_gold(study: _Study, gold: Floats, at: int, level: float) -> Measured:
    known = np.abs(gold) == 1.0
    share = np.where(
        gold > 0, study.votes.shares[:, at, _FIRST], study.votes.shares[:, at, _SECOND]
    )
    prompts = study.votes.prompts
    sums = np.bincount(prompts[known], share[known], minlength=1).astype(np.float64)
    counts = np.bincount(prompts[known], minlength=1).astype(np.float64)
    return without_n(measured(clustered_share(sums, counts, level)))


def _dependence(study: _Study, context: Context) -> Table:
    """Tabulate the correlation of the errors of each two judges."""
    together = set(study.dependent())
    lines: list[list[Cell]] = [
        [
            study.judges[j],
            study.judges[k],
            _bounded(study.related[j, k], study.found.dependence[:, j, k]),
            "yes" if (j, k) in together else "not seen",
        ]
        for j, k in combinations(range(len(study.judges)), 2)
    ]
    columns = table_columns("judge | judge | correlation of errors: signed 2 | err together")
    notes = [
        "correlation of two judges' votes on pairs with one true verdict: 0 where they err "
        f"independently, as the model has it; intervals hold for all pairs together "
        f"at {context.confidence_level:.0%}",
        "a small number is no proof of independence: errors that all judges share look like truth",
    ]
    title = "Do the judges err together?"
    return make_table("jury_reliability.dependence", title, columns, lines, notes=notes)


def _ratings(study: _Study, context: Context) -> Table:
    """Tabulate Bradley-Terry ratings by the consensus and by the mean vote."""
    models = study.pairs.models()
    level = context.confidence_level
    learned, equal = (study.pairs.rated(soft, level) for soft in (study.learned, study.equal))
    order = np.argsort(-np.nan_to_num(learned.values, nan=-np.inf), kind="stable")
    lines: list[list[Cell]] = [
        [models[at], _rating(learned, int(at)), _rating(equal, int(at))] for at in order
    ]
    columns = table_columns("model | consensus: rating | equal weights: rating")
    notes = [
        "consensus: by the probability of each verdict given all votes and the judges' learned "
        "reliability; equal weights: by the mean vote",
        "ratings: Bradley-Terry, mean 1000; intervals over prompts, for these judges and their "
        "learned reliability, whose own uncertainty is not in them",
    ]
    title = "Ratings by consensus"
    return make_table("jury_reliability.ratings", title, columns, lines, notes=notes)


def _accuracies(study: _Study, gold: Floats, context: Context) -> Table:
    """Tabulate the accuracy of the consensus, mean vote and judges on pairs with gold."""
    known = np.abs(gold) == 1.0
    prompts = study.votes.prompts[known]
    sides = {"consensus": study.learned, "equal weights": study.equal}
    for at, judge in enumerate(study.judges):
        sides[judge] = _preference(study.votes.shares[:, at])
    credits_of = {
        name: 0.5 + 0.5 * np.sign(np.round(soft[known] - 0.5, 9)) * gold[known]
        for name, soft in sides.items()
    }
    lines: list[list[Cell]] = []
    for name, credit in credits_of.items():
        counts = np.bincount(prompts, minlength=1).astype(np.float64)
        sums = np.bincount(prompts, credit, minlength=1).astype(np.float64)
        accuracy = without_n(measured(clustered_share(sums, counts, context.confidence_level)))
        gap: Measured | None = None
        if name != "consensus":
            resampling = Resampling(context.n_resamples, context.rng(), context.confidence_level)
            one = compare_accuracies(credits_of["consensus"], credit, prompts, resampling)
            gap = with_interval(one.value, one.interval, why=one.undefined)
        lines.append([name, accuracy, gap])
    columns = table_columns("by | accuracy: percent | consensus is better by: signed 3")
    rows = study.pairs.rows.filter(pl.Series(known))
    basis = f"{len(rows):,} pairs whose better answer is known · {prompt_words(rows)}"
    notes = ["accuracy: share of right sides, an undecided one counts half; intervals over prompts"]
    title = "The consensus against gold"
    key = "jury_reliability.accuracy"
    return make_table(key, title, columns, lines, basis=basis, notes=notes)


def _preference(shares: Floats) -> Floats:
    """Return the preference for A, a tie as half, of shares (n, K)."""
    return 0.5 + 0.5 * (shares[:, _FIRST] - shares[:, _SECOND])


def _rating(found: Ratings, at: int) -> Measured:
    return between(found.values[at], found.low[at], found.high[at])


def _bounded(value: float, bounds: Floats) -> Measured:
    if np.isnan(value):
        return Measured(None, why="a judge always votes alike")
    if np.isnan(bounds).any():
        return Measured(float(value), why="no interval from these prompts")
    return Measured(float(value), float(bounds[0]), float(bounds[1]))


def _basis(study: _Study) -> str:
    rows = study.pairs.rows
    basis = f"{len(rows):,} pairs of different answers · {prompt_words(rows)}"
    return f"{basis} · {study.n_left_out:,} not judged by all" if study.n_left_out else basis
