"""Glass-box values of one text, the columns that they fill, and the settings that ask for them.

A value that is undefined is None, never 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np
from pydantic import Field, ValidationInfo, field_validator, model_validator

from orchestrator.judgment import glass_box as features
from orchestrator.judgment.glass_box import ORIENTATION
from orchestrator.methods._drawing import Drawing, OfAnswersSettings, Turn
from orchestrator.numbers import finite
from orchestrator.plugin import Generation, ModelName, Row, Scored, Settings
from orchestrator.prompts.glass_box import SYSTEM_POOL
from orchestrator.records import FloatArray, TopLogprobs

Values = dict[str, float | None]

VOCABULARY: Final = ("entropy", "vocab_logprob_var", "vocab_mean_logp_logit")
ATTENTION: Final = ("attention_entropy",)
CODE: Final = ("compat_logprob", "compat_vocab_logprob_var", "compat_vocab_mean_logp_logit")

OF_TOKENS: Final = (
    "mean_logprob", "sum_logprob", "sentence_prob", "token_logprob_var", "token_prob_var",
)  # fmt: skip
OF_VOCABULARY: Final = ("softmax_entropy", "vocab_logprob_var", "vocab_mean_logp_logit")
OF_BOUNDS: Final = ("softmax_entropy_low", "softmax_entropy_high")
OF_ATTENTION: Final = ("attention_entropy_min", "attention_entropy_avg")
OF_CODE: Final = ("code_logprobs", "code_logprobs_entropy", "code_logprobs_variance")


class Observed(NamedTuple):
    """Log-probabilities and features of a text's tokens.

    Attributes:
        logprobs: float32, shape (T,): raw ln p of each token; None where they are not known.
        top: The most likely tokens, where asked for.
        features: Of the scoring pass, by name.
        why: Why there are no log-probabilities; empty where there are.
    """

    logprobs: FloatArray | None
    top: TopLogprobs | None = None
    features: Mapping[str, FloatArray] = {}
    why: str = ""


def observed(text: Scored | Generation) -> Observed:
    """Return the observations of a scoring pass, or those that came with a draw."""
    if isinstance(text, Scored):
        return Observed(text.logprobs, text.top, text.features or {})
    if text.logprobs is None:
        return Observed(None, why="the server gave no log-probabilities with the draw")
    if not text.raw:
        return Observed(None, why="the draw's log-probabilities are not those of temperature 1")
    return Observed(text.logprobs, text.top)


def begun_row(columns: Mapping[str, str], turn: Turn, observe: str) -> Row:
    """Return a row of a turn's answer; empty answers have no tokens, and nothing to observe."""
    row: Row = {
        **dict.fromkeys(columns),
        "turn": turn.number,
        "answer": turn.answer.text,
        "truncated": turn.answer.finish_reason == "length",
        "observed": observe,
    }
    if not turn.answer.text.strip():
        row |= {"n_tokens": 0, "undefined": "empty answer"}
    return row


def values_of(names: Iterable[str], seen: Observed) -> Values:
    """Return features by name; None for those whose tokens or whose pass were not observed."""
    found: Values = {}
    for name in names:
        feature, formula = features.FORMULAS[name]
        given = seen.features.get(feature) if feature else seen.logprobs
        found[name] = None if given is None else finite(formula(given))
    return found


def ensemble_values(kind: str, passes: Iterable[Observed]) -> Values:
    """Unt-Exp and Unt-Var of SP: as mean log-probability, its exponential, and the product.

    The product is SentProb as printed, prod_t p(y_t).
    """
    given = [values_of(("mean_logprob", "sentence_prob"), seen) for seen in passes]
    known_ones = [one for one in given if one["mean_logprob"] is not None]
    means, products = (
        np.array([one[name] for one in known_ones], dtype=np.float64)
        for name in ("mean_logprob", "sentence_prob")
    )
    found: Values = {}
    for form, scores in (("", means), ("_prob", np.exp(means)), ("_product", products)):
        mean, variance = features.ensemble(scores)
        found[f"{kind}_exp{form}"], found[f"{kind}_var{form}"] = finite(mean), finite(variance)
    return {**found, f"{kind}_passes": len(means)}


def calibrated_values(answer: Values, names: Iterable[str], reference: Observed) -> Values:
    """Each feature of the reference answer, less it, and less SentProb-Ref as printed."""
    logprobs = reference.logprobs
    printed = None if logprobs is None else finite(features.sent_prob_ref(logprobs))
    found: Values = {"reference_sent_prob": printed}
    for name, own in values_of(names, reference).items():
        found[f"reference_{name}"], given = own, answer.get(name)
        for form, less in (("calibrated", own), ("calibrated_printed", printed)):
            found[f"{name}_{form}"] = None
            if given is not None and less is not None:
                found[f"{name}_{form}"] = given - less
    return found


AUGMENTABLE: Final = (*OF_TOKENS, *OF_VOCABULARY)
"""Features that can be illustrated and calibrated: those of the softmax distribution."""
_ENSEMBLE: Final = ("exp", "var", "exp_prob", "var_prob", "exp_product", "var_product")


def calibrated(features: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of features less the reference answer's, in both forms."""
    return tuple(
        f"{name}_{form}" for name in features for form in ("calibrated", "calibrated_printed")
    )


COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "tokens": OF_TOKENS,
    "vocabulary": OF_VOCABULARY,
    "bounds": OF_BOUNDS,
    "attention": OF_ATTENTION,
    "code": OF_CODE,
    "decoding": tuple(f"decoding_{name}" for name in _ENSEMBLE),
    "prompting": tuple(f"prompting_{name}" for name in _ENSEMBLE),
    "redrawing": tuple(f"redrawn_{name}" for name in _ENSEMBLE),
    "illustration": tuple(f"illustrated_{name}" for name in AUGMENTABLE),
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


class Config(OfAnswersSettings):
    """Settings of `glass_box`."""

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
        description="score: a separate scoring pass; draw: log-probabilities returned with the "
        "answer, for endpoints that cannot score (no features of the vocabulary, bounds only).",
    )
    features: tuple[Literal["vocabulary", "attention", "code"], ...] = Field(
        ("vocabulary",),
        description="Features in addition to those of the answer's own tokens: vocabulary "
        "(entropy, variance), attention, code (as in the released code).",
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
    illustration: Literal["own"] | bool = Field(
        False,  # noqa: FBT003
        description="own (or true): also with the item's own question and reference before the "
        "prompt, as in the paper.",
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

    @field_validator("combo", "augmented")
    @classmethod
    def _checked(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        known: Sequence[str] = AUGMENTABLE
        if info.field_name == "combo":
            names = [name for name in _NAMES if not name.startswith("combo")]
            known = sorted(name for name in names if orientation(name))
        if unknown := sorted(set(value) - set(known)):
            there = ", ".join(known)
            raise ValueError(f"unknown feature {', '.join(unknown)}; available: {there}")
        return value

    @field_validator("illustration", mode="before")
    @classmethod
    def _written_out(cls, value: object) -> object:
        if value == "other":
            raise ValueError("another item's example lost the features' sign, and was removed; own")
        return "own" if value is True else value

    @model_validator(mode="after")
    def _fits(self) -> "Config":
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
            return tuple(f"illustrated_{name}" for name in self.augmented)
        return calibrated(self.augmented) if group == "calibration" else COLUMNS[group]

    @property
    def observed(self) -> tuple[str, ...]:
        """`features`, where they can be observed at all."""
        return self.features if self.observe == "score" else ()

    @property
    def wanted(self) -> tuple[str, ...]:
        """Features that a scoring pass of the answer asks for."""
        attention = ATTENTION if "attention" in self.observed else ()
        return (*self.wanted_of_texts, *attention)

    @property
    def wanted_of_texts(self) -> tuple[str, ...]:
        """Features asked for of a reference, or of the answer after an illustration."""
        return VOCABULARY if "vocabulary" in self.observed else ()


def orientation(column: str) -> int:
    """Return 1 or -1 for the better direction of a column; 0 if it is no score of the answer."""
    if column.startswith("combo"):
        return 1
    if column.startswith("reference_") or column in OF_BOUNDS:
        return 0
    kind, _, rest = column.partition("_")
    if kind in {"decoding", "prompting", "redrawn"}:
        return ORIENTATION[f"ensemble_{rest.partition('_')[0]}"]
    plain = column.removeprefix("illustrated_")
    return ORIENTATION[plain.removesuffix("_printed").removesuffix("_calibrated")]
