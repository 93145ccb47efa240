"""Glass-box features: what a model's own distributions say of how good its answer is.

Of an answer y_1..y_T to x, with p(v) = p(v | x, y_<t) at temperature 1:

    SentProb      prod_t p(y_t); also as mean_t ln p(y_t)
    Softmax-Ent   -(1/T) sum_t sum_v p(v) ln p(v)
    Softmax-Var   Var_t p(y_t), or of ln p(y_t); in the code mean_t Var_v ln p(v)
    Unt-Exp, -Var mean and variance of SP over N passes: N further draws, the same answer under
                  the system prompts of a pool, or a draw under each of them
    AttnEnt       -(1/I) sum_i sum_j a_ji ln a_ji of each head; its least, and its mean
    calibration   a feature less what the reference answer has
    illustration  the same features with the question and its reference before the prompt
    Softmax-combo the sum of oriented z-scores over the evaluated set

Everything is read off a scoring pass of the answer's own token ids under its conversation: of the
model itself, or of another one (`scorer`).

Source: "Self-Evaluation of Large Language Model based on Glass-box Features" (SelfEval), sections 2
and 3. Formulas, their two versions and signs: `orchestrator/judgment/glass_box.py`.

Deviations: log-probabilities stand where the answer's tokens are (the code is one position late;
`code_...` columns are as the code has them); N passes score texts of their own, drawn beside the
answer, which stays as it is. All of them: `docs/methods/glass_box.md`.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import polars as pl

from orchestrator.judgment.glass_box import combo, entropy_bounds, mean_over_tokens
from orchestrator.methods import _glass_box as values
from orchestrator.methods._drawing import OfAnswers, Turn, answer_stage, converse, further_draws
from orchestrator.methods._examples import drawn_example
from orchestrator.methods._glass_box import (
    COLUMNS,
    Config,
    DecodingEnsemble,
    Observed,
    PromptEnsemble,
    orientation,
)
from orchestrator.numbers import finite
from orchestrator.plugin import (
    Ask,
    Columns,
    Combination,
    GenerateAsk,
    Generation,
    Message,
    Messages,
    Row,
    ScoreAsk,
    Scored,
    Stage,
    Unit,
    typed,
)

__all__ = ["Config", "DecodingEnsemble", "PromptEnsemble"]


class Kind(OfAnswers[Config]):
    """Quality of an answer, estimated from the model's own token distributions."""

    cites = ("huang2024glassbox",)
    version = 3
    unit_columns: ClassVar[Columns] = typed("item category model scorer: str")
    columns: ClassVar[Columns] = typed(
        "turn: i64 | answer: str | n_tokens: i64 | truncated: bool",
        "observed undefined demonstration: str",
        *(f"{' '.join(names)}: f64" for group, names in COLUMNS.items() if group != "combo"),
        "decoding_passes prompting_passes redrawn_passes: i64",
    )

    @property
    def judges(self) -> tuple[str, ...]:
        """The model that reads the answers of the others, if there is one."""
        return () if self.config.scorer is None else (self.config.scorer,)

    def combinations(self, candidates: Sequence[str]) -> list[Combination]:
        """One unit a model, with who reads its answers where that is another."""
        return [Combination((model,), self.config.scorer or "") for model in candidates]

    @property
    def top_logprobs(self) -> int:
        """Number of likely tokens to list with each token of an answer as it is drawn."""
        return self.config.alternatives if self.config.observe == "draw" else 0

    def needs(self) -> frozenset[str]:
        """A reference, where features are calibrated or illustrated by it."""
        return frozenset(
            {"reference"} if self.config.calibration or self.config.illustration else ()
        )

    @property
    def scores(self) -> dict[str, int]:
        """The columns that these settings fill and that say how good an answer is."""
        config = self.config
        filled = [name for group in config.groups for name in config.columns_of(group)]
        return {name: orientation(name) for name in filled if orientation(name)}

    def stages(self, candidates: Sequence[str]) -> list[Stage]:
        """Return the requests that one answer needs; an empty answer needs no score."""
        config = self.config
        n_prompts = 0 if config.prompt_ensemble is None else len(config.prompt_ensemble.prompts)
        n_draws = 0 if config.decoding_ensemble is None else config.decoding_ensemble.passes
        n_redrawn = n_prompts if "redrawing" in config.groups else 0
        per_answer: dict[str, tuple[int, tuple[str, ...]]] = {
            "scores": (int(config.observe == "score"), config.wanted),
            "scores as the code": (int("code" in config.observed), values.CODE),
            "illustrated scores": (int(bool(config.illustration)), config.wanted_of_texts),
            "reference scores": (int(config.calibration), config.wanted_of_texts),
            "prompt ensemble": (n_prompts, ()),
            "scores of draws": (n_draws + n_redrawn if config.scorer else 0, ()),
        }
        draw = config.model_dump_json(exclude={"name", "candidates", "combo"})
        tokens = config.answer.max_tokens
        found: list[Stage] = []
        for model in candidates:
            found += [
                Stage(name, config.scorer or model, "score", n, False, 0, wanted, draw)  # noqa: FBT003
                for name, (n, wanted) in per_answer.items()
                if n
            ]
            found += [
                Stage(name, model, "generate", n, False, tokens, draw=draw)  # noqa: FBT003
                for name, n in (("draws", n_draws), ("redrawn answers", n_redrawn))
                if n
            ]
            if config.observe == "draw":
                # The companion's draw, counted once: its log-probabilities must be the model's own.
                example = drawn_example(model, config.answer)
                found.append(answer_stage(model, config.answer, self.top_logprobs, (example,)))
        return found

    def identify(self, unit: Unit) -> Row:
        """Item, category, model and who reads its answers."""
        return {**super().identify(unit), "scorer": _scorer(unit)}

    async def evaluate(self, unit: Unit, ask: Ask) -> list[Row]:
        """The features of the model's answer, one row a turn."""
        config = self.config
        turns = await converse(
            unit.item, unit.models, ask, config.answer, top_logprobs=self.top_logprobs
        )
        return [await _row(unit, ask, config, turn) for (turn,) in turns]

    @property
    def derives_from(self) -> tuple[str, ...]:
        """The features that are combined, and what tells whose they are."""
        return ("model", "scorer", *self.config.combo) if self.config.combo else ()

    def derive(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows with Softmax-combo: over all of them, and over those of each model and scorer.

        Features of different models are not measured alike, so within one model the second is what
        the paper's correlations are about.
        """
        names = list(self.config.combo)
        if not names or rows.is_empty() or not set(names) <= set(rows.columns):
            return rows
        read = {name: rows[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in names}
        better = {name: orientation(name) for name in names}
        within = np.full(len(rows), np.nan)
        places = rows.select("model", "scorer").with_row_index("at")
        for _, group in places.group_by("model", "scorer"):
            at = group["at"].to_numpy()
            within[at] = combo({name: of_all[at] for name, of_all in read.items()}, better)
        found = {"combo": combo(read, better), "combo_of_model": within}
        return rows.with_columns(
            pl.Series(name, one, pl.Float64).fill_nan(None) for name, one in found.items()
        )


async def _row(unit: Unit, ask: Ask, config: Config, turn: Turn) -> Row:
    answer = turn.answer
    row = values.begun_row(Kind.columns, turn, config.observe)
    if not answer.text.strip():
        return row
    asks = _asks(unit, ask, config, turn)
    outcomes = iter(await ask.all(*(one for group in asks.values() for one in group)))
    got = {name: [next(outcomes) for _ in group] for name, group in asks.items()}
    seen = values.observed(got["answer"][0] if got["answer"] else answer)
    found: dict[str, Any] = values.values_of((*values.AUGMENTABLE, *values.OF_ATTENTION), seen)
    found["n_tokens"] = None if seen.logprobs is None else len(seen.logprobs)
    found["undefined"] = seen.why or None
    if not seen.why and found["mean_logprob"] is None:
        found["undefined"] = "a token has no finite log-probability"
    if seen.top is not None and seen.top.logprobs.size:
        # Bounds of Softmax-Ent, by the most likely tokens
        bounds = entropy_bounds(seen.top.logprobs, config.vocabulary_size)
        for name, bound in zip(values.OF_BOUNDS, bounds, strict=True):
            found[name] = None if bound is None else finite(mean_over_tokens(bound))
    if got["code"]:
        found |= values.values_of(values.OF_CODE, values.observed(got["code"][0]))
    if got["illustration"]:
        found["demonstration"] = unit.item.key
        shown = values.values_of(config.augmented, values.observed(got["illustration"][0]))
        found |= {f"illustrated_{name}": value for name, value in shown.items()}
    if got["reference"]:
        reference = values.observed(got["reference"][0])
        found |= values.calibrated_values(found, config.augmented, reference)
    if got["draws"]:
        passes = await _passes(unit, ask, [turn.messages] * len(got["draws"]), got["draws"])
        found |= values.ensemble_values("decoding", passes)
    if got["prompts"]:
        found |= values.ensemble_values("prompting", map(values.observed, got["prompts"]))
    if got["redrawn"]:
        passes = await _passes(unit, ask, _prompted(turn.messages, config), got["redrawn"])
        found |= values.ensemble_values("redrawn", passes)
    return {**row, **found}


def _asks(
    unit: Unit, ask: Ask, config: Config, turn: Turn
) -> dict[str, list[ScoreAsk | GenerateAsk]]:
    """All that is asked about an answer, by what it is for; it waits for nothing but the answer."""
    who, messages = _scorer(unit), turn.messages
    # A model reads its own tokens; another one has tokens of its own.
    text = turn.answer if who == unit.models[0] else turn.answer.text
    ended = turn.answer.finish_reason != "length"
    asks: dict[str, list[ScoreAsk | GenerateAsk]] = {
        "answer": [],
        "code": [],
        "illustration": [],
        "reference": [],
        "draws": [],
        "prompts": [ask.score(who, under, text) for under in _prompted(messages, config)],
        "redrawn": [],
    }
    if (draws := config.decoding_ensemble) is not None:
        asks["draws"] += further_draws(
            unit, ask, messages, config.answer, draws.passes,
            top_k=draws.top_k, temperature=draws.temperature,
        )  # fmt: skip
    if "redrawing" in config.groups:
        sampling = config.answer.sampling(unit.item.category)
        asks["redrawn"] = [
            ask.generate(unit.models[0], under, sampling, item_key=unit.item.key)
            for under in _prompted(messages, config)
        ]
    if config.observe == "score":
        asks["answer"] = [
            ask.score(
                who,
                messages,
                text,
                features=config.wanted,
                top_logprobs=config.alternatives,
                end_of_turn=config.end_of_turn and ended,
            )
        ]
    if "code" in config.observed:
        # To the released code the token that ends the turn belongs to the answer.
        asks["code"] = [ask.score(who, messages, text, features=values.CODE, end_of_turn=ended)]
    wanted = config.wanted_of_texts
    if (example := _examples(unit, turn, config)) is not None:
        system = tuple(message for message in messages if message.role == "system")
        under = (*system, *example, *_spoken(messages))
        asks["illustration"] = [ask.score(who, under, text, features=wanted)]
    reference = unit.item.reference_of(turn.number)
    if config.calibration and reference is not None and reference.strip():
        asks["reference"] = [ask.score(who, messages, reference, features=wanted)]
    return asks


def _prompted(messages: Messages, config: Config) -> list[Messages]:
    """The conversation under each system prompt of the pool, none of its own; [] for no pool."""
    prompts = () if config.prompt_ensemble is None else config.prompt_ensemble.prompts
    return [(Message("system", prompt), *_spoken(messages)) for prompt in prompts]


async def _passes(
    unit: Unit, ask: Ask, under: Sequence[Messages], drawn: Sequence[Generation]
) -> list[Observed]:
    """Each draw's own log-probabilities; by a scoring pass where another model reads them."""
    texts = [pair for pair in zip(under, drawn, strict=True) if pair[1].text.strip()]
    who = _scorer(unit)
    if who == unit.models[0]:
        return [values.observed(one) for _, one in texts]
    scored: list[Scored] = await ask.all(
        *(ask.score(who, messages, one.text) for messages, one in texts)
    )
    return [values.observed(one) for one in scored]


def _examples(unit: Unit, turn: Turn, config: Config) -> Messages | None:
    """Return the messages that illustrate the task before the conversation; None for none.

    The item's own questions with their references, up to this turn (section 3.1 of the paper, which
    has one turn); nothing where a turn has none.
    """
    if not config.illustration:
        return None
    item = unit.item
    asked = [_spoken(item.messages), *((Message("user", text),) for text in item.followups)]
    shown: list[Message] = []
    for number, question in enumerate(asked[: turn.number], 1):
        reference = item.reference_of(number)
        if reference is None or not reference.strip():
            return None
        shown += [*question, Message("assistant", reference)]
    return tuple(shown)


def _spoken(messages: Messages) -> Messages:
    return tuple(message for message in messages if message.role != "system")


def _scorer(unit: Unit) -> str:
    return unit.judge or unit.models[0]
