"""Adaptive choice of comparisons between many models, with orders that hold at every look.

All pairs of K models on N prompts are K (K - 1) N / 2 comparisons, most of them between models
whose order is clear. Here every prompt is compared by a few random rounds of a round-robin
tournament, and only where a model takes part that is still *active*: one whose place in the order
that is asked for is not settled. What settled models no longer need is spent on the others.

The order is that of the mean win rate against all other models (the Borda score), which exists
whatever the preferences are: no Bradley-Terry model and no transitivity of the judge is assumed
(Heckel, Shah, Ramchandran and Wainwright, "Active ranking from pairwise comparisons and when
parametric assumptions do not help", Annals of Statistics 47(6), 2019, arXiv 1606.08842). Against a
baseline it is the win rate against the baseline alone.

*Unbiased on each prompt.* The models are permuted at random before each prompt, so an active model
meets each other model in a round with the same known probability. The sum of its results over that
probability (Horvitz and Thompson) has the expectation of its score. Of each result a prediction
from earlier prompts is subtracted, and the mean of all predictions added: this leaves the
expectation as it is, however wrong the prediction, and takes off the variance that comes from
strong and weak opponents.

*Valid at every look.* The difference of two such scores is bet on, as in `betting`: if i is not
better than j, the capital of the bet on i has no positive drift, given everything on earlier
prompts, so it ever reaches 1/p with probability at most p (Ville). Which comparisons are asked of a
prompt, the predictions and the size of the bets depend on earlier prompts alone; the choice needs
no further property. Prompts are independent draws of a source; where they come in clusters,
clusters are, and a cluster's total is bet on.

*All pairs together.* Hypotheses are "i is not better than j" for all ordered pairs. Scores are
numbers, so declared orders have consequences: better than something better is better. A step-down
procedure over hypotheses not refuted yet, consequences left out (Shaffer 1986,
doi:10.1080/01621459.1986.10478341), declares any wrong order with probability at most `error`: as
long as all declared orders are right, so are their consequences, and the first wrong one would need
a capital of at least (number of true hypotheses) / `error`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from orchestrator.errors import StatisticsError
from orchestrator.records import Bools, Floats, Ints
from orchestrator.statistics.sequential import LAG

MULTIPLES: Final = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
"""Bets, as multiples of the one that is best if the order is just settled by the last prompt."""
SHARES: Final = np.array([0.1, 0.2, 0.4, 0.2, 0.1])
"""Capital of each of these bets at the start."""

_MOST_LOST: Final = 0.97
"""Share of the capital that a single prompt may take."""
# Of a pair before its first prompt: the second moment of a difference, and its weight in prompts.
_FIRST_MOMENT: Final = 1.0
_FIRST_WEIGHT: Final = 2.0
# Comparisons of each model against an average one that predictions start from.
_RIDGE: Final = 0.25
_MAX_STEPS: Final = 15
_TOLERANCE: Final = 1e-6
# What mixing the bets costs at most where the middle one is right, natural log: -log(0.4).
_MIXING: Final = 0.9
# Prompts of which capitals are multiplied before their logarithm is taken: 0.03 ** 64 is a float.
_MULTIPLIED: Final = 64


@dataclass(frozen=True, slots=True)
class Place:
    """The state of knowledge about a model.

    Attributes:
        model: Its index.
        win_rate: Mean against all others (the baseline), in [0, 1] up to noise; nan without a
            comparison.
        n_prompts: Prompts that this rests on.
        n_comparisons: Its comparisons.
        highest_rank: Best rank that is not excluded.
        lowest_rank: Worst rank that is not excluded.
        verdict: 1 where it is among the best (better than the baseline), -1 where it is not, else
            0; 0 where neither was asked for.
        unsettled: Models that it could still be ordered with, as far as that was asked for.
    """

    model: int
    win_rate: float
    n_prompts: int
    n_comparisons: int
    highest_rank: int
    lowest_rank: int
    verdict: int
    unsettled: tuple[int, ...]


def rounds_of(n: int) -> list[list[tuple[int, int]]]:
    """Rounds of a tournament in which everybody meets everybody once (the circle method).

    Takes at least 2 players; if their number n is odd, one of them rests in each round. Returns n -
    1 rounds (n if it is odd) of pairs.
    """
    even = n + n % 2
    last = even - 1
    found = []
    for turn in range(last):
        met = [(last, turn)]
        met.extend(((turn + k) % last, (turn - k) % last) for k in range(1, even // 2))
        found.append([pair for pair in met if max(pair) < n])
    return found


def consequences(better: Bools) -> Bools:
    """Return all orders that follow from some, shape (n, n): row is better than column."""
    known = better.copy()
    for middle in range(len(known)):
        known |= known[:, middle, None] & known[middle]
    return known


def _grown(logs: Floats, bets: Floats, gains: Floats) -> tuple[Floats, Floats]:
    """Log capitals of bets after some more gains, and the highest log of their sum on the way.

    `logs` (before) and `bets` have shape (bets, orders), as both results; `gains` have (prompts,
    orders), and no gain loses more than `_MOST_LOST` of a capital.
    """
    highest = np.full(gains.shape[1], -np.inf)
    for first in range(0, len(gains), _MULTIPLIED):
        top = logs.max(axis=0)
        capitals = np.exp(logs - top)
        sums = np.zeros_like(gains[first : first + _MULTIPLIED])
        for which, bet in enumerate(bets):
            growth = 1.0 + bet * gains[first : first + _MULTIPLIED]
            np.multiply.accumulate(growth, axis=0, out=growth)
            sums += capitals[which] * growth
            logs[which] += np.log(growth[-1])
        highest = np.maximum(highest, np.log(sums.max(axis=0)) + top)
    return logs, highest


class AdaptiveTest:
    """Orders of many models from few comparisons, chosen and tested block by block.

    A block is chosen by `design` before it is asked, from what is known `LAG - 1` blocks before it,
    and looked at by `look` in the same order.

    Args:
        n_models: K, at least 2; pairs are (0, 1), (0, 2), …, (1, 2), ….
        error: Chance of any wrong order, in (0, 1).
        n_prompts: N, all that may be asked.
        share: Of all K (K - 1) N / 2 comparisons: how many may be asked, in (0, 1].
        top: Only which models are among this many best; None for the order of all.
        baseline: Index of a model: only which others beat it, and which it beats.
        sizes: Prompts of each cluster, of all N prompts; empty where each stands alone.

    Attributes:
        pairs: Indices of the models of each pair.
        better: Shape (K, K), declared orders and their consequences: row is better than column.
        settled_at: Shape (K, K), prompts after which each order was declared; 0 where it is not.
        n_prompts: Prompts that were looked at.
        n_asked: Comparisons that were chosen.
        n_missing: Of those looked at, how many have no value.
        n_blocks: Blocks that were looked at.

    Raises:
        StatisticsError: If an argument is out of its range.
    """

    def __init__(  # noqa: PLR0913 (what is asked for, by keyword)
        self,
        n_models: int,
        *,
        error: float,
        n_prompts: int,
        share: float,
        top: int | None = None,
        baseline: int | None = None,
        sizes: Sequence[int] = (),
    ) -> None:
        if n_models < 2 or not 0.0 < error < 1.0 or not 0.0 < share <= 1.0:
            raise StatisticsError(
                "an adaptive test needs at least 2 models, an error between 0 and 1 and a share "
                f"above 0 and at most 1, got {n_models}, {error} and {share}"
            )
        if top is not None and not 0 < top < n_models:
            raise StatisticsError(f"the top {top} of {n_models} models cannot be told apart")
        if baseline is not None and not 0 <= baseline < n_models:
            raise StatisticsError(f"the baseline {baseline} is none of {n_models} models")
        self.pairs: list[tuple[int, int]] = list(combinations(range(n_models), 2))
        self._pairs = np.triu_indices(n_models, 1)
        self._n = n_models
        self._error = error
        self._top, self._baseline = top, baseline
        self._largest = max(sizes, default=1)
        self._n_all = n_prompts
        self._n_draws = max(1, len(sizes) or n_prompts)
        self._most = math.floor(share * len(self.pairs) * n_prompts + 1e-9)
        self._rounds = np.array(rounds_of(n_models))
        self._asked_for = ~np.eye(n_models, dtype=np.bool_)
        if baseline is not None:
            self._asked_for[:] = False
            self._asked_for[baseline] = self._asked_for[:, baseline] = True
            self._asked_for[baseline, baseline] = False
        shape = (n_models, n_models)
        self.better = np.zeros(shape, np.bool_)
        self.settled_at = np.zeros(shape, np.int64)
        self.n_prompts = self.n_asked = self.n_missing = self.n_blocks = self._n_designed = 0
        self._open = [self._asked_for]
        # Comparisons of each block and rounds of each of its prompts, shape (prompts,).
        self._designs: list[tuple[Bools, Ints]] = []
        # Log capital of each bet, shape (bets, K, K).
        self._log = np.zeros((MULTIPLES.size, *shape)) + np.log(SHARES)[:, None, None]
        self._highest = np.zeros(shape)
        self._p = np.ones(shape)
        self._moments = np.full(shape, _FIRST_MOMENT * _FIRST_WEIGHT)
        self._weights = np.full(shape, _FIRST_WEIGHT)
        self._wins = np.zeros(shape)
        self._counts = np.zeros(shape)
        self._scores = np.zeros(n_models)
        self._n_scores = np.zeros(n_models, np.int64)

    # -- choice ------------------------------------------------------------------------------------

    def is_open(self, block: int) -> Bools:
        """Orders that are still asked for in a block, shape (K, K) and symmetric.

        `block` counts from 0, to at most one more than `LAG` allows for.
        """
        return self._open[min(max(0, block - LAG + 1), len(self._open) - 1)]

    def design(self, n_prompts: int, rng: np.random.Generator) -> Bools:
        """Choose the comparisons of the next block.

        `rng` is of this block alone, so that the choice is the same whenever it is made. Returns
        shape (n_prompts, pairs).
        """
        is_active: Bools = np.asarray(self.is_open(len(self._designs)).any(axis=1))
        chosen = np.zeros((n_prompts, self._n, self._n), np.bool_)
        cost, most = self._cost_of_round(is_active)
        left = max(1, self._n_all - self._n_designed)
        degree = min(most, (self._most - self.n_asked) / (left * cost)) if cost else 0.0
        n_rounds = np.diff(np.floor(rng.random() + degree * np.arange(n_prompts + 1)).astype(int))
        most_met = self._most_of_round(is_active)
        for prompt in range(n_prompts):
            # Whole rounds or nothing, and before they are drawn: else some opponents were likelier.
            if self.n_asked + n_rounds[prompt] * most_met > self._most:
                n_rounds[prompt] = 0
            met = self._draw(int(n_rounds[prompt]), is_active, rng)
            self.n_asked += len(met)
            chosen[prompt, met[:, 0], met[:, 1]] = chosen[prompt, met[:, 1], met[:, 0]] = True
        self._n_designed += n_prompts
        self._designs.append((chosen, n_rounds))
        first, second = self._pairs
        return chosen[:, first, second]

    def _cost_of_round(self, is_active: Bools) -> tuple[float, int]:
        """Expected comparisons of a round, and how many different rounds there are."""
        n_active = int(is_active.sum())
        if self._baseline is not None:
            return float(max(0, n_active - 1)), 1
        n, n_idle = self._n, self._n - n_active
        both_idle = n_idle * (n_idle - 1) / (n * (n - 1))
        return len(self.pairs) / len(self._rounds) * (1.0 - both_idle), len(self._rounds)

    def _most_of_round(self, is_active: Bools) -> int:
        """Comparisons of a round at most."""
        n_active = int(is_active.sum())
        if self._baseline is not None:
            return max(0, n_active - 1)
        return min(self._n // 2, n_active)

    def _draw(self, n_rounds: int, is_active: Bools, rng: np.random.Generator) -> Ints:
        """Comparisons of one prompt, shape (comparisons, 2)."""
        baseline = self._baseline
        if n_rounds == 0:
            return np.zeros((0, 2), np.int64)
        if baseline is not None:
            others = np.flatnonzero(is_active & (np.arange(self._n) != baseline))
            return np.stack([others, np.full(len(others), baseline)], axis=1)
        who = rng.permutation(self._n)
        picked = rng.choice(len(self._rounds), n_rounds, replace=False)
        met: Ints = who[self._rounds[picked].reshape(-1, 2)]
        return met[is_active[met].any(axis=1)]

    # -- decision ----------------------------------------------------------------------------------

    def look(self, values: Floats, sizes: Sequence[int] | None = None) -> None:
        """Take the results of the next block that was chosen.

        `values` have shape (prompts, pairs): result of the first model of each pair in [-1, 1], in
        the order of the prompts, nan where there is none. Those that were not chosen are not looked
        at; a missing one that was is neither won nor lost. `sizes` are the prompts of each cluster,
        in their order; None where each stands alone.

        Raises:
            StatisticsError: If the block was not chosen, or has another shape.
        """
        if self.n_blocks >= len(self._designs):
            raise StatisticsError("the next block was not chosen yet")
        chosen, n_rounds = self._designs[self.n_blocks]
        if values.shape != (len(chosen), len(self.pairs)):
            raise StatisticsError(f"the block was chosen with other shapes than {values.shape}")
        results = np.zeros(chosen.shape)
        first, second = self._pairs
        results[:, first, second] = values
        results[:, second, first] = -values
        self.n_missing += int((chosen & np.isnan(results)).sum()) // 2
        known = chosen & ~np.isnan(results)
        results = np.where(known, results, 0.0)
        if np.any(np.abs(results) > 1.0 + 1e-9):
            raise StatisticsError("results of comparisons must be in [-1, 1]")
        differences = self._differences(results, chosen, n_rounds)
        self._bet(*differences, self.is_open(self.n_blocks), sizes)
        self._wins += np.where(known, (results + 1.0) / 2.0, 0.0).sum(axis=0)
        self._counts += known.sum(axis=0)
        # It is not needed again, and a long run has many.
        self._designs[self.n_blocks] = (np.zeros((0, 0, 0), np.bool_), np.zeros(0, np.int64))
        self.n_blocks += 1
        self.n_prompts += len(values)
        self._declare()
        self._open.append(self._still_open())

    def _differences(
        self, results: Floats, chosen: Bools, n_rounds: Ints
    ) -> tuple[Floats, Bools, Floats]:
        """Scores of the models on each prompt, and their most negative differences.

        Returns scores, shape (prompts, K); which of them there are; and for each two models a bound
        that the score of the first less that of the second never goes below, positive.
        """
        baseline = self._baseline
        if baseline is not None:
            present = chosen[:, :, baseline].copy()
            present[:, baseline] = present.any(axis=1)
            return results[:, :, baseline], present, np.ones((self._n, self._n))
        predicted = self._predictions()
        mean = predicted.mean(axis=1)
        beyond = np.where(chosen, results - predicted, 0.0).sum(axis=2)
        # One over the probability of a pair times the models, the model itself among them; where
        # their number is odd a round is without one of them, and there are as many as models.
        factor = len(self._rounds) / self._n
        scores = mean + factor * beyond / np.maximum(n_rounds, 1)[:, None]
        lost = mean - factor * (1.0 + predicted).max(axis=1)
        won = mean + factor * (1.0 - predicted).max(axis=1)
        present = np.broadcast_to((n_rounds > 0)[:, None], scores.shape)
        return scores, present, won[None, :] - lost[:, None]

    def _predictions(self) -> Floats:
        """Expected results from all earlier blocks, by a ridge Bradley-Terry fit; shape (K, K)."""
        strength = np.zeros(self._n)
        for _ in range(_MAX_STEPS):
            p = 1.0 / (1.0 + np.exp(strength[None, :] - strength[:, None]))
            slope = (self._wins - self._counts * p).sum(axis=1) - _RIDGE * strength
            weight = self._counts * p * (1.0 - p)
            curvature = np.diag(weight.sum(axis=1) + _RIDGE) - weight
            step = np.clip(np.linalg.solve(curvature, slope), -1.0, 1.0)
            strength += step
            if np.abs(step).max() < _TOLERANCE:
                break
        return np.tanh((strength[:, None] - strength[None, :]) / 2.0)

    def _bet(
        self,
        scores: Floats,
        present: Bools,
        worst: Floats,
        is_open: Bools,
        sizes: Sequence[int] | None,
    ) -> None:
        """Bet on every order that was open when the block was chosen."""
        is_active = is_open.any(axis=1)
        self._scores += np.where(present & is_active, scores, 0.0).sum(axis=0)
        self._n_scores += (present & is_active).sum(axis=0)
        apart = scores[:, :, None] - scores[:, None, :]
        apart[~(present[:, :, None] & present[:, None, :])] = 0.0
        counted: Bools = np.asarray(present.any(axis=1))
        if sizes is not None:
            starts = np.cumsum(sizes) - np.asarray(sizes)
            apart = np.add.reduceat(apart, starts, axis=0) if len(apart) else apart
            counted = np.logical_or.reduceat(counted, starts) if len(counted) else counted
        apart = apart[counted]
        if not len(apart) or not is_open.any():
            return
        n_left = self._asked_for.sum() - self.better.sum()
        target = math.log(max(1, n_left) / self._error) + _MIXING
        best = np.sqrt(2.0 * target * self._weights / (self._n_draws * self._moments))
        limit = _MOST_LOST / (self._largest * worst)
        rows, columns = np.nonzero(is_open)
        bets = np.minimum(best * MULTIPLES[:, None, None], limit)[:, rows, columns]
        gains = apart[:, rows, columns]
        logs, highest = _grown(self._log[:, rows, columns], bets, gains)
        self._log[:, rows, columns] = logs
        self._highest[rows, columns] = np.maximum(self._highest[rows, columns], highest)
        self._moments[rows, columns] += (gains**2).sum(axis=0)
        self._weights[rows, columns] += len(apart)

    def _declare(self) -> None:
        """Declare what the capitals refute, until nothing more follows."""
        p = np.where(self._asked_for, np.exp(-self._highest), 1.0)
        while True:
            n_left = int(self._asked_for.sum() - self.better.sum())
            adjusted = np.minimum(1.0, p * n_left)
            self._p = np.where(self.better, self._p, adjusted)
            found = self.better | ((adjusted <= self._error) & self._asked_for)
            if (found == self.better).all():
                return
            if self._baseline is None:
                found = consequences(found)
            new = found & ~self.better
            # A consequence holds as long as the orders that it follows from do.
            worst = float(adjusted[new & (adjusted <= self._error)].max(initial=0.0))
            known = float(self._p[self.better].max(initial=0.0))
            self._p[new] = np.where(adjusted[new] <= self._error, adjusted[new], max(worst, known))
            self.better = found
            self.settled_at[new] = self.n_prompts

    def _still_open(self) -> Bools:
        """Orders that are neither known nor without interest, symmetric."""
        open_now = self._asked_for & ~(self.better | self.better.T)
        if self._top is not None:
            known = self._verdicts() != 0
            open_now &= ~(known[:, None] & known[None, :])
        return open_now

    # -- results -----------------------------------------------------------------------------------

    def p(self, first: int, second: int) -> float:
        """Adjusted p-value of "first is better than second", when it was declared or now."""
        return float(self._p[first, second])

    def _verdicts(self) -> Ints:
        """1 where a model is known to be among the best (beat the baseline), -1 where not."""
        verdicts = np.zeros(self._n, np.int64)
        if self._baseline is not None:
            verdicts[self.better[:, self._baseline]] = 1
            verdicts[self.better[self._baseline]] = -1
        elif self._top is not None:
            verdicts[self.better.sum(axis=1) >= self._n - self._top] = 1
            verdicts[self.better.sum(axis=0) >= self._top] = -1
        return verdicts

    def places(self) -> list[Place]:
        """Return what is known of each model, in the order of the models."""
        verdicts, still_open = self._verdicts(), self._open[-1]
        n_met = self._counts.sum(axis=1).astype(np.int64)
        # A model is no opponent of its own, but counts as one that it ties with.
        scale = 1.0 if self._baseline is not None else self._n / (self._n - 1)
        with np.errstate(invalid="ignore"):
            rates = 0.5 + 0.5 * scale * self._scores / self._n_scores
        return [
            Place(
                model,
                float(rates[model]),
                int(self._n_scores[model]),
                int(n_met[model]),
                1 + int(self.better[:, model].sum()),
                self._n - int(self.better[model].sum()),
                int(verdicts[model]),
                tuple(int(other) for other in np.flatnonzero(still_open[model])),
            )
            for model in range(self._n)
        ]
