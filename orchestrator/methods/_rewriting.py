"""Settings, prompts and rounds of rewriting, shared by all methods that rewrite answers."""

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from orchestrator.methods._drawing import BY_BENCHMARK, Drawing, OfAnswersSettings, Turn, converse
from orchestrator.methods._examples import messages
from orchestrator.methods._judging import checked_prompt
from orchestrator.plugin import Ask, Generation, Item, Messages, Stage, Unit
from orchestrator.prompts.files import TemplateText
from orchestrator.prompts.rewriting import MARKERS, PROMPTS

FIELDS: Final = ("prompt", "answer")
PRESETS: Final[dict[str, dict[str, Any]]] = {
    "acl_findings": {
        "answer": {"max_tokens": 1024, "temperature": 0.7},
        "revision": {"max_tokens": 1024, "temperature": 0.1},
        "deltas": (-0.05, 0.0, -0.1, -0.02),
    },
    "submission": {
        "answer": {"max_tokens": 1024, "temperature": 0.7, "top_p": 0.8},
        "revision": {"max_tokens": 1024, "temperature": 0.1, "top_p": 0.9},
        "deltas": (-0.05, 0.0, -0.1, -0.02),
    },
}
"""Settings for chat benchmarks in the two versions of the paper (section 4.2), with the
thresholds of Table 7 (0, -0.05, -0.1) and -0.02."""
_OFFICIAL: Final = {
    benchmark: {"max_tokens": 1024, "temperature": 0.7, "temperature_by_category": benchmark}
    for benchmark in BY_BENCHMARK
}
"""Answers to benchmarks that recommend settings of their own: both versions draw them by these."""
_GENERATION: Final = frozenset({"probdiff_texts"})
"""Datasets of translation and summaries, with longer answers and in version 1 another threshold."""


def preset(name: str, dataset: str | None = None) -> dict[str, Any]:
    """Return the settings that a preset fills in.

    `name` is one of `PRESETS`, or empty; `dataset` is the kind of the recipe's, None where unknown.
    """
    found = dict(PRESETS.get(name, {}))
    if found and dataset in _OFFICIAL:
        found["answer"] = _OFFICIAL[dataset]
    if found and dataset in _GENERATION:
        # As the released code has it.
        for part in ("answer", "revision"):
            found[part] = {**found[part], "max_tokens": 2048}
        if name == "submission":
            found["deltas"] = (-0.02, -0.05, 0.0, -0.1)
    return found


class RewritingSettings(OfAnswersSettings):
    """Settings for drawing and rewriting answers."""

    preset: Literal["acl_findings", "submission"] = Field(
        "acl_findings",
        description="acl_findings or submission (version 1 of the paper): provides defaults of "
        "answer, revision and deltas for the kind of dataset.",
    )
    answer: Drawing = Field(
        Drawing.model_validate(PRESETS["acl_findings"]["answer"]),
        description="Sampling settings of answers.",
    )
    revision: Drawing = Field(
        Drawing.model_validate(PRESETS["acl_findings"]["revision"]),
        description="Sampling settings of rewritings.",
    )
    rounds: int = Field(
        1, ge=1, le=100, description="Number of rewriting rounds; only the last is used."
    )
    prompt: TemplateText = Field(
        "refinement",
        description="Prompt for a rewriting: refinement (the paper's), refinement_code, "
        "translation_code (of the released code), simple (appendix C), compact (bundled models), "
        "or a Jinja template (or a .j2 file) with prompt and answer.",
    )

    @model_validator(mode="before")
    @classmethod
    def _written_out(cls, given: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 (as written)
        """Settings that the preset has and the user left out, also inside `answer`."""
        if not isinstance(given, dict):
            return given
        dataset = info.context.get("dataset") if isinstance(info.context, dict) else None
        preset_has = preset(str(given.get("preset", "acl_findings")), dataset)
        filled = dict(given)
        for name in preset_has.keys() & cls.model_fields.keys():
            own = given.get(name)
            if own is None:
                filled[name] = preset_has[name]
            elif isinstance(own, dict) and isinstance(preset_has[name], dict):
                below = dict(preset_has[name])
                if "temperature" in own:
                    # A temperature of one's own is that of all categories.
                    below.pop("temperature_by_category", None)
                filled[name] = {**below, **own}
        return filled

    @field_validator("prompt")
    @classmethod
    def _prompt_exists(cls, value: str) -> str:
        return checked_prompt(value, tuple(PROMPTS), FIELDS, ("answer",))

    def template(self) -> str:
        """The prompt by name, or the user's own."""
        return PROMPTS.get(self.prompt, self.prompt)

    def markers(self) -> tuple[str, ...]:
        """Texts of the prompt that must not stand in a rewriting, lower case."""
        # Texts between two `#` on one line
        found = (one.lower() for one in re.findall(r"#[^#\n{}]{1,80}#", self.template()))
        return (*dict.fromkeys(found), *MARKERS.get(self.prompt, ()))


def rewriting_stages(
    models: Sequence[str], config: RewritingSettings, n_rewritings: int = 1
) -> list[Stage]:
    """Return the requests of K rounds a model, for each of n rewritings."""
    tokens = config.revision.max_tokens
    draw = config.model_dump_json(include={"answer", "revision", "rounds", "prompt"})
    # A greedy rewriting that changed nothing is not asked for again.
    exact = config.rounds == 1
    return [
        Stage(
            "rewritings", model, "generate", config.rounds * n_rewritings, exact, tokens, draw=draw
        )
        for model in models
    ]


async def rewrite(
    unit: Unit, ask: Ask, config: RewritingSettings, n: int = 1
) -> list[list[tuple[Turn, Generation]]]:
    """Draw each turn's answer x and rewrite it n times, K rounds each: x^(K).

    Returns n lists of turns, each with its rewriting; the answer itself where the texts are equal.
    Fewer rewritings are the first of more, by the same requests.
    """
    model = unit.models[:1]
    turns = [turn for (turn,) in await converse(unit.item, model, ask, config.answer)]
    first = [turn.answer for turn in turns]
    last = first * n
    sampling = config.revision.sampling(unit.item.category)
    for number in range(config.rounds):
        # Rounds are draws of their own, also where one changed nothing; greedy ones can't differ.
        last = await ask.all(
            *(
                ask.generate(
                    unit.models[0],
                    _messages(unit.item, turns[at % len(turns)], answer, config),
                    sampling,
                    item_key=unit.item.key,
                    repeat=at // len(turns) * config.rounds + number if sampling.temperature else 0,
                )
                for at, answer in enumerate(last)
            )
        )
    # Equal texts are one text, whatever their tokens.
    last = [x if x.text == y.text else y for x, y in zip(first * n, last, strict=True)]
    made = list(zip(turns * n, last, strict=True))
    return [made[begin : begin + len(turns)] for begin in range(0, len(made), len(turns))]


def _messages(item: Item, turn: Turn, answer: Generation, config: RewritingSettings) -> Messages:
    """The conversation that asks for a rewriting: the item's system prompt, one user message."""
    # The question to rewrite for is the only message, or the conversation so far.
    spoken = [message for message in turn.messages if message.role != "system"]
    if len(spoken) == 1 and not item.followups:
        question = spoken[0].content
    else:
        said = [f"{message.role.upper()}: {message.content}\n\n" for message in spoken]
        question = f"{''.join(said)}ASSISTANT: "
    system = tuple(message for message in turn.messages if message.role == "system")
    fields = {"prompt": question, "answer": answer.text}
    return (*system, *messages(config.template(), fields))
