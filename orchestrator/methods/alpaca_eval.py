"""AlpacaEval 2: a judge's probabilities say how much a model is preferred to a baseline.

The judge sees an instruction and two unnamed outputs, called `m` and `M`, and answers with one of
these. Its preference is 1 + P(M) over the two, with the model as M: 1 is the baseline, 2 the model.
Equal outputs are 1.5 without asking. Which of the two is shown first is drawn by a seed made of the
instruction, as published (`order: published`), or both orders are asked and averaged (`both`).

Source: Dubois et al. 2024, "Length-Controlled AlpacaEval" (arXiv 2404.04475) and `alpaca_eval`
(commit cd543a14, `weighted_alpaca_eval_gpt4_turbo`), whose `alpaca_eval_clf.txt` is read.

Deviations: P is read by `choose`, exactly where the server can; where it only lists alternatives,
one that is missing counts as 0, as published, and `preference_low`, `preference_high` bound what it
may be. `compact` is the bundled judge's wording with five symbols: P(M) is then P(second is
better) + P(tie)/2.
"""

from collections.abc import Sequence
from random import Random
from statistics import fmean
from typing import Annotated, ClassVar, Final, Literal

from msgspec.structs import replace
from pydantic import Field, model_validator

from orchestrator.contracts.rows import failed_row
from orchestrator.contracts.settings import GivenFile
from orchestrator.judgment.distribution import LabelDistribution
from orchestrator.methods import _harness
from orchestrator.methods._drawing import (
    Drawing,
    Judges,
    OfAnswers,
    OfAnswersSettings,
    Turn,
    converse,
    fields,
    pairs_by_judge,
    questions,
    with_baseline,
)
from orchestrator.methods._examples import example, messages
from orchestrator.methods._verdicts import distributions
from orchestrator.plugin import (
    Ask,
    Columns,
    Combination,
    Failure,
    Label,
    ModelName,
    Row,
    Settings,
    Stage,
    Unit,
    labels,
    typed,
)
from orchestrator.prompts import compact
from orchestrator.prompts.files import ONLY, Wording, wordings_from

# AlpacaEval 2: preferences from the probabilities of `m` and `M`, and the order of the outputs.
#
# A preference is in [1, 2]; above 1.5 output 2 (the model) is better than output 1 (the baseline).
# The win rates are in `orchestrator.statistics.length`.
#
# Source: Dubois et al. 2024, "Length-Controlled AlpacaEval" (arXiv 2404.04475), and `alpaca_eval`
# (commit cd543a14): `logprob_parser`, `RandomSwitchTwoColumnsProcessor`.


DRAW: Final = 1.5
"""The preference where both outputs are equal; nothing is asked then."""
SEED: Final = 0
"""The seed that `BaseAnnotator` passes to every annotator and processor, part of what decides the
order. (The 123 in the processors' own signature is a default that is always overridden.)"""


def is_switched(instruction: str, seed: int = SEED) -> bool:
    """Return True if AlpacaEval shows the outputs of an instruction in the order 2, 1.

    The same as published, bit for bit: Python's own generator, seeded by the text. With the default
    seed it gives the orders that the published judgments record.
    """
    drawn = Random(f"is_switched_outputs{instruction}{seed}")  # noqa: S311 (as published)
    return drawn.choices([False, True], k=1)[0]


WHERE: Final = (
    "AlpacaEval's is alpaca_eval_clf.txt in src/alpaca_eval/evaluators_configs of the "
    "repository tatsu-lab/alpaca_eval (Apache-2.0); for the bundled judge use `prompts: compact`"
)
_PUBLISHED: Final = labels("m", "M"), (0.0, 1.0)
_COMPACT: Final = labels(*compact.LABELS), (0.0, 0.0, 0.5, 1.0, 1.0)
"""Labels, and the preference for the output shown second by each."""


class LengthControl(Settings):
    """Inputs of the length-controlled win rate beside the judgments."""

    difficulties: GivenFile | None = Field(
        None,
        description="CSV or JSON lines: item (or index, instruction) and difficulty, as "
        "AlpacaEval's instruction_difficulty.csv.",
    )
    gamed: GivenFile | None = Field(
        None,
        description="Rows of the gamed baselines, as AlpacaEval's df_gamed.csv: std_delta_len, "
        "instruction_difficulty, preference in [0, 1]; also gives the difficulties where nothing "
        "else does, by index.",
    )

    @model_validator(mode="after")
    def _fits(self) -> "LengthControl":
        if self.difficulties is None and self.gamed is None:
            raise ValueError("give 'difficulties', or 'gamed' with difficulties")
        return self


class Config(OfAnswersSettings):
    """Settings of `alpaca_eval`."""

    judges: Judges
    baseline: ModelName = Field(description="Model to compare all others with.")
    prompts: Annotated[Literal["compact"] | dict[str, Wording], wordings_from(WHERE, "compact")] = (
        Field(
            description="AlpacaEval's alpaca_eval_clf.txt, a template with instruction, output_1 "
            "and output_2, or compact."
        )
    )
    answer: Drawing = Field(Drawing(max_tokens=2048), description="Sampling settings of outputs.")
    order: Literal["published", "both"] = Field(
        "published",
        description="One order, chosen by a hash of the instruction; or both, averaged.",
    )
    seed: int = Field(
        SEED, description="Seed of the order, with the instruction; AlpacaEval's is 0."
    )

    length_control: LengthControl | None = Field(
        None,
        description="Difficulties of the instructions, needed for the length-controlled win rate. "
        "They do not affect requests or rows.",
    )

    @model_validator(mode="after")
    def _fits(self) -> "Config":
        if self.prompts != "compact" and ONLY not in self.prompts:
            raise ValueError(f"'prompts' must be a file of one template; {WHERE}")
        return self

    def asked(self) -> tuple[tuple[Label, ...], tuple[float, ...]]:
        """Return the labels, and the preference for the output shown second by each."""
        return _COMPACT if self.prompts == "compact" else _PUBLISHED

    def wording(self) -> Wording:
        """Return the template."""
        return _harness.COMPACT[True] if self.prompts == "compact" else self.prompts[ONLY]


class Kind(OfAnswers[Config]):
    """A judge's probabilities say how much a model is preferred to a baseline.

    `preference` is in [1, 2], above 1.5 for the model; with both orders it is their mean, and
    `preference_baseline_first` that of one order alone.
    """

    cites = ("dubois2024length",)
    version = 2
    frame = "preferences"
    unit_columns: ClassVar[Columns] = typed(
        "item category: str | turn: i64 | judge model baseline: str"
    )
    columns: ClassVar[Columns] = typed(
        "preference preference_low preference_high preference_baseline_first coverage: f64",
        "exact model_first same_text: bool | n_characters n_characters_baseline: i64",
    )

    def combinations(self, candidates: Sequence[str]) -> list[Combination]:
        """Every model with the baseline, with every judge."""
        return pairs_by_judge(candidates, self.config.judges, self.config.baseline)

    @property
    def answering(self) -> tuple[ModelName, ...] | None:
        """Models whose outputs are drawn, the baseline among them."""
        return with_baseline(self.config.candidates, self.config.baseline)

    def needs(self) -> frozenset[str]:
        """The reference, where the wording shows it."""
        return frozenset({"reference"} if self.config.wording().shows("reference") else ())

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """One reading a model, two with both orders; equal outputs take none."""
        config = self.config
        n_orders = 2 if config.order == "both" else 1
        n = n_orders * sum(model != config.baseline for model in candidates)
        draw = config.model_dump_json(exclude={"name", "judges", "length_control"})
        examples = example(config.wording(), config.asked()[0])
        return [
            Stage(
                "AlpacaEval preferences",
                judge,
                "choose",
                n,
                exact=False,
                draw=draw,
                examples=tuple(replace(one, model=judge) for one in examples),
            )
            for judge in config.judges
        ]

    def identify(self, unit: Unit) -> Row:
        """Item, category, judge, model and baseline."""
        return {**super().identify(unit), "baseline": unit.models[1]}

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """One preference a turn, of the conversations up to it."""
        turns = await converse(unit.item, unit.models, ask, self.config.answer)
        rows = []
        for n, (model, baseline) in enumerate(turns, 1):
            row: Row = {
                **dict.fromkeys(Kind.columns),
                "turn": n,
                "same_text": model.answer.text == baseline.answer.text,
                "n_characters": len(model.answer.text),
                "n_characters_baseline": len(baseline.answer.text),
            }
            mine, theirs = zip(*turns[:n], strict=True)
            rows.append(
                row | await _judged(unit, ask, self.config, (mine, theirs), same=row["same_text"])
            )
        return rows


async def _judged(
    unit: Unit,
    ask: Ask,
    config: Config,
    shown: tuple[Sequence[Turn], Sequence[Turn]],
    *,
    same: bool,
) -> Row:
    """The preference between the conversations of the model and of the baseline."""
    if same:
        return {"preference": DRAW, "preference_low": DRAW, "preference_high": DRAW, "exact": True}
    mine, theirs = shown
    asked, values = config.asked()
    # As published: the baseline is output 1, unless the seed switches the two.
    switched = is_switched(questions(mine), config.seed)
    orders = (False, True) if config.order == "both" else (switched,)
    asks = []
    for model_first in orders:
        outputs = (mine, theirs) if model_first else (theirs, mine)
        prompt = messages(config.wording(), fields(unit.item, *outputs))
        asks.append(ask.choose(unit.judge, prompt, asked))
    seen = await distributions(ask, asks)
    row: Row = {"model_first": None if config.order == "both" else switched}
    lacking = next((one for one in seen if one.probabilities is None), None)
    if lacking is not None:
        return row | failed_row(Failure("no_logprobs", lacking.undefined or ""))
    read = [_preference(one, values, flip) for one, flip in zip(seen, orders, strict=True)]
    preference, low, high = (fmean(column) for column in zip(*read, strict=True))
    # The mean of both orders, where both were asked
    return row | {
        "preference": preference,
        "preference_low": low,
        "preference_high": high,
        "preference_baseline_first": read[0][0] if len(read) > 1 else None,
        "coverage": min(one.coverage for one in seen),
        "exact": all(one.exact for one in seen),
    }


def _preference(
    seen: LabelDistribution,
    values: Sequence[float],
    model_first: bool,  # noqa: FBT001
) -> tuple[float, float, float]:
    """The preference for the model in one order, and its least and greatest value."""
    second = sum(p * value for p, value in zip(seen.probabilities or (), values, strict=True))
    least, most = seen.mean_bounds(values)
    if model_first:
        second, least, most = 1.0 - second, 1.0 - most, 1.0 - least
    return 1.0 + second, 1.0 + least, 1.0 + most
