"""Texts in their context, by a tokenizer whose merges are known."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends._tokens import Cache, Contexts, Ids, TokenizerRoutes, outcome
from orchestrator.records import Failure, Message, Messages
from orchestrator.wire.failures import Failed

WORDS = ("<u>", "</u>", "<a>", "[[", ">>", "]]", "ab", "abc", " a", "▁", "\n")
LETTERS = "abcdefgh[]<>/u \n▁:x7y"
VOCABULARY = {word: i for i, word in enumerate((*WORDS, *LETTERS))}
SPELLING = {i: word for word, i in VOCABULARY.items()}
END = VOCABULARY["</u>"]


class Toy(TokenizerRoutes):
    """Cuts off the longest word it knows; counts what it is asked.

    Args:
        opening: What opens the assistant's turn.
        spaces: Whether it puts a space before every text, as SentencePiece does.
    """

    def __init__(self, opening: str = "<a>", *, spaces: bool = False) -> None:
        self.n_asked = 0
        self._opening = opening
        self._spaces = spaces

    def cut(self, text: str) -> Ids:
        text = f"▁{text}" if self._spaces else text
        ids = []
        while text:
            word = max((word for word in VOCABULARY if text.startswith(word)), key=len)
            ids.append(VOCABULARY[word])
            text = text[len(word) :]
        return tuple(ids)

    async def chat(self, messages: Messages, *, opens: bool, goes_on: bool) -> Ids:
        self.n_asked += 1
        text = "".join(f"<u>{message.content}</u>" for message in messages)
        return self.cut((text.removesuffix("</u>") if goes_on else text) + self._opening * opens)

    async def plain(self, text: str, *, special: bool) -> Ids:
        self.n_asked += 1
        return self.cut(text)

    async def text(self, ids: Ids) -> str:
        self.n_asked += 1
        return "".join(SPELLING[i] for i in ids)

    async def spells_spaces(self) -> bool:
        return self._spaces

    async def ends_turn(self, ids: Ids, token: int) -> bool:
        return token == END


def user(text: str) -> Messages:
    return (Message("user", text),)


def spelled(ids: Ids) -> list[str]:
    return [SPELLING[i] for i in ids]


@pytest.mark.parametrize(
    ("opening", "text", "tokens", "boundary"),
    [
        ("<a>", "[[>>]]", ["[[", ">>", "]]"], "separate"),
        # The opening's last token would grow into the text.
        ("<a>[", "[", ["["], "merged"),
        ("a", "bc", ["b", "c"], "merged"),
    ],
)
async def test_a_text_is_cut_as_a_model_that_generates_would_meet_it(
    opening, text, tokens, boundary
):
    contexts = Contexts(Toy(opening), plain=False)
    found = await contexts.continuation(await contexts.prompt(user("x")), text)
    assert (spelled(found.ids), found.boundary) == (tokens, boundary)


async def test_a_tokenizer_that_puts_spaces_before_texts_does_not_put_one_into_the_middle():
    contexts = Contexts(Toy(spaces=True), plain=False)
    found = await contexts.continuation(await contexts.prompt(user("x")), "ab")
    assert "▁" not in spelled(found.ids)


async def test_labels_are_cut_once_for_all_prompts():
    toy = Toy()
    contexts = Contexts(toy, plain=False)
    for text in ("x", "y", "7"):
        await contexts.continuation(await contexts.prompt(user(text)), "[[>>]]")
    before = toy.n_asked
    prompt = await contexts.prompt(user("ab"))
    assert toy.n_asked == before + 1
    await contexts.continuation(prompt, "[[>>]]")
    assert toy.n_asked == before + 1


async def test_a_begun_answer_is_context_too():
    contexts = Contexts(Toy(), plain=False)
    prompt = await contexts.prompt(user("x"))
    begun = await contexts.continuation(prompt, "a")
    found = await contexts.continuation((*prompt, *begun.ids), "bc", len(begun.ids))
    assert (spelled(found.ids), found.boundary) == (["b", "c"], "merged")


@given(st.text(LETTERS.replace("▁", ""), max_size=12), st.text("abcx", min_size=1, max_size=6))
async def test_a_short_end_of_the_prompt_tells_as_much_as_the_whole(content, text):
    toy = Toy()
    contexts = Contexts(toy, plain=False)
    prompt = await contexts.prompt(user(content))
    found = await contexts.continuation(prompt, text)
    joint = toy.cut("".join(spelled(prompt)) + text)
    if joint[: len(prompt)] == prompt:
        assert found.ids == joint[len(prompt) :]


async def test_the_end_of_the_turn_is_the_token_that_ends_an_answer():
    assert await Contexts(Toy(), plain=False).end_of_turn() == END


async def test_a_base_model_has_no_end_of_a_turn():
    with pytest.raises(Failed, match="base model"):
        await Contexts(Toy(), plain=True).end_of_turn()


def test_the_cache_keeps_what_was_used_last_up_to_its_weight():
    cache: Cache[str, int] = Cache(10)
    cache.put("a", 1, 4)
    cache.put("b", 2, 4)
    assert cache.get("a") == 1
    cache.put("c", 3, 4)
    assert [cache.get(key) for key in "abc"] == [1, None, 3]


async def test_what_many_want_at_once_is_asked_once():
    together, alone = Toy(), Toy()
    for toy, n in ((together, 8), (alone, 1)):
        contexts = Contexts(toy, plain=False)
        prompt = await contexts.prompt(user("ab"))
        async with asyncio.TaskGroup() as group:
            for _ in range(n):
                group.create_task(contexts.continuation(prompt, "[[>>]]"))
    assert together.n_asked == alone.n_asked


async def test_who_waits_for_an_answer_gets_its_failure_and_the_next_question_is_asked_anew():
    cache: Cache[str, int] = Cache(10)
    answers: asyncio.Queue[int] = asyncio.Queue()

    async def ask() -> int:
        n = await answers.get()
        if n == 0:
            raise Failed(NOT_NOW)
        return n

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(outcome(learnt(cache, ask))) for _ in range(3)]
        await asyncio.sleep(0)
        answers.put_nowait(0)
    assert [task.result() for task in asked] == [NOT_NOW] * 3
    answers.put_nowait(7)
    assert await learnt(cache, ask) == 7


async def test_where_the_one_that_asks_is_cancelled_another_one_asks():
    cache: Cache[str, int] = Cache(10)
    answer = asyncio.Event()

    async def ask() -> int:
        await answer.wait()
        return 7

    async with asyncio.TaskGroup() as group:
        first, second = (group.create_task(learnt(cache, ask)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        answer.set()
    assert second.result() == 7


NOT_NOW = Failure("server_error", "not now")


async def learnt(cache: Cache[str, int], ask: Callable[[], Awaitable[int]]) -> int:
    return await cache.learn("a", ask, lambda _: 1)
