"""The cost of an adaptive choice of comparisons, by simulation of models that are invented.

How much of its share a choice spends depends on how unlike the models are, which nobody knows
before. So it is simulated with models of which that is assumed: the quality of an answer is that of
its model plus luck of variance 1 on each prompt, qualities are drawn from a normal distribution,
and the judge sees the difference of two answers with an error of variance 1/4 and reports it
softly, as a number in (-1, 1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.statistics.adaptive import AdaptiveTest, Goal
from orchestrator.statistics.sequential import LAG

Floats = NDArray[np.float64]

_JUDGE_NOISE: Final = 0.5
# Of a simulation: seconds of one core, measured for 3 to 60 models, of a prompt and of each pair of
# models on it; at most so many for one, and for all of them together.
_PROMPT_S: Final = 5e-5
_PAIR_S: Final = 1.4e-7
_MOST_S: Final = 0.1
_MOST_ALL_S: Final = 0.2
_MOST_SIMULATIONS: Final = 10
_MOST_MODELS: Final = 40
# Prompts of a block, at least, where fewer prompts are simulated than there are.
_LEAST_BLOCK: Final = 10


@dataclass(frozen=True, slots=True)
class Cost:
    """Part of what would be asked if no order were ever settled, each in [0, 1].

    Attributes:
        comparisons: Of the comparisons.
        answers: Of the answers that are compared.
    """

    comparisons: float
    answers: float


def judged(answers: Floats, rng: np.random.Generator) -> Floats:
    """Return the results of a soft judge for all pairs.

    `answers` are qualities, shape (prompts, K). Returns shape (prompts, pairs), in (-1, 1),
    positive where the first of the pair is better; pairs are (0, 1), (0, 2), …, (1, 2), ….
    """
    first, second = np.triu_indices(answers.shape[1], 1)
    noise = _JUDGE_NOISE * rng.normal(size=(len(answers), len(first)))
    results: Floats = np.tanh(answers[:, first] - answers[:, second] + noise)
    return results


def win_rate(spread: float) -> float:
    """Return how often the judge prefers the better of two models, the mean over models.

    `spread` is the standard deviation of the models' qualities, in that of one model's answers.
    """
    return 0.5 + math.atan(math.sqrt(2.0) * spread / math.sqrt(2.0 + _JUDGE_NOISE**2)) / math.pi


def ask(
    test: AdaptiveTest,
    results: Floats,
    bounds: Sequence[int],
    seed: int,
    sizes: Sequence[Sequence[int]] = (),
) -> int:
    """Run a test through all blocks, as a run does it.

    `results` are of all comparisons, shape (prompts, pairs); `bounds` are the first prompt of each
    block, and the number of prompts; `sizes`, by block, the prompts of each of its clusters, empty
    where prompts stand alone. Returns how many answers are compared.
    """
    n_answers, n_blocks = 0, len(bounds) - 1
    for block in range(n_blocks + LAG - 1):
        if block < n_blocks:
            n_answers += _design(test, bounds[block + 1] - bounds[block], [seed, block])
        looked = block - LAG + 1
        if looked >= 0:
            part = results[bounds[looked] : bounds[looked + 1]]
            test.look(part, sizes[looked] if sizes else None)
    return n_answers


def _design(test: AdaptiveTest, n_prompts: int, seed: Sequence[int]) -> int:
    """Choose the comparisons of the next block; return how many answers are compared."""
    chosen = test.design(n_prompts, np.random.default_rng(seed))
    takes_part = np.zeros((len(test.pairs), len(test.better)), np.bool_)
    np.put_along_axis(takes_part, np.array(test.pairs), values=True, axis=1)
    return int((chosen @ takes_part).sum())


def expected_cost(  # noqa: PLR0913 (the test's, and what is assumed)
    n_models: int,
    *,
    error: float,
    n_prompts: int,
    share: float,
    goal: Goal,
    spread: float,
    block: int,
    rng: np.random.Generator,
) -> Cost:
    """Return the mean cost of a choice for models that differ as is said.

    It takes about 0.2 s, whatever the numbers are. Of more than 40 models only so many are
    simulated, each with as many comparisons as among all, and each order at the error that it would
    have among all. Of more prompts than there is time for, only so many are simulated, and
    qualities lie further apart by the root of the ratio: an order then needs about the same part of
    the prompts. Where models differ much this says rather too much. Arguments are those of
    `AdaptiveTest`; a baseline is as likely good as any other model, and no prompt is taken to
    depend on another. `spread` is the standard deviation of the models' qualities, in that of one
    model's answers, `block` the prompts of a block.
    """
    k = min(n_models, _MOST_MODELS)
    error *= (k * (k - 1)) / (n_models * (n_models - 1)) if goal.baseline is None else k / n_models
    share = min(1.0, share * n_models / k)
    a_prompt = _PROMPT_S + _PAIR_S * k * (k - 1) / 2
    n = min(n_prompts, max(1, round(_MOST_S / a_prompt)))
    if goal.top is not None:
        goal = Goal(top=min(k - 1, max(1, round(goal.top * k / n_models))))
    elif goal.baseline is not None:
        goal = Goal(baseline=0)
    spread *= math.sqrt(n_prompts / n)
    bounds = [*range(0, n, max(min(block, _LEAST_BLOCK), round(block * n / n_prompts))), n]

    def new_test() -> AdaptiveTest:
        return AdaptiveTest(k, error=error, n_prompts=n, share=share, goal=goal)

    unsettled, most_answers = new_test(), 0
    for number, (first, last) in enumerate(pairwise(bounds)):
        most_answers += _design(unsettled, last - first, [number])
    asked, n_answers = [], []
    for seed in range(min(_MOST_SIMULATIONS, max(1, round(_MOST_ALL_S / (n * a_prompt))))):
        answers = spread * rng.normal(size=k) + rng.normal(size=(n, k))
        test = new_test()
        n_answers.append(ask(test, judged(answers, rng), bounds, seed))
        asked.append(test.n_asked)
    return Cost(
        min(1.0, float(np.mean(asked)) / max(1, unsettled.n_asked)),
        min(1.0, float(np.mean(n_answers)) / max(1, most_answers)),
    )
