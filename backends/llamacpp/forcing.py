"""llama-server's tokenizer, and numbers of given tokens from it: by making it draw them.

The server scores no given tokens. What is drawn is forced by a grammar of token ids, many at a
time, and by a bias one at a time where a grammar can't; the server's log-probabilities are the raw
ones all the same. What the server has of the prompt is in its cache after the first step.
"""

from collections.abc import Mapping
from typing import Final

from backends._tokens import AskServer, Failed, Ids
from backends.llamacpp import completions, wire
from backends.llamacpp.completions import FRAGMENT, Step, forced, looked
from orchestrator.records import Failure, Message, Messages
from orchestrator.wire import by_ids
from orchestrator.wire.by_ids import Reading

COMPLETION: Final = "/completion"
_NEXT: Final = Message("user", "z")


class LlamacppTokenizer:
    """The server's tokenizer; a `backends._tokens.Tokenizer`, whose methods raise `Failed`."""

    def __init__(self, ask: AskServer, template: Mapping[str, object]) -> None:
        self._ask = ask
        self._template = template
        self._spelled: dict[int, bytes] = {}
        self._bos: Ids | None = None
        self._letter: int | None = None

    async def chat(self, messages: Messages, *, opens: bool, goes_on: bool) -> Ids:
        """See `backends._tokens.Tokenizer`."""
        template = self._template
        if not opens and not goes_on and messages[-1].role == "assistant":
            # The server goes on from such a message whatever is asked; another turn ends it.
            messages = (*messages, _NEXT)

        def body() -> bytes:
            return wire.apply_template(messages, template, opens=opens, goes_on=goes_on)

        text = await self._ask("/apply-template", body, wire.rendered)
        ids = await self.plain(text, special=True)
        if self._bos is None:
            self._bos = await self.plain("", special=True)
        bos = self._bos
        twice = bos and ids[: 2 * len(bos)] == bos + bos
        return ids[len(bos) :] if twice else ids

    async def plain(self, text: str, *, special: bool) -> Ids:
        """See `backends._tokens.Tokenizer`."""
        return await self._ask(
            "/tokenize", lambda: wire.tokenize(text, special=special), by_ids.token_ids
        )

    async def text(self, ids: Ids) -> str:
        """See `backends._tokens.Tokenizer`."""
        return await self._ask("/detokenize", lambda: wire.detokenize(ids), wire.text)

    async def spells_spaces(self) -> bool:
        """See `backends._tokens.Tokenizer`."""
        found = await self._ask("/tokenize", lambda: wire.spell("a"), wire.pieces)
        return bool(found) and found[0][1].startswith(b" ")

    async def ends_turn(self, ids: Ids, token: int) -> bool:
        """See `backends._tokens.Tokenizer`."""
        return (
            await self._ask(
                COMPLETION, lambda: wire.force_one(ids, token, 1), completions.stop_type
            )
            == "eos"
        )

    async def spelled(self, ids: Ids) -> list[bytes]:
        """The bytes of each token, special ones by their names."""
        if any(token not in self._spelled for token in ids):
            distinct = tuple(dict.fromkeys(ids))
            found = await self._ask("/tokenize", lambda: wire.spell(distinct), wire.pieces)
            self._spelled.update(found)
        return [self._spelled.get(token, b"") for token in ids]

    async def letter(self) -> int:
        """A token that is whole characters whatever comes before it."""
        if self._letter is None:
            found = await self.plain("a", special=False)
            if not found:
                raise Failed(Failure("unparseable", "the server makes no tokens of a letter"))
            self._letter = found[-1]
        return self._letter


_LIKELY: Final = 64
"""Alternatives among which a token that says nothing of itself is looked for first."""


class Forcer:
    """Makes the server draw given tokens; raises `Failed` where it does not.

    Args:
        ask: Sends requests.
        tokenizer: The server's.
        n_vocab: Tokens there are.
        eos: The text of the token that ends an answer.
        cache: Whether the server's prompt cache is used.
    """

    def __init__(
        self, ask: AskServer, tokenizer: LlamacppTokenizer, n_vocab: int, eos: bytes, *, cache: bool
    ) -> None:
        self._ask = ask
        self._tokenizer = tokenizer
        self._n_vocab = n_vocab
        self._eos = eos
        self._cache = cache
        self._has_grammar = True

    async def force(self, prompt: Ids, tokens: Ids, n_listed: int) -> Step:
        """Return ln p of tokens one after the other, with the most likely ones at each place."""
        spelled = await self._tokenizer.spelled(tokens)
        steps: list[Step] = []
        for begin, stop in wire.runs(spelled, self._eos):
            before = (*prompt, *tokens[:begin])
            steps += await self._stretch(before, tokens[begin:stop], n_listed)
        return Step(
            [value for step in steps for value in step.logprobs],
            [row for step in steps for row in step.listed],
            steps[0].n_cached if steps else 0,
        )

    async def _stretch(self, before: Ids, tokens: Ids, n_listed: int) -> list[Step]:
        """Several tokens by a grammar where the server can, else one by one."""
        if self._has_grammar and len(tokens) > 1:
            cache = self._cache
            try:
                together = await self._ask(
                    COMPLETION,
                    lambda: wire.force_all(before, tokens, n_listed, cache=cache),
                    lambda body, secret: forced(body, len(before), tokens, secret),
                )
            except Failed as failed:
                if not is_of_grammar(failed.failure):
                    raise
                # An old server knows no token ids in grammars; a new one may refuse some tokens.
                self._has_grammar = failed.failure.status != 400
            else:
                return [together]
        return [
            await self.step((*before, *tokens[:at]), token, n_listed)
            for at, token in enumerate(tokens)
        ]

    async def step(self, before: Ids, token: int, n_listed: int) -> Step:
        """Return the log-probability of one token after others."""
        cache = self._cache
        (piece,) = await self._tokenizer.spelled((token,))
        if wire.is_text(piece):
            try:
                return await self._ask(
                    COMPLETION,
                    lambda: wire.force_one(before, token, n_listed, cache=cache),
                    lambda body, secret: forced(body, len(before), (token,), secret),
                )
            except Failed as failed:
                if failed.failure.cause != FRAGMENT:
                    raise
        reading, n_cached = await self.look_up(before, token, n_listed)
        ranked = sorted(reading.logprobs.items(), key=lambda pair: -pair[1])
        value = reading.logprobs.get(token, float("nan"))
        return Step([value], [ranked[:n_listed]], n_cached)

    async def look_up(self, before: Ids, token: int, n_listed: int) -> tuple[Reading, int]:
        """A distribution in which a token is listed, unless it weighs nothing; tokens cached."""
        n = min(max(_LIKELY, n_listed), self._n_vocab)
        reading, n_cached = await self.look(before, n)
        if token not in reading.logprobs and n < self._n_vocab:
            reading, _ = await self.look(before, self._n_vocab)
        return reading, n_cached

    async def look(self, before: Ids, n_listed: int) -> tuple[Reading, int]:
        """The most likely tokens after others, and how many prompt tokens were cached."""
        cache = self._cache
        letter = await self._tokenizer.letter()
        # What is drawn must be told of, so it is a letter; the list is of what was likely.
        return await self._ask(
            COMPLETION,
            lambda: wire.force_one(before, letter, n_listed, cache=cache),
            lambda body, secret: looked(body, len(before), letter, secret),
        )


def is_of_grammar(failure: Failure) -> bool:
    """Return True if a failure comes from a grammar that the server can't follow."""
    return failure.status in {400, 500} and "grammar" in failure.message.lower()
