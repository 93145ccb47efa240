"""Findings about prompts: what a chat template puts into them, whether ids come back as text."""

import datetime as dt
import re
from typing import Final

from orchestrator.probing.record import BAD, GOOD, NO, WARNING, YES, Finding, unknown

NASTY: Final = "naïve 你好 👩‍🔬 e\u0301 a\r\nb\t<|im_end|> [[>>]]  end"
"""Text that tokenizers often lose: emoji, combining marks, CRLF, spellings of special tokens."""

_THINK: Final = re.compile(r"<(think|thinking|reasoning)>(.*?)(</\1>|\Z)", re.DOTALL)
_TAIL: Final = 200
_DATES: Final = ("%Y-%m-%d", "%d %B %Y", "%d %b %Y", "%B %d, %Y", "%b %d, %Y", "%Y/%m/%d",
                 "%d/%m/%Y", "%m/%d/%Y")  # fmt: skip


def beginning(ids: tuple[int, ...]) -> Finding:
    """Check a rendered chat for a doubled first token, such as a BOS added twice."""
    if len(ids) > 1 and ids[0] == ids[1]:
        said = f"a rendered chat begins with token {ids[0]} twice: probably a doubled BOS"
        remedy = "take BOS out of the chat template, or have the tokenizer add none"
        return Finding("bos_twice", YES, BAD, said, remedy)
    return Finding("bos_twice", NO, GOOD, "a rendered chat begins with no doubled token")


def prompt_length(n_tokenised: int, n_used: int | None) -> Finding:
    """Compare the length of a chat when answered with its length when tokenised.

    Args:
        n_tokenised: By the tokenise route.
        n_used: By the usage of a chat completion; None where not given.
    """
    if n_used is None:
        return unknown("prompt_tokens", "the server does not count prompt tokens")
    if n_used == n_tokenised:
        return Finding(
            "prompt_tokens", "same", GOOD, f"a chat is tokenised alike ({n_used} tokens)"
        )
    said = f"a chat has {n_tokenised} tokens when tokenised and {n_used} when answered"
    remedy = "a BOS is added to one of the two, or the prompt is cut: scores would be of another"
    return Finding("prompt_tokens", "other", BAD, said, remedy)


def template(text: str, today: dt.date) -> list[Finding]:
    """Report additions of a chat template to a rendered prompt.

    Args:
        text: A rendered chat, the beginning of the assistant's turn included.
        today: By the server's clock, or the day before or after it.
    """
    return [_thinking(text), _date(text, today)]


def _thinking(text: str) -> Finding:
    block = _THINK.search(text[-_TAIL:])
    if block is None:
        return Finding("think_block", "none", GOOD, "the prompt ends with no think block")
    if block[3]:
        said = "the template writes an empty think block: the model answers at once"
        return Finding("think_block", "closed", GOOD, said)
    said = "the template opens a think block: label probabilities would be read inside of it"
    remedy = "recipe: thinking: {end: …}; or chat_template_kwargs: {enable_thinking: false}"
    return Finding("think_block", "open", WARNING, said, remedy)


def _date(text: str, today: dt.date) -> Finding:
    days = [today + dt.timedelta(days) for days in (-1, 0, 1)]
    spelled = {day.strftime(form) for day in days for form in _DATES}
    spelled |= {one.replace(" 0", " ").removeprefix("0") for one in spelled if " " in one}
    if any(one in text for one in spelled):
        said = "the template writes today's date: numbers and prefix caches change over night"
        remedy = "a template with a fixed date, or a system prompt of your own"
        return Finding("date", YES, WARNING, said, remedy)
    return Finding("date", NO, GOOD, "the template writes no date of today")


def round_trip(sent: str, back: str) -> Finding:
    """Check that a text comes back from its ids."""
    if back == sent:
        return Finding("round_trip", "exact", GOOD, "a text comes back from its ids as it was")
    if back.strip() == sent.strip():
        said = "a text comes back from its ids but for space around it"
        return Finding("round_trip", "space", GOOD, said)
    said = f"a text of {len(sent)} odd characters comes back from its ids as another"
    remedy = "answers are scored by ids, not by text; labels of plain letters are safe"
    return Finding("round_trip", "other", WARNING, said, remedy)
