"""Settings, prompts, traces, and the distribution at the verdict, shared by judging methods."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar

import msgspec
from pydantic import Field, ValidationInfo, field_validator, model_validator

from orchestrator.judgment.distribution import LabelDistribution, mixture
from orchestrator.methods._drawing import Drawing, Judges, OfAnswers, permanent
from orchestrator.methods._examples import REASONED, example
from orchestrator.methods._leading import LedSettings, continued, lead
from orchestrator.methods._verdicts import Slot, after_thinking, distributions, slot_of, spelled
from orchestrator.plugin import (
    Ask,
    ChooseAsk,
    Generation,
    Label,
    Messages,
    Method,
    MethodSettings,
    Prefix,
    Stage,
    Unit,
)
from orchestrator.prompts import PromptError, render, variables
from orchestrator.prompts.costs import TemplateTooCostly
from orchestrator.prompts.files import TemplateText
from orchestrator.prompts.judging import JudgePrompt
from orchestrator.records import NO_PREFIX

# What may differ between two settings that are compared for their reasoning.
_OF_REASONING: Final = {"name", "chain_of_thought", "reasoning", "traces", "judges"}
_SET_ASIDE: Final = (
    "the judge's thinking was set aside, so that its verdict can't be read after it; leave "
    "`thinking` out of this model, and its server's reasoning parser too"
)


class JudgeSettings(LedSettings):
    """Settings of methods in which a judge sees answers; `prompt` is checked by the class's own."""

    # Prompts whose wording depends on whether the judge is to reason, and the names of all prompts.
    PROMPTS: ClassVar[Mapping[str, JudgePrompt]] = {}
    NAMED: ClassVar[tuple[str, ...]] = ()
    FIELDS: ClassVar[tuple[str, ...]] = ()
    SHOWN: ClassVar[tuple[str, ...]] = ()

    judges: Judges
    prompt: TemplateText = Field(
        "", description="Name of a prompt, or a Jinja template (or a .j2 file)."
    )
    answer: Drawing = Field(Drawing(), description="Sampling settings of answers.")
    chain_of_thought: bool = Field(
        False,  # noqa: FBT003 (a pydantic default)
        description=(
            "If true, let the judge reason first, then read the distribution at its verdict."
        ),
    )
    reasoning: Drawing = Field(
        Drawing(max_tokens=1024), description="Sampling settings of the reasoning of the judge."
    )
    traces: int = Field(
        1,
        ge=1,
        le=1000,
        description="Number of reasonings to sample with chain_of_thought; their distributions are "
        "averaged.",
    )

    @model_validator(mode="after")
    def _leads_to_labels(self) -> Self:
        if self.traces > 1 and not self.chain_of_thought:
            raise ValueError("several traces need chain_of_thought: true")
        if self.traces > 1 and not self.reasoning.can_vary:
            raise ValueError("several traces are identical at reasoning.temperature 0; raise it")
        self.check_examples(self.FIELDS, self.SHOWN, reasoned=self.chain_of_thought)
        return self

    @field_validator("prompt")
    @classmethod
    def _prompt_exists(cls, value: str, info: ValidationInfo) -> str:  # noqa: ARG003
        return checked_prompt(value, cls.NAMED, cls.FIELDS, cls.SHOWN)

    def template(self) -> str:
        """The template of the mode that is asked for."""
        named = self.PROMPTS.get(self.prompt)
        return named[self.chain_of_thought] if named else self.prompt


def checked_prompt(
    value: str, named: Sequence[str], fields: Sequence[str], shown: Sequence[str]
) -> str:
    """The name of a prompt, or a template that shows what it must.

    Raises:
        ValueError: If it is neither, uses an unknown field, or leaves one of `shown` out.
    """
    if value in named:
        return value
    if "{{" not in value:
        names = ", ".join(sorted(named))
        raise ValueError(f"unknown prompt {value!r}; available: {names}, or write a template")
    try:
        used = variables(value)
    except PromptError as error:
        raise ValueError(str(error)) from error
    if unknown := sorted(used - set(fields)):
        raise ValueError(
            f"the template uses unknown fields {', '.join(unknown)}; available: {', '.join(fields)}"
        )
    if missing := sorted(set(shown) - used):
        raise ValueError(f"the template does not show {' and '.join(missing)}")
    try:
        render(value, dict.fromkeys(fields, ""))
    except PromptError as error:
        # All else may depend on what the fields hold; this costs too much with empty ones.
        if isinstance(error.__cause__, TemplateTooCostly):
            raise ValueError(str(error)) from error  # noqa: TRY004 (a recipe's value)
    return value


def needs_of(template: str, fields: Mapping[str, str]) -> frozenset[str]:
    """The reference, where the prompt can't be made of such fields without it."""
    try:
        render(template, {**fields, "reference": None})
    except PromptError:
        return frozenset({"reference"})
    return frozenset()


T = TypeVar("T")
JudgeConfigT = TypeVar("JudgeConfigT", bound=JudgeSettings, covariant=True)


class JudgeMethod(OfAnswers[JudgeConfigT]):
    """Base of methods in which a judge sees answers."""

    def needs(self) -> frozenset[str]:
        """The reference, where the prompt can't be made without it."""
        return needs_of(self.config.template(), dict.fromkeys(self.config.FIELDS, ""))


def by_reasoning(
    settings: Iterable[T], of: Callable[[T], tuple[Method[MethodSettings], str]]
) -> Iterator[tuple[T, T]]:
    """Yield every two settings that differ only by the judge's chain of thought, with it second.

    `of` gives the method and the judge of a setting.
    """
    for one, two in permutations(settings, 2):
        (plain, judge), (reasoned, same) = of(one), of(two)
        if judge != same or type(plain) is not type(reasoned):
            continue
        if not isinstance(plain, JudgeMethod) or not isinstance(reasoned, JudgeMethod):
            continue
        mine, theirs = plain.config, reasoned.config
        if theirs.chain_of_thought and not mine.chain_of_thought:
            rest: dict[str, Any] = theirs.model_dump(exclude=_OF_REASONING)
            if mine.model_dump(exclude=_OF_REASONING) == rest:
                yield one, two


def stages_of(
    kind: str,
    config: JudgeSettings,
    n_prompts: int,
    examples: Sequence[ChooseAsk],
    n_reads: int = 1,
) -> list[Stage]:
    """Return the requests of judging one item: traces, and `n_reads` distributions for each.

    Equal answers make equal prompts, which are asked once, so these are upper bounds. `examples`
    are what each judge is asked about a made-up item.
    """
    found = []
    # Methods, and entries of one method, with prompts or candidates of their own ask on their own.
    draw = f"{kind} {config.model_dump_json(exclude={'name', 'judges'})}"
    for judge in config.judges:
        n_traces = n_prompts * config.traces
        if config.chain_of_thought:
            tokens = config.reasoning.max_tokens
            found.append(
                Stage(
                    "reasoning", judge, "generate", n_traces, exact=False, max_tokens=tokens,
                    draw=draw,
                )
            )  # fmt: skip
        own = tuple(msgspec.structs.replace(one, model=judge) for one in examples)
        found.append(
            Stage(
                "judgments", judge, "choose", n_traces * n_reads, exact=False, draw=draw,
                examples=own,
            )
        )  # fmt: skip
    return found


def examples_of(config: JudgeSettings, **shown: str) -> tuple[ChooseAsk, ...]:
    """A made-up judgment, with the labels as they go on from what stands before them.

    `shown` are values of fields that the template may show.
    """
    begun, labels = config.prefix, continued(config.verdicts(), config.prefix)
    if config.chain_of_thought and config.prefix:
        begun = begun_reply(REASONED, config.prefix)
    elif config.chain_of_thought:
        begun, labels = REASONED, spelled(labels, "\n")
    return example(config.template(), labels, begun=begun, **shown)


class Judged(NamedTuple):
    """The verdict of a judge on one prompt.

    Attributes:
        distribution: Over the labels, averaged over traces.
        traces: The shares behind each trace with a verdict; () where none were drawn.
        n_silent: Traces without a verdict, which are not in it.
    """

    distribution: LabelDistribution
    traces: tuple[tuple[float, ...], ...] = ()
    n_silent: int = 0

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Its shares, which are known."""
        return self.distribution.probabilities or ()


async def judge_prompts(
    ask: Ask,
    unit: Unit,
    prompts: Sequence[Messages],
    labels: tuple[Label, ...],
    config: JudgeSettings,
) -> list[Judged]:
    """The distribution over the labels for each prompt.

    Raises:
        AskFailed: If a request fails, no trace of a prompt has a verdict, or nothing is known
            about any label: no verdict is not a tie.
    """
    prompts, every = lead(prompts, config.template(), config), [labels] * len(prompts)
    slots = await places(ask, unit, prompts, every, config)
    read = await at_places(ask, unit, prompts, every, config, slots)
    found = [judged([one for one in of_prompt if one is not None]) for of_prompt in read]
    if not config.chain_of_thought:
        return [one._replace(traces=()) for one in found]
    return [one._replace(n_silent=of.count(None)) for one, of in zip(found, slots, strict=True)]


async def places(
    ask: Ask,
    unit: Unit,
    prompts: Sequence[Messages],
    labels: Sequence[tuple[Label, ...]],
    config: JudgeSettings,
    find: Callable[[Generation, tuple[Label, ...]], Slot | None] = slot_of,
) -> list[list[Slot | None]]:
    """Where each prompt's verdict stands: where its reply begins, or in each trace.

    `find` looks for it in a trace, among the labels of the prompt. With a prefix it stands behind
    the reasons: the judge adds it there. None where a trace has no verdict.

    Raises:
        AskFailed: As of `reason`, and if no trace of a prompt has a verdict.
    """
    prefix = Prefix(config.prefix) if config.prefix else NO_PREFIX
    if not config.chain_of_thought:
        return [[(prefix, "")] for _ in prompts]
    traces = await reason(ask, unit, prompts, config)
    found: list[list[Slot | None]] = []
    for drawn, of in zip(traces, labels, strict=True):
        if config.prefix:
            ended = (after_thinking(one.text) is not None for one in drawn)
            begun = [(Prefix(begun_reply(one.text, config.prefix)), "") for one in drawn]
            slots = [
                one if has_ended else None for one, has_ended in zip(begun, ended, strict=True)
            ]
        else:
            slots = [find(trace, of) for trace in drawn]
        if not any(slots):
            n_cut = sum(trace.finish_reason == "length" for trace in drawn)
            why = f"; {n_cut} of {len(drawn)} were cut off" if n_cut else ""
            what = "the judge's reasoning has no verdict"
            if len(drawn) > 1:
                what = f"none of {len(drawn)} reasonings has a verdict"
            raise permanent("no_verdict", f"{what}{why}")
        found.append(slots)
    return found


async def at_places(
    ask: Ask,
    unit: Unit,
    prompts: Sequence[Messages],
    labels: Sequence[tuple[Label, ...]],
    config: JudgeSettings,
    slots: Sequence[Sequence[Slot | None]],
) -> list[list[LabelDistribution | None]]:
    """Read the labels of each prompt at each of its places; None where there is no place.

    Raises:
        AskFailed: If a request fails.
    """
    read = iter(
        await distributions(
            ask,
            (
                ask.choose(
                    unit.judge,
                    prompt,
                    spelled(continued(of, config.prefix), slot[1]),
                    prefix=slot[0],
                )
                for prompt, of, of_prompt in zip(prompts, labels, slots, strict=True)
                for slot in of_prompt
                if slot is not None
            ),
        )
    )
    return [[None if slot is None else next(read) for slot in of_prompt] for of_prompt in slots]


def begun_reply(reasons: str, prefix: str) -> str:
    """Return the beginning of a reply: reasons, then the prefix of the label."""
    return f"{reasons.rstrip()}\n\n{prefix}" if reasons.strip() else prefix


async def reason(
    ask: Ask, unit: Unit, prompts: Sequence[Messages], config: JudgeSettings
) -> list[tuple[Generation, ...]]:
    """The judge's traces, `config.traces` for each prompt.

    Raises:
        AskFailed: If a request fails, or a trace's thinking was set aside: the judge would go on
            from an answer that it did not think about.
    """
    sampling = config.reasoning.sampling(unit.item.category)
    traces: list[Generation] = await ask.all(
        *(
            ask.generate(
                unit.judge, prompt, sampling, item_key=unit.item.key, repeat=repeat, offsets=True
            )
            for prompt in prompts
            for repeat in range(config.traces)
        )
    )
    if any(trace.thinking for trace in traces):
        raise permanent("thinking_set_aside", _SET_ASIDE)
    n = config.traces
    return [tuple(traces[at : at + n]) for at in range(0, len(traces), n)]


def judged(each: Sequence[LabelDistribution]) -> Judged:
    """The average of the distributions that were read.

    Raises:
        AskFailed: If one of them is undefined.
    """
    found = mixture(each)
    if found.probabilities is None:
        reason = found.undefined or "nothing is known"
        raise permanent("no_logprobs", f"no verdict can be read: {reason}")
    return Judged(found, tuple(one.probabilities or () for one in each))
