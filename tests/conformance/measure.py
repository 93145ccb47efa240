"""Distances of a server's numbers from a float32 forward pass of the same weights.

Each measurement goes through our back-end, so that requests, replies and arithmetic are all in it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import numpy as np

from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk
from orchestrator.backend import Backend
from orchestrator.records import (
    Choice,
    Failure,
    Generation,
    Label,
    Message,
    Prefix,
    Sampling,
    Scored,
    labels,
)
from orchestrator.wire import by_ids
from tests.conformance.reference import Reference
from tests.conformance.servers import Running

T = TypeVar("T")
VERDICT: Final = (
    "Compare two answers. Verdict only.\nTask: repeat: f k\nReference: f k\n"
    "Answer A: {}\nAnswer B: {}"
)
PROMPTS: Final = (
    (Message("user", VERDICT.format("f k", "k f")),),
    (Message("user", VERDICT.format("k", "f k")),),
    (Message("user", "sort: q c a"), Message("assistant", "a c q"), Message("user", "swap: x y")),
    (Message("system", "Be brief."), Message("user", "é 日本 🙂 <|im_end|> literal?")),
    (Message("user", "rotate: " + "a b c d e f g h " * 30),),
)
SYMBOLS: Final = labels("[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]")
NUMBERS: Final = labels(*map(str, range(1, 11)))
SPELLED: Final = (Label("A", ("A", " A")), Label("B", ("B", " B")), Label("tie", ("C", "=")))
TEXT: Final = "[[>]] because f k"
N_TOP: Final = 3
_TRIES: Final = 5
_AGAIN: Final = ("connection", "unreachable")

QUANTITIES: Final = (
    "greedy draw",
    "sampled draw",
    "alternatives of a draw",
    "scored ids",
    "scored text",
    "alternatives of a score",
    "end of turn",
    "choice of five symbols",
    "choice of nested numbers",
    "choice of summed spellings",
    "choice in a begun answer",
    "all at once",
)


def errors(run: Running, truth: Reference) -> dict[str, float]:
    """The largest absolute error of ln p, by quantity; a failure or a wrong shape raises."""

    async def measure() -> dict[str, float]:
        async with run.connected() as backend:
            return await _Measuring(backend, truth).all()

    return asyncio.run(measure())


def known(outcome: T | Failure) -> T:
    """An outcome that is no failure."""
    assert not isinstance(outcome, Failure), outcome
    return outcome


async def patient(ask: Callable[[], Awaitable[T | Failure]]) -> T | Failure:
    """Ask again where there was no connection, or it was closed, as the scheduler does."""
    outcome = await ask()
    for _ in range(_TRIES):
        if not isinstance(outcome, Failure) or outcome.cause not in _AGAIN:
            break
        outcome = await ask()
    return outcome


class _Measuring:
    def __init__(self, backend: Backend, truth: Reference) -> None:
        self._backend = backend
        self._truth = truth
        self.worst: dict[str, float] = {}

    async def all(self) -> dict[str, float]:
        for prompt in PROMPTS:
            await self.draws(prompt)
            await self.scores(prompt)
        for prompt in PROMPTS[:2]:
            await self.choices(prompt)
        await self.crowd()
        return {name: self.worst[name] for name in QUANTITIES}

    async def draws(self, prompt: tuple[Message, ...]) -> None:
        greedy = GenerateAsk("m", prompt, Sampling(max_tokens=12))
        self._draw("greedy draw", prompt, known(await self._backend.generate(greedy, 1)))
        # Hot enough that the drawn token is often not among the listed ones.
        hot = Sampling(max_tokens=12, temperature=1.6)
        sampled = GenerateAsk("m", prompt, hot, top_logprobs=N_TOP)
        drawn = known(await self._backend.generate(sampled, 7))
        self._draw("sampled draw", prompt, drawn)
        self._top("alternatives of a draw", prompt, drawn)

    async def scores(self, prompt: tuple[Message, ...]) -> None:
        ids = tuple(self._truth.encode(TEXT))
        by_ids = known(await self._backend.score(ScoreAsk("m", prompt, ids, TEXT)))
        self._scored("scored ids", prompt, by_ids, ids)
        by_text = known(await self._backend.score(ScoreAsk("m", prompt, (), TEXT)))
        self._scored("scored text", prompt, by_text, ids)
        ended = known(await self._backend.score(ScoreAsk("m", prompt, ids, TEXT, end_of_turn=True)))
        self._scored("end of turn", prompt, ended, (*ids, self._truth.tokenizer.eos_token_id))
        listed = ScoreAsk("m", prompt, ids, TEXT, top_logprobs=N_TOP)
        self._top("alternatives of a score", prompt, known(await self._backend.score(listed)))

    async def choices(self, prompt: tuple[Message, ...]) -> None:
        asked = (
            ("choice of five symbols", SYMBOLS, Prefix()),
            ("choice of nested numbers", NUMBERS, Prefix()),
            ("choice of summed spellings", SPELLED, Prefix()),
            ("choice in a begun answer", SYMBOLS, Prefix("Verdict: ")),
        )
        for name, wanted, begun in asked:
            found = known(await self._backend.choose(ChooseAsk("m", prompt, wanted, begun)))
            self._chosen(name, prompt, found, wanted, begun)

    async def crowd(self) -> None:
        """Everything at the same time: nothing of one request may get into another's numbers.

        Compared is what came when all are answered: idle connections would be closed meanwhile.
        """
        asked = [PROMPTS[place % 2] for place in range(16)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._one_of_a_crowd(prompt)) for prompt in asked]
        name = "all at once"
        for prompt, task in zip(asked, tasks, strict=True):
            found, drawn, scored = task.result()
            self._chosen(name, prompt, found, SYMBOLS, Prefix())
            self._draw(name, prompt, drawn)
            self._top(name, prompt, drawn)
            self._scored(name, prompt, scored, self._truth.encode(TEXT))

    async def _one_of_a_crowd(
        self, prompt: tuple[Message, ...]
    ) -> tuple[Choice, Generation, Scored]:
        choosing = ChooseAsk("m", prompt, SYMBOLS)
        found = known(await patient(lambda: self._backend.choose(choosing)))
        hot = Sampling(max_tokens=8, temperature=1.2)
        drawing = GenerateAsk("m", prompt, hot, top_logprobs=N_TOP)
        drawn = known(await patient(lambda: self._backend.generate(drawing, 3)))
        scoring = ScoreAsk("m", prompt, tuple(self._truth.encode(TEXT)), TEXT)
        return found, drawn, known(await patient(lambda: self._backend.score(scoring)))

    # -- comparisons ------------------------------------------------------------------------------

    def _note(self, name: str, ours: object, truth: object) -> None:
        difference = np.abs(np.asarray(ours, np.float64) - np.asarray(truth, np.float64))
        worst = float(difference.max(initial=0.0))
        if not worst < np.inf:
            raise AssertionError(f"{name}: {ours} for {truth}")
        self.worst[name] = max(self.worst.get(name, 0.0), worst)

    def _draw(self, name: str, prompt: tuple[Message, ...], drawn: Generation) -> None:
        assert drawn.raw
        assert drawn.token_ids is not None
        assert drawn.logprobs is not None
        before = self._truth.prompt(prompt)
        assert drawn.n_prompt_tokens == len(before)
        self._note(name, drawn.logprobs, self._truth.scores(before, drawn.token_ids.tolist()))

    def _scored(
        self, name: str, prompt: tuple[Message, ...], scored: Scored, ids: Sequence[int]
    ) -> None:
        before = self._truth.prompt(prompt)
        assert scored.token_ids.tolist() == list(ids)
        assert scored.n_prompt_tokens == len(before)
        self._note(name, scored.logprobs, self._truth.scores(before, ids))

    def _top(self, name: str, prompt: tuple[Message, ...], seen: Generation | Scored) -> None:
        """A listed token is one of the best; of a token that is not listed nothing is said."""
        assert seen.top is not None
        assert seen.token_ids is not None
        ids, values = seen.top.token_ids, seen.top.logprobs
        assert values.shape == ids.shape == (len(seen.token_ids), N_TOP)
        rows = self._truth.logprobs(self._truth.prompt(prompt), seen.token_ids.tolist())
        best = -np.sort(-rows, axis=1)[:, :N_TOP]
        self._note(name, values, best)
        assert (ids >= 0).all()
        self._note(name, values, np.take_along_axis(rows, ids.astype(np.int64), axis=1))

    def _chosen(
        self,
        name: str,
        prompt: tuple[Message, ...],
        found: Choice,
        wanted: Sequence[Label],
        begun: Prefix,
    ) -> None:
        assert found.exact
        before = [*self._truth.prompt(prompt), *self._truth.encode(begun.text)]
        assert found.n_prompt_tokens == len(before)
        paths = _paths(wanted, self._truth.encode, self._truth.tokenizer.eos_token_id)
        truth = [
            np.logaddexp.reduce(
                [self._truth.scores(before, path).sum() for path in dict.fromkeys(group)]
            )
            for group in paths
        ]
        self._note(name, found.logprobs, truth)


def _paths(
    wanted: Sequence[Label], encode: Callable[[str], list[int]], end_of_turn: int
) -> list[list[tuple[int, ...]]]:
    groups = [[tuple(encode(text)) for text in label.spellings] for label in wanted]
    paths, _ = by_ids.cut(groups, [label.name for label in wanted], end_of_turn)
    return [list(group) for group in paths]
