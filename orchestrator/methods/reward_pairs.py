"""Reward pairs: which of two answers is better, by the rewards of a reward model.

For every item and every pair of candidates P(A better) = sigma((r_A - r_B) / T), with the rewards
of `reward` and a temperature of the reward model's own. There is no order in which answers are
shown, since each is rated by itself. Requests are those of `reward`: a recipe with both, or with
many pairs, rates every answer once.

Source: Bradley and Terry 1952; Ouyang et al. 2022 (arXiv 2203.02155), equation 1, with which reward
models are trained; accuracy by pairs as in Lambert et al. 2024, "RewardBench" (arXiv 2403.13787).
Formulas as in `docs/methods/reward.md`.

Deviations: RewardBench counts a pair as right where the reward of the chosen answer is higher;
equal rewards count half here, as a tie.
"""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from orchestrator.judgment.reward import preference
from orchestrator.methods._drawing import OfAnswers, converse, pairs_by_judge
from orchestrator.methods.reward import RatingSettings, rate, stages_of
from orchestrator.plugin import (
    Ask,
    Columns,
    Combination,
    Compared,
    ModelName,
    PairColumns,
    Row,
    Stage,
    Unit,
    typed,
)


class Config(RatingSettings):
    """Settings of `reward_pairs`."""

    candidates: tuple[ModelName, ...] | None = Field(
        None, description="Models to evaluate. Default: all that are not judges.", min_length=2
    )
    temperature: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="Divides the difference of two rewards: 1 for a model trained with the loss of "
        "Bradley and Terry. Changes probabilities, never which answer is better.",
    )


class RewardPairs(OfAnswers[Config]):
    """Pairs of answers compared by the rewards of a reward model."""

    cites = ("bradley1952rank", "ouyang2022training", "lambert2024rewardbench")
    frame = "reward_pairs"
    unit_columns: ClassVar[Columns] = typed("item category model_a model_b judge: str")
    columns: ClassVar[Columns] = typed(
        "turn: i64 | reward_a reward_b prefer_a: f64 | same_text: bool"
    )
    scores: ClassVar = {"prefer_a": 1}
    pairs = PairColumns(judge="judge", turn="turn", same_text="same_text")

    def combinations(self, candidates: Sequence[str]) -> list[Combination]:
        """Return every pair of candidates with every reward model."""
        return pairs_by_judge(candidates, self.config.judges)

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """Return one rating an answer, whatever the number of pairs."""
        return stages_of("reward", self.config, candidates)

    def compared(self) -> Compared:
        """Return P(A better)."""
        return Compared("prefer_a", 0.0, 1.0)

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """Draw both answers and rate them; return one row a turn, with the preference."""
        config = self.config
        turns = await converse(unit.item, unit.models, ask, config.answer)
        sides = [side for turn in turns for side in turn]
        rated = [reward for reward, _ in await rate(ask, unit.judge, sides, config)]
        return [
            {
                "turn": a.number,
                "reward_a": of_a,
                "reward_b": of_b,
                "prefer_a": preference(of_a, of_b, config.temperature),
                "same_text": a.answer.text == b.answer.text,
            }
            for (a, b), of_a, of_b in zip(turns, rated[::2], rated[1::2], strict=True)
        ]
