"""Requests to a real server for a recording, and to the recording afterwards."""

from typing import Final

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

PROMPT: Final = (
    Message(
        "user",
        "Compare two answers. Verdict only.\nTask: repeat: f k\nReference: f k\n"
        "Answer A: f k\nAnswer B: k f",
    ),
)
ODD: Final = (Message("user", "Say something."),)
LONG: Final = (Message("user", "a b c d " * 300),)
SYMBOLS: Final = labels("[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]")
TEXT: Final = "[[>]] f k"
SEED: Final = 1

DRAWS: Final = {
    "greedy": GenerateAsk("m", PROMPT, Sampling(max_tokens=8)),
    "cut": GenerateAsk("m", PROMPT, Sampling(max_tokens=2)),
    "sampled": GenerateAsk("m", ODD, Sampling(max_tokens=12, temperature=2.0), top_logprobs=2),
}
SCORES: Final = {
    "ids": ScoreAsk("m", PROMPT, (266, 33, 267), "[[>]]"),
    "text": ScoreAsk("m", PROMPT, (), TEXT),
    "listed": ScoreAsk("m", PROMPT, (266, 33, 267), "[[>]]", top_logprobs=2),
    "ended": ScoreAsk("m", PROMPT, (), TEXT, end_of_turn=True),
}
CHOICES: Final = {
    "symbols": ChooseAsk("m", PROMPT, SYMBOLS),
    "nested": ChooseAsk("m", PROMPT, labels("1", "10", "2")),
    "spelled": ChooseAsk("m", ODD, (Label("A", ("A", " A")), Label("B", ("B",)))),
    "begun": ChooseAsk("m", PROMPT, SYMBOLS, Prefix("So: ")),
}
FAULTY: Final[dict[str, GenerateAsk | ScoreAsk]] = {
    "too_long": GenerateAsk("m", LONG, Sampling(max_tokens=2)),
    "too_long_to_score": ScoreAsk("m", LONG, (266,)),
    "too_hot": GenerateAsk("m", PROMPT, Sampling(temperature=5.0, max_tokens=2)),
    "too_many": GenerateAsk("m", PROMPT, Sampling(max_tokens=2), top_logprobs=40),
}


async def asked(
    backend: Backend, ask: GenerateAsk | ScoreAsk | ChooseAsk
) -> Generation | Scored | Choice | Failure:
    """Return the answer of a back-end."""
    match ask:
        case GenerateAsk():
            return await backend.generate(ask, SEED)
        case ScoreAsk():
            return await backend.score(ask)
        case ChooseAsk():
            return await backend.choose(ask)
