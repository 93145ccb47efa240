"""Reward: a reward model rates one answer by a number.

For every item and candidate the reward model is given the conversation with the answer as its last
turn, and its raw output, without a sigmoid, is the score. A model with several outputs, or with one
at each token or step, needs a setting that says what counts; without it the unit fails with the
shape that came.

Source: Ouyang et al. 2022, "Training language models to follow instructions with human feedback"
(arXiv 2203.02155), section 3.5; formulas as in `docs/methods/reward.md`.

Deviations: rewards are not shifted so that demonstrations have a mean of 0, since only differences
on one item compare models. Rewards of two reward models are not on one scale.
"""

from collections.abc import Sequence
from typing import ClassVar

from orchestrator.methods import answers
from orchestrator.methods._conversation import converse
from orchestrator.methods._rating import RatingSettings, rate, stages_of
from orchestrator.plugin import Ask, Columns, Companion, Method, Row, Stage, Unit


class Config(RatingSettings):
    """Settings of `reward`."""


class Reward(Method[Config]):
    """A reward model rates one answer by a number."""

    cites = ("ouyang2022training",)
    frame = "rewards"
    unit_columns: ClassVar[Columns] = {
        "item": "str",
        "category": "str",
        "model": "str",
        "judge": "str",
    }
    columns: ClassVar[Columns] = {
        "turn": "i64",
        "reward": "f64",
        "outputs": "list[f64]",
        "n_places": "i64",
        "n_characters": "i64",
    }
    scores: ClassVar = {"reward": 1}

    @property
    def judges(self) -> tuple[str, ...]:
        """Reward models."""
        return self.config.judges

    def companions(self) -> list[Companion]:
        """Return the answers that are rated, as a frame of their own."""
        return [answers.companion(self.config.candidates, self.config.answer)]

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """Return one rating an answer."""
        return stages_of("reward", self.config, candidates)

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """Draw and rate the answer; return one row a turn."""
        config = self.config
        turns = [turn for (turn,) in await converse(unit.item, unit.models, ask, config.answer)]
        return [
            {
                "turn": turn.number,
                "reward": rated.reward,
                "outputs": rated.outputs,
                "n_places": rated.n_places,
                "n_characters": len(turn.answer.text),
            }
            for turn, rated in zip(turns, await rate(ask, unit.judge, turns, config), strict=True)
        ]
