"""Settings of `glass_box`, and the columns that they fill."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from pydantic import Field, field_validator, model_validator

from orchestrator.judgment.glass_box import ORIENTATION
from orchestrator.methods import _glass_box as values
from orchestrator.methods._drawing import Drawing
from orchestrator.plugin import MethodSettings, ModelName, Settings
from orchestrator.prompts.system_pool import SYSTEM_POOL

AUGMENTABLE: Final = (*values.OF_TOKENS, *values.OF_VOCABULARY)
"""Features that can be illustrated and calibrated: those of the softmax distribution."""
_ENSEMBLE: Final = ("exp", "var", "exp_prob", "var_prob", "exp_product", "var_product")


def illustrated(features: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of features behind an illustration."""
    return tuple(f"illustrated_{name}" for name in features)


def calibrated(features: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of features less the reference answer's, in both forms."""
    return tuple(
        f"{name}_{form}" for name in features for form in ("calibrated", "calibrated_printed")
    )


COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "tokens": values.OF_TOKENS,
    "vocabulary": values.OF_VOCABULARY,
    "bounds": values.OF_BOUNDS,
    "attention": values.OF_ATTENTION,
    "code": values.OF_CODE,
    "decoding": tuple(f"decoding_{name}" for name in _ENSEMBLE),
    "prompting": tuple(f"prompting_{name}" for name in _ENSEMBLE),
    "redrawing": tuple(f"redrawn_{name}" for name in _ENSEMBLE),
    "illustration": illustrated(AUGMENTABLE),
    "calibration": calibrated(AUGMENTABLE),
    "reference": tuple(f"reference_{name}" for name in ("sent_prob", *AUGMENTABLE)),
    "combo": ("combo", "combo_of_model"),
}
"""The columns of each group of features; those of `combo` are made of the whole frame."""
_NAMES: Final = frozenset(name for names in COLUMNS.values() for name in names)


class DecodingEnsemble(Settings):
    """N further draws, each scored by itself."""

    passes: int = Field(10, ge=2, le=1000, description="Draws an answer.")
    top_k: int = Field(50, ge=0, description="Number of tokens to sample from; 0 is off.")
    temperature: float = Field(1.0, gt=0, description="Of these draws.")


class PromptEnsemble(Settings):
    """The same answer, or one drawn anew, under several system prompts."""

    prompts: tuple[str, ...] = Field(
        SYSTEM_POOL,
        min_length=2,
        description="System prompts, each used once. Default: the paper's seven.",
    )
    redraw: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description="Also draw an answer under each prompt and score it by itself, as in the "
        "paper; by default only the one answer is scored under each.",
    )


class Config(MethodSettings):
    """Settings of `glass_box`."""

    candidates: tuple[ModelName, ...] | None = Field(
        None, description="Models to evaluate. Default: all that are not judges."
    )
    scorer: ModelName | None = Field(
        None,
        description=(
            "Model that scores the text of the answers. Default: each candidate scores its own."
        ),
    )
    answer: Drawing = Field(
        Drawing(max_tokens=1024, temperature=0.7), description="Sampling settings of answers."
    )
    observe: Literal["score", "draw"] = Field(
        "score",
        description=(
            "score: a separate scoring pass; draw: log-probabilities returned with the answer, "
            "for endpoints that cannot score (no features of the vocabulary, bounds only)."
        ),
    )
    features: tuple[Literal["vocabulary", "attention", "code"], ...] = Field(
        ("vocabulary",),
        description=(
            "Features in addition to those of the answer's own tokens: vocabulary (entropy, "
            "variance), attention, code (as in the released code)."
        ),
    )
    alternatives: int = Field(
        0, ge=0, description="Most likely tokens to list, for bounds on the entropy; 0 for none."
    )
    vocabulary_size: int | None = Field(
        None, ge=1, description="Size of the vocabulary, needed for an upper bound on the entropy."
    )
    end_of_turn: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description="If true, include the end-of-turn token in the answer.",
    )
    calibration: bool = Field(
        False,  # noqa: FBT003
        description="Also report features minus those of the reference answer.",
    )
    illustration: Literal["own", "other"] | bool = Field(
        False,  # noqa: FBT003
        description="Also with an example before the prompt. own (or true): the item's own "
        "question and reference, as in the paper; other: another item's.",
    )
    augmented: tuple[str, ...] = Field(
        ("mean_logprob", "softmax_entropy", "vocab_logprob_var"),
        description="Features that illustration and calibration are applied to: any of the tokens "
        "or the vocabulary. The paper's formulas: softmax_entropy, token_prob_var.",
    )
    decoding_ensemble: DecodingEnsemble | None = Field(
        None, description="Mean and variance over further draws."
    )
    prompt_ensemble: PromptEnsemble | None = Field(
        None, description="Mean and variance over system prompts."
    )
    combo: tuple[str, ...] = Field(
        ("softmax_entropy", "vocab_logprob_var"),
        description="Columns whose oriented z-scores are added up; [] for none. The paper's "
        "formulas: softmax_entropy, token_prob_var.",
    )

    @field_validator("combo")
    @classmethod
    def _oriented(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        known = [name for name in _NAMES if not name.startswith("combo") and orientation(name)]
        if unknown := sorted(set(value) - set(known)):
            there = ", ".join(sorted(known))
            raise ValueError(f"unknown feature {', '.join(unknown)}; available: {there}")
        return value

    @field_validator("augmented")
    @classmethod
    def _augmentable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := sorted(set(value) - set(AUGMENTABLE)):
            there = ", ".join(AUGMENTABLE)
            raise ValueError(f"unknown feature {', '.join(unknown)}; available: {there}")
        return value

    @field_validator("illustration")
    @classmethod
    def _the_papers(cls, value: str | bool) -> str | bool:  # noqa: FBT001 (as written)
        return "own" if value is True else value

    @model_validator(mode="after")
    def _possible(self) -> "Config":
        if self.observe == "score":
            return self
        wanted = {
            "scorer": self.scorer is not None,
            "features": bool(self.features) and "features" in self.model_fields_set,
            "end_of_turn": self.end_of_turn,
            "calibration": self.calibration,
            "illustration": bool(self.illustration),
            "prompt_ensemble": self.prompt_ensemble is not None,
        }
        if impossible := [name for name, is_wanted in wanted.items() if is_wanted]:
            names = ", ".join(impossible)
            raise ValueError(f"observe: draw scores nothing, so there is no {names}")
        return self

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of columns that these settings fill."""
        has = {
            "tokens": True,
            "vocabulary": "vocabulary" in self.observed,
            "bounds": bool(self.alternatives),
            "attention": "attention" in self.observed,
            "code": "code" in self.observed,
            "decoding": self.decoding_ensemble is not None,
            "prompting": self.prompt_ensemble is not None,
            "redrawing": self.prompt_ensemble is not None and self.prompt_ensemble.redraw,
            "illustration": bool(self.illustration),
            "calibration": self.calibration,
        }
        found = [group for group, is_there in has.items() if is_there]
        filled = {name for group in found for name in self.columns_of(group)}
        return (*found, "combo") if self.combo and filled >= set(self.combo) else tuple(found)

    def columns_of(self, group: str) -> tuple[str, ...]:
        """Return the columns of a group that these settings fill."""
        if group == "illustration":
            return illustrated(self.augmented)
        return calibrated(self.augmented) if group == "calibration" else COLUMNS[group]

    @property
    def observed(self) -> tuple[str, ...]:
        """`features`, where they can be observed at all."""
        return self.features if self.observe == "score" else ()

    @property
    def wanted(self) -> tuple[str, ...]:
        """Features that a scoring pass of the answer asks for."""
        attention = values.ATTENTION if "attention" in self.observed else ()
        return (*self.wanted_of_texts, *attention)

    @property
    def wanted_of_texts(self) -> tuple[str, ...]:
        """Features asked for of a reference, or of the answer after an illustration."""
        return values.VOCABULARY if "vocabulary" in self.observed else ()


def orientation(column: str) -> int:
    """Return 1 or -1 for the better direction of a column; 0 if it is no score of the answer."""
    if column.startswith("combo"):
        return 1
    if column.startswith("reference_") or column in values.OF_BOUNDS:
        return 0
    kind, _, rest = column.partition("_")
    if kind in {"decoding", "prompting", "redrawn"}:
        return ORIENTATION[f"ensemble_{rest.partition('_')[0]}"]
    plain = column.removeprefix("illustrated_")
    return ORIENTATION[plain.removesuffix("_printed").removesuffix("_calibrated")]
