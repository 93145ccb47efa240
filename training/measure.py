"""Held-out accuracies of exported models: bfloat16 weights, computed in float32."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from safetensors.torch import load_file

from orchestrator.datasets.demo import CATEGORIES, DemoItem
from orchestrator.prompts import compact
from training.batches import Encoder
from training.checks import answer_with_grade, perturb, rating, seeded, verdict
from training.corpus import render
from training.decoding import distributions, greedy
from training.model import Shape, TinyLlama, from_hf
from training.progress import ANSWER_LIMIT, CHECK_LIMIT

LEANINGS = (1.0, 1.0, 0.5, 0.0, 0.0)
"""Weight of each of `compact.LABELS` in favour of answer A."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to an item, in the order shown."""

    item: DemoItem
    first: str
    second: str

    def turned(self) -> Pair:
        """Return the pair in the other order."""
        return Pair(self.item, self.second, self.first)

    def label(self) -> str:
        """Return the right verdict."""
        return verdict(self.item.reference, self.first, self.second)

    def fields(self) -> dict[str, str]:
        """Return what the templates ask for."""
        return {
            "prompt": self.item.prompt,
            "reference": self.item.reference,
            "answer_a": self.first,
            "answer_b": self.second,
        }


Judge = Callable[[Sequence[Pair]], list[list[float]]]


def load_exported(folder: Path) -> TinyLlama:
    """Load an exported model for computation in float32."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    shape = Shape(
        vocab=config["vocab_size"],
        width=config["hidden_size"],
        layers=config["num_hidden_layers"],
        hidden=config["intermediate_size"],
        context=config["max_position_embeddings"],
        theta=config["rope_theta"],
        eps=config["rms_norm_eps"],
    )
    return from_hf(load_file(folder / "model.safetensors"), shape).eval()


def mean(hits: Sequence[bool | float]) -> float:
    """Return the mean, or not-a-number of nothing."""
    return sum(hits) / len(hits) if hits else float("nan")


def by_category(items: Sequence[DemoItem], texts: Sequence[str]) -> dict[str, float]:
    """Return the shares of exact answers by category and under `all`."""
    hits = [
        (item.category, text == item.reference) for item, text in zip(items, texts, strict=True)
    ]
    shares = {name: mean([hit for own, hit in hits if own == name]) for name in CATEGORIES}
    return shares | {"all": mean([hit for _, hit in hits])}


def rewriting(
    model: TinyLlama, encoder: Encoder, items: Sequence[DemoItem], *, bos: bool
) -> dict[str, float]:
    """Return how often made-up wrong answers are corrected and right ones are kept."""
    rng = seeded("rewriting")
    wrong = [answer_with_grade(rng, item, rng.randint(0, 1)) for item in items]
    right = [item.reference for item in items]
    shares = {}
    for name, given in (("corrected", wrong), ("kept", right)):
        prompts = [
            [1] * bos + encoder.prompt(render(compact.REWRITE, prompt=item.prompt, answer=answer))
            for item, answer in zip(items, given, strict=True)
        ]
        texts = greedy(model, encoder, prompts, ANSWER_LIMIT)
        shares[name] = mean([a == b for a, b in zip(texts, right, strict=True)])
    return shares


def direct_judge(model: TinyLlama, encoder: Encoder) -> Judge:
    """Return a judge that reads the distribution over the labels at once."""

    def judge(pairs: Sequence[Pair]) -> list[list[float]]:
        prompts = [encoder.prompt(render(compact.PAIRWISE, **pair.fields())) for pair in pairs]
        return distributions(model, encoder, prompts)

    return judge


def checking_judge(model: TinyLlama, encoder: Encoder) -> Judge:
    """Return a judge that writes the check and counts the label at its end as certain."""

    def judge(pairs: Sequence[Pair]) -> list[list[float]]:
        prompts = [encoder.prompt(render(compact.PAIRWISE_COT, **pair.fields())) for pair in pairs]
        texts = greedy(model, encoder, prompts, CHECK_LIMIT)
        return [[float(text.endswith(f"so {label}")) for label in compact.LABELS] for text in texts]

    return judge


def verdicts(judge: Judge, pairs: Sequence[Pair]) -> float:
    """Return the share of pairs whose likeliest verdict is exactly right."""
    shares = judge(pairs)
    best = [compact.LABELS[row.index(max(row))] for row in shares]
    return mean([a == pair.label() for a, pair in zip(best, pairs, strict=True)])


def preferences(judge: Judge, pairs: Sequence[Pair]) -> float:
    """Return the share of pairs in which the right first answer is preferred to the second.

    The probability that the first is better is averaged over both orders; an even verdict
    counts one half.
    """
    forward, backward = (
        [sum(s * w for s, w in zip(row, LEANINGS, strict=True)) for row in judge(shown)]
        for shown in (pairs, [pair.turned() for pair in pairs])
    )
    lead = [one - other for one, other in zip(forward, backward, strict=True)]
    return mean([1.0 if gap > 0 else 0.5 if gap == 0 else 0.0 for gap in lead])


def balanced_pairs(items: Sequence[DemoItem]) -> list[Pair]:
    """Return one pair of made-up answers per item, grades drawn evenly."""
    rng = seeded("balanced")
    return [
        Pair(
            item,
            answer_with_grade(rng, item, rng.randint(0, 2)),
            answer_with_grade(rng, item, rng.randint(0, 2)),
        )
        for item in items
    ]


def right_and_wrong(items: Sequence[DemoItem]) -> list[Pair]:
    """Return one pair per item, a right answer and a made-up wrong one."""
    rng = seeded("right and wrong")
    return [
        Pair(item, item.reference, answer_with_grade(rng, item, rng.randint(0, 1)))
        for item in items
    ]


def real_pairs(items: Sequence[DemoItem], texts: dict[str, list[str]]) -> list[Pair]:
    """Return pairs of actual answers of which only the first is right."""
    pairs = []
    for one, other in combinations(texts, 2):
        for item, a, b in zip(items, texts[one], texts[other], strict=True):
            if (a == item.reference) != (b == item.reference):
                pairs.append(Pair(item, a, b) if a == item.reference else Pair(item, b, a))
    return pairs


def ratings(model: TinyLlama, encoder: Encoder, items: Sequence[DemoItem]) -> dict[str, float]:
    """Return the shares of exact ratings, directly and after the written check."""
    rng = seeded("ratings")
    given = [perturb(rng, item) if rng.random() < 0.75 else item.reference for item in items]
    wanted = [rating(item.reference, a) for item, a in zip(items, given, strict=True)]

    def prompts(template: str) -> list[list[int]]:
        return [
            encoder.prompt(
                render(template, prompt=item.prompt, reference=item.reference, answer=answer)
            )
            for item, answer in zip(items, given, strict=True)
        ]

    rows = distributions(model, encoder, prompts(compact.RATING), compact.RATINGS)
    direct = [compact.RATINGS[row.index(max(row))] for row in rows]
    written = greedy(model, encoder, prompts(compact.RATING_COT), CHECK_LIMIT)
    return {
        "direct": mean([a == b for a, b in zip(direct, wanted, strict=True)]),
        "check": mean(
            [text.endswith(f"so {want}") for text, want in zip(written, wanted, strict=True)]
        ),
    }
