"""Synthetic, checkable tasks over short strings of letters or digits.

Every task shows three to six distinct symbols written with spaces and asks for a small
transformation of them, so that the right answer is known exactly. Prompts are divided into two
sides by a stable hash: `generate` draws from the held-out side only, and the bundled models are
trained on the other side only, so no seed of `generate` can show a model a prompt it was
trained on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from pydantic import Field

from orchestrator.plugin import Dataset, DatasetKind, Item, Message, Settings, from_items

LETTERS = "abcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789"
MIN_LENGTH = 3
MAX_LENGTH = 6
DIGIT_SHARE = 0.2
HELD_OUT_EVERY = 8


@dataclass(frozen=True, slots=True)
class DemoItem:
    """One task with its known answer.

    Attributes:
        key: Stable identifier, the category followed by a hash of the prompt.
        category: Name of the transformation, one of `CATEGORIES`.
        prompt: The task as shown to a model, for example `Reverse: k d a f`.
        reference: The only right answer, for example `f a d k`.
    """

    key: str
    category: str
    prompt: str
    reference: str


_Transform = Callable[[Sequence[str]], list[str]]
_TASKS: dict[str, tuple[str, _Transform]] = {
    "reverse": ("Reverse", lambda symbols: list(reversed(symbols))),
    "sort": ("Sort", sorted),
    "repeat": ("Repeat", list),
    "swap": ("Swap first and last", lambda symbols: [symbols[-1], *symbols[1:-1], symbols[0]]),
    "rotate": ("Rotate", lambda symbols: [*symbols[1:], symbols[0]]),
    "first": ("First", lambda symbols: [symbols[0]]),
    "last": ("Last", lambda symbols: [symbols[-1]]),
}

CATEGORIES: tuple[str, ...] = tuple(_TASKS)


def is_held_out(prompt: str) -> bool:
    """Tell whether a prompt belongs to the held-out side.

    Returns True for the prompts `generate` may return, False for those used in training.
    """
    digest = blake2b(prompt.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % HELD_OUT_EVERY == 0


def draw_item(rng: random.Random, category: str, *, held_out: bool) -> DemoItem:
    """Draw one item of a category from one side of the division.

    The same item may come again on a later call.

    Raises:
        KeyError: If the category is unknown.
    """
    title, transform = _TASKS[category]
    while True:
        alphabet = DIGITS if rng.random() < DIGIT_SHARE else LETTERS
        symbols = rng.sample(alphabet, rng.randint(MIN_LENGTH, MAX_LENGTH))
        prompt = f"{title}: {' '.join(symbols)}"
        if is_held_out(prompt) == held_out:
            break
    tag = blake2b(prompt.encode("utf-8"), digest_size=6).hexdigest()
    return DemoItem(f"{category}-{tag}", category, prompt, " ".join(transform(symbols)))


def generate(n: int, seed: int) -> list[DemoItem]:
    """Generate held-out items with distinct prompts, the categories taking turns.

    Equal arguments give equal items, in one order.

    Raises:
        ValueError: If `n` is negative.
    """
    if n < 0:
        raise ValueError(f"n must not be negative, got {n}")
    rng = random.Random(f"demo-{seed}")  # noqa: S311 - not for secrets
    seen: set[str] = set()
    items: list[DemoItem] = []
    while len(items) < n:
        item = draw_item(rng, CATEGORIES[len(items) % len(CATEGORIES)], held_out=True)
        if item.prompt not in seen:
            seen.add(item.prompt)
            items.append(item)
    rng.shuffle(items)
    return items


class Config(Settings):
    """Settings of `demo`."""

    n: int = Field(300, ge=1, le=20_000, description="Number of items.")
    seed: int = Field(0, description="Seed of the generated items.")


class Kind(DatasetKind[Config]):
    """Generated tasks; no file is read."""

    def open(self, base: Path) -> Dataset:  # noqa: ARG002 (no path is relative)
        """The demo as a dataset."""
        items = [
            Item(
                key=item.key,
                messages=(Message("user", item.prompt),),
                reference=item.reference,
                category=item.category,
            )
            for item in generate(self.config.n, self.config.seed)
        ]
        return from_items(f"demo ({self.config.n} items, seed {self.config.seed})", items)
