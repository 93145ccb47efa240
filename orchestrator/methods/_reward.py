"""Rewards: a reward model rates answers by numbers, alone (`reward`) or in pairs (`reward_pairs`).

For every item and candidate the reward model is given the conversation with the answer as its last
turn, and its raw output, without a sigmoid, is the score. A model with several outputs, or with one
at each token or step, needs a setting that says what counts; without it the unit fails with the
shape that came.

For every pair of candidates P(A better) = sigma((r_A - r_B) / T), with these rewards and a
temperature of the reward model's own. There is no order in which answers are shown, since each is
rated by itself. Requests are the same: a recipe with both methods, or with many pairs, rates every
answer once.

Sources: Ouyang et al. 2022, "Training language models to follow instructions with human feedback"
(arXiv 2203.02155), section 3.5, and equation 1, with which reward models are trained; Bradley and
Terry 1952; accuracy by pairs as in Lambert et al. 2024, "RewardBench" (arXiv 2403.13787). Formulas
as in `docs/methods/reward.md`.

Deviations: rewards are not shifted so that demonstrations have a mean of 0, since only differences
on one item compare models. Rewards of two reward models are not on one scale. RewardBench counts a
pair as right where the reward of the chosen answer is higher; equal rewards count half here, as a
tie.
"""

from collections.abc import Sequence
from typing import ClassVar, Self, TypeVar

from pydantic import Field, model_validator

from orchestrator.judgment.reward import Places, preference, reward_of
from orchestrator.methods._drawing import (
    Drawing,
    OfAnswers,
    OfAnswersSettings,
    Turn,
    converse,
    pairs_by_judge,
    permanent,
)
from orchestrator.plugin import (
    Ask,
    Columns,
    Combination,
    Compared,
    Message,
    ModelName,
    PairColumns,
    Rewards,
    Row,
    Stage,
    Unit,
    typed,
)


class RatingSettings(OfAnswersSettings):
    """Settings of methods in which reward models rate answers."""

    judges: tuple[ModelName, ...] = Field(
        description="Reward models that rate the answers.", min_length=1
    )
    answer: Drawing = Field(Drawing(), description="Sampling settings of answers.")
    output: int | None = Field(
        None,
        ge=0,
        description="Which output of a reward model with several counts, from 0 on. Default: the "
        "only one.",
    )
    weights: tuple[float, ...] | None = Field(
        None,
        min_length=1,
        description="Or the weights with which all outputs are added up, one for each; [-1, 1] "
        "makes log-odds of a model that says wrong or right.",
    )
    places: Places | None = Field(
        None,
        description="For a reward model that rates places of the answer (tokens or steps): last, "
        "mean, min, or product, the sum of ln sigma. Default: it rates the whole.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.output is not None and self.weights is not None:
            raise ValueError("'output' and 'weights' exclude each other; omit one of them")
        return self


async def rate(
    ask: Ask, judge: str, turns: Sequence[Turn], config: RatingSettings
) -> list[tuple[float, Rewards]]:
    """Rate answers, each as the last turn of its conversation: the number that counts, and all.

    Raises:
        AskFailed: If a request fails, or the outputs are not of the shape that the settings are
            for: a reward that can't be read is missing.
    """
    asked = [(*turn.messages, Message("assistant", turn.answer.text)) for turn in turns]
    found: list[Rewards] = await ask.all(*(ask.reward(judge, messages) for messages in asked))
    how = config.model_dump(include={"output", "weights", "places"})
    try:
        return [(reward_of(one.values, by_place=one.by_place, **how), one) for one in found]
    except ValueError as error:
        raise permanent("reward_shape", error) from error


RatingT = TypeVar("RatingT", bound=RatingSettings, covariant=True)


class Rating(OfAnswers[RatingT]):
    """Base of methods in which reward models rate answers."""

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """Return one rating an answer, whatever the number of pairs; equal answers are rated once.

        A reward model is tried with a made-up conversation.
        """
        config, n = self.config, len(candidates)
        draw = f"reward {config.answer.model_dump_json()} {' '.join(candidates)}"
        question = (Message("user", "What is 2 + 2?"), Message("assistant", "4"))
        return [
            Stage("rewards", judge, "reward", n, exact=False, draw=draw, examples=(example,))
            for judge in config.judges
            for example in [Ask().reward(judge, question)]
        ]


class Reward(Rating[RatingSettings]):
    """Reward: a reward model rates one answer by a number."""

    cites = ("ouyang2022training",)
    frame = "rewards"
    unit_columns: ClassVar[Columns] = typed("item category model judge: str")
    columns: ClassVar[Columns] = typed(
        "turn: i64 | reward: f64 | outputs: list[f64] | n_places n_characters: i64"
    )
    scores: ClassVar = {"reward": 1}

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """Draw and rate the answer; return one row a turn."""
        config = self.config
        turns = [turn for (turn,) in await converse(unit.item, unit.models, ask, config.answer)]
        return [
            {
                "turn": turn.number,
                "reward": reward,
                "outputs": None if found.by_place else found.values[0].tolist(),
                "n_places": len(found.values),
                "n_characters": len(turn.answer.text),
            }
            for turn, (reward, found) in zip(
                turns, await rate(ask, unit.judge, turns, config), strict=True
            )
        ]


class RewardPairsConfig(RatingSettings):
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


class RewardPairs(Rating[RewardPairsConfig]):
    """Reward pairs: which of two answers is better, by the rewards of a reward model."""

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
