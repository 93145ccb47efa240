"""Confidence: what any server's most likely tokens and samples say of an answer's correctness.

Glass-box evaluation for servers that list the k most likely tokens of each position and no more, as
hosted endpoints do. Of the drawn answer: token confidence, the least confident group, the bottom
groups and the tail (exact from the k tokens, which the measure is defined by), and a lower bound of
self-certainty, which needs the whole vocabulary. P(True): the probability that the model gives to
"True" where it is shown its own answer. Of further samples: semantic entropy, weighed by their
likelihood and by their number.

Sources: Fu et al., "Deep Think with Confidence" (arXiv 2508.15260); Kang, Zhao and Song, "Scalable
Best-of-N Selection for Large Language Models via Self-Certainty" (arXiv 2502.18581); Kadavath et
al., "Language Models (Mostly) Know What They Know" (arXiv 2207.05221); Kuhn, Gal and Farquhar,
"Semantic Uncertainty" (ICLR 2023); Farquhar et al., "Detecting hallucinations in large language
models using semantic entropy" (Nature, 2024).

Deviations: questions of true or false and of entailment end with an instruction to reply with a
letter, since chat models do not continue a text; entailment is judged by a language model and not
by DeBERTa; equal texts mean the same without a request; where a position lists fewer than k tokens,
its confidence is a lower bound. All of them: `docs/methods/confidence.md`.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from orchestrator.judgment import confidence as formulas
from orchestrator.methods import _glass_box as values
from orchestrator.methods._drawing import (
    Drawing,
    OfAnswers,
    OfAnswersSettings,
    Turn,
    answer_stage,
    converse,
    further_draws,
    questions,
)
from orchestrator.methods._examples import FIELDS, drawn_example
from orchestrator.methods._glass_box import Observed
from orchestrator.methods._verdicts import distributions
from orchestrator.numbers import finite
from orchestrator.plugin import (
    Ask,
    ChooseAsk,
    Columns,
    Combination,
    Generation,
    Label,
    Message,
    Messages,
    ModelName,
    Prefix,
    Row,
    Settings,
    Stage,
    Unit,
    typed,
)

_LETTERS: Final = tuple(Label(letter, (letter, f" {letter}")) for letter in "ABC")
_TRUTH: Final = _LETTERS[:2]
_OF_TOKENS: Final = (
    "token_confidence", "lowest_group_confidence", "bottom_group_confidence", "tail_confidence",
)  # fmt: skip
_OF_SAMPLES: Final = ("semantic_entropy", "discrete_semantic_entropy", "predictive_entropy")


class SampleSettings(Settings):
    """Further samples of a question, and when two of them mean the same."""

    n: int = Field(10, ge=2, le=1000, description="Samples a question.")
    temperature: float = Field(1.0, gt=0, description="Of these samples.")
    meaning: Literal["entailment", "text"] = Field(
        "entailment",
        description="When two samples mean the same. entailment: a model says that each entails "
        "the other; text: they are equal but for case and white space.",
    )


class Config(OfAnswersSettings):
    """Settings of `confidence`."""

    answer: Drawing = Field(Drawing(max_tokens=1024), description="Sampling settings of answers.")
    alternatives: int = Field(
        20,
        ge=0,
        description="k, the most likely tokens at each position, as they are returned with the "
        "answer; 0 for none.",
    )
    vocabulary_size: int | None = Field(
        None, ge=1, description="Size of the vocabulary, needed for a bound of self-certainty."
    )
    window: int = Field(2048, ge=1, description="Tokens of a group.")
    tail: int = Field(2048, ge=1, description="Last tokens that the tail confidence is of.")
    bottom: float = Field(
        0.1, gt=0, le=1, description="Share of the groups that count as the bottom ones."
    )
    p_true: Literal["answer"] | None = Field(
        "answer", description="Ask the model whether its answer is true; null: do not ask."
    )
    p_true_prefix: str = Field(
        "",
        description="Beginning of the reply on what is true, such as 'The proposed answer is: (', "
        "which the paper's prompts end with; for servers that continue a reply.",
    )
    samples: SampleSettings | None = Field(
        None, description="Further samples, for semantic entropy. Default: none."
    )
    entailment_by: ModelName | None = Field(
        None, description="Model that judges entailment. Default: each candidate itself."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        is_entailed = self.samples is not None and self.samples.meaning == "entailment"
        if self.entailment_by is not None and not is_entailed:
            raise ValueError("entailment_by needs samples with meaning: entailment")
        if not self.alternatives and self.p_true is None and self.samples is None:
            raise ValueError("nothing to compute: set alternatives, p_true or samples")
        return self


class Kind(OfAnswers[Config]):
    """Confidence in an answer, from the most likely tokens and the samples of any server."""

    version = 2
    cites = (
        "fu2025deepconf", "kang2025selfcertainty", "kadavath2022know", "kuhn2023semantic",
        "farquhar2024semantic",
    )  # fmt: skip
    columns: ClassVar[Columns] = typed(
        "turn: i64 | answer: str | n_tokens: i64 | truncated: bool | observed undefined: str",
        f"{' '.join(_OF_TOKENS)}: f64 | n_short: i64",
        "self_certainty_low p_true p_true_low p_true_high p_true_coverage: f64",
        f"{' '.join(_OF_SAMPLES)}: f64 | n_meanings n_samples: i64",
    )

    @property
    def judges(self) -> tuple[str, ...]:
        """The model that judges entailment, if it is another."""
        return () if self.config.entailment_by is None else (self.config.entailment_by,)

    @property
    def scores(self) -> dict[str, int]:
        """The columns that these settings fill, with the direction that theory predicts."""
        config = self.config
        found = dict.fromkeys(_OF_TOKENS, 1) if config.alternatives else {}
        if config.alternatives and config.vocabulary_size is not None:
            found["self_certainty_low"] = 1
        if config.p_true is not None:
            found["p_true"] = 1
        return found | (dict.fromkeys(_OF_SAMPLES, -1) if config.samples is not None else {})

    def combinations(self, candidates: Sequence[str]) -> list[Combination]:
        """One unit a model, with who compares its samples where that is another."""
        compares = self.config.entailment_by or ""
        return [Combination((model,), compares) for model in candidates]

    @property
    def top_logprobs(self) -> int:
        """Number of likely tokens to list with each token of an answer as it is drawn."""
        return self.config.alternatives

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """Return the requests that one answer leads to; an empty answer leads to none."""
        config, samples = self.config, self.config.samples
        draw = config.model_dump_json(exclude={"name", "candidates"})
        found: list[Stage] = []
        for model in candidates:
            if config.alternatives:
                # The companion's draw, counted once: its probabilities must be the model's own.
                example = drawn_example(model, config.answer)
                found.append(answer_stage(model, config.answer, self.top_logprobs, (example,)))
            if samples is not None:
                tokens = config.answer.max_tokens
                found.append(
                    Stage("samples", model, "generate", samples.n, False, tokens, draw=draw)  # noqa: FBT003
                )
            if samples is not None and samples.meaning == "entailment":
                judge, most = config.entailment_by or model, samples.n * (samples.n - 1)
                asked = _entailment(judge, FIELDS["prompt"], FIELDS["answer_a"], FIELDS["answer_b"])
                # Each pair in both directions, if all differ in meaning.
                found.append(
                    Stage("entailment", judge, "choose", most, False, draw=draw, examples=(asked,))  # noqa: FBT003
                )
            if config.p_true is not None:
                asked = _is_true(config, model, FIELDS["prompt"], FIELDS["answer"])
                found.append(
                    Stage("truth", model, "choose", 1, exact=False, draw=draw, examples=(asked,))
                )
        return found

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """The confidence in the model's answer, one row a turn."""
        config = self.config
        turns = await converse(
            unit.item, unit.models, ask, config.answer, top_logprobs=self.top_logprobs
        )
        own = [turn for (turn,) in turns]
        return [await _row(unit, ask, config, turn, questions(own[: turn.number])) for turn in own]


async def _row(unit: Unit, ask: Ask, config: Config, turn: Turn, question: str) -> Row:
    answer, (model,) = turn.answer, unit.models
    row = values.begun_row(Kind.columns, turn, "draw")
    if not answer.text.strip():
        return row
    if config.alternatives:
        seen = values.observed(answer)
        n_tokens = None if seen.logprobs is None else len(seen.logprobs)
        row |= {"n_tokens": n_tokens, "undefined": seen.why or None, **of_tokens(seen, config)}
    if config.samples is not None:
        drawn: list[Generation] = await ask.all(
            *further_draws(
                unit, ask, turn.messages, config.answer, config.samples.n,
                temperature=config.samples.temperature,
            )
        )  # fmt: skip
        meanings = await _meanings(unit, ask, config, question, [one.text for one in drawn])
        if meanings is None:
            row["undefined"] = "the entailment of two samples is not known"
        row |= of_samples(drawn, meanings)
    if config.p_true is not None:
        (said,) = await distributions(ask, [_is_true(config, model, question, answer.text)])
        row["p_true_coverage"] = finite(said.coverage)
        if said.probabilities and said.low and said.high:
            # P(True): the probability of the first of two labels, with its bounds
            row |= {"p_true": said.probabilities[0], "p_true_low": said.low[0]}
            row["p_true_high"] = said.high[0]
    return row


def of_tokens(seen: Observed, config: Config) -> dict[str, float | int | None]:
    """Confidence from the most likely tokens of each position; undefined where none are listed."""
    if seen.logprobs is None or seen.top is None or not seen.top.logprobs.size:
        return {}
    top = seen.top.logprobs
    confidence, n_short = formulas.token_confidence(top)
    group = formulas.group_confidence(confidence, config.window, config.tail, config.bottom)
    found: dict[str, float | int | None] = {
        name: finite(value) for name, value in zip(_OF_TOKENS, group, strict=True)
    }
    found["n_short"] = n_short
    if config.vocabulary_size is not None:
        bound = formulas.self_certainty_low(top, config.vocabulary_size)
        found["self_certainty_low"] = finite(float(bound.mean()))
    return found


def of_samples(
    drawn: Sequence[Generation], meanings: Sequence[int] | None
) -> dict[str, float | int | None]:
    """Entropies of samples; undefined where their meanings or their likelihoods are not known."""
    raw = [values.observed(one).logprobs for one in drawn]
    means = [math.nan if one is None or not one.size else float(np.mean(one)) for one in raw]
    found: dict[str, float | int | None] = {
        "predictive_entropy": finite(formulas.predictive_entropy(means)),
        "n_samples": len(drawn),
    }
    if meanings is None:
        return found
    return {
        **found,
        "semantic_entropy": finite(formulas.semantic_entropy(means, meanings)),
        "discrete_semantic_entropy": finite(formulas.semantic_entropy(None, meanings)),
        "n_meanings": len(set(meanings)),
    }


async def _meanings(
    unit: Unit, ask: Ask, config: Config, question: str, texts: Sequence[str]
) -> list[int] | None:
    """The number of each text's meaning; None if it can't be told.

    A text means what the first of an earlier meaning does, else it begins one (Kuhn et al.).
    """
    samples = config.samples or SampleSettings()
    if samples.meaning == "text":
        numbers: dict[str, int] = {}
        plain = (" ".join(text.casefold().split()) for text in texts)
        return [numbers.setdefault(text, len(numbers)) for text in plain]
    found: list[int] = []
    firsts: list[str] = []
    for place, text in enumerate(texts):
        if text in texts[:place]:
            found.append(found[texts.index(text)])
            continue
        both = [
            _entailment(unit.judge or unit.models[0], question, *pair)
            for one in firsts
            for pair in ((one, text), (text, one))
        ]
        said = [one.probabilities for one in await distributions(ask, both)]
        if any(one is None for one in said):
            return None
        entails = [one is not None and one[0] > max(one[1:]) for one in said]
        alike = [there and back for there, back in zip(entails[::2], entails[1::2], strict=True)]
        found.append(alike.index(True) if True in alike else len(firsts))
        if found[-1] == len(firsts):
            firsts.append(text)
    return found


def _is_true(config: Config, model: str, question: str, answer: str) -> ChooseAsk:
    """Ask if an answer is true, as Kadavath et al. in section 4.1, but for chat models."""
    return ChooseAsk(
        model,
        _asked(
            f"Question: {question}\nProposed Answer: {answer}\n"
            "Is the proposed answer:\n (A) True\n (B) False\n"
            "Reply with A or B and nothing else."
        ),
        _TRUTH,
        Prefix(config.p_true_prefix),
    )


def _entailment(model: str, question: str, one: str, other: str) -> ChooseAsk:
    """Ask if an answer entails another, as Farquhar et al., but by letters."""
    return ChooseAsk(
        model,
        _asked(
            f'We are evaluating answers to the question "{question}"\n'
            "Here are two possible answers:\n"
            f"Possible Answer 1: {one}\nPossible Answer 2: {other}\n"
            "Does Possible Answer 1 semantically entail Possible Answer 2?\n"
            " (A) entailment\n (B) contradiction\n (C) neutral\n"
            "Reply with A, B or C and nothing else."
        ),
        _LETTERS,
    )


def _asked(text: str) -> Messages:
    return (Message("user", text),)
