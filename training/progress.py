"""Quick held-out accuracies while a model trains."""

from __future__ import annotations

from orchestrator.datasets.demo import CATEGORIES, DemoItem, generate
from orchestrator.prompts import compact
from training.batches import Encoder
from training.checks import answer_with_grade, perturb, rating, seeded, verdict
from training.corpus import render
from training.decoding import distributions, greedy
from training.model import TinyLlama

ANSWER_LIMIT = 10
CHECK_LIMIT = 40


def answers(
    model: TinyLlama, encoder: Encoder, items: list[DemoItem], *, bos: bool = False
) -> list[str]:
    """Let a model answer items."""
    start = [1] if bos else []
    prompts = [start + encoder.prompt(item.prompt) for item in items]
    return greedy(model, encoder, prompts, ANSWER_LIMIT)


def answering(model: TinyLlama, encoder: Encoder, count: int = 140) -> dict[str, float]:
    """Return the share of exact answers by category and under `all`; `rewrite` besides."""
    items = generate(count, seed=7)
    right: dict[str, list[bool]] = {name: [] for name in CATEGORIES}
    for item, answer in zip(items, answers(model, encoder, items), strict=True):
        right[item.category].append(answer == item.reference)
    report = {name: sum(hits) / len(hits) for name, hits in right.items()}
    report["all"] = sum(map(sum, right.values())) / count
    rng = seeded("answering")
    texts = [
        render(compact.REWRITE, prompt=item.prompt, answer=perturb(rng, item)) for item in items
    ]
    better = greedy(model, encoder, [encoder.prompt(text) for text in texts], ANSWER_LIMIT)
    pairs = zip(items, better, strict=True)
    report["rewrite"] = sum(text == item.reference for item, text in pairs) / count
    return report


def judging(model: TinyLlama, encoder: Encoder, count: int = 140) -> dict[str, float]:
    """Return exact shares of verdicts and ratings, directly and with the check written."""
    rng = seeded("judging")
    items = generate(count, seed=8)
    fields = [
        {
            "prompt": item.prompt,
            "reference": item.reference,
            "answer_a": answer_with_grade(rng, item, rng.randint(0, 2)),
            "answer_b": answer_with_grade(rng, item, rng.randint(0, 2)),
        }
        for item in items
    ]
    labels = [verdict(row["reference"], row["answer_a"], row["answer_b"]) for row in fields]
    grades = [rating(row["reference"], row["answer_a"]) for row in fields]
    report = {}
    for name, template, names, wanted in (
        ("pair", compact.PAIRWISE, compact.LABELS, labels),
        ("rating", compact.RATING, compact.RATINGS, grades),
    ):
        prompts = [
            encoder.prompt(render(template, **row, answer=row["answer_a"])) for row in fields
        ]
        shares = distributions(model, encoder, prompts, names)
        best = [names[row.index(max(row))] for row in shares]
        hits = [a == b for a, b in zip(best, wanted, strict=True)]
        report[name] = sum(hits) / count
    few = slice(0, count // 2)
    prompts = [encoder.prompt(render(compact.PAIRWISE_COT, **row)) for row in fields[few]]
    written = greedy(model, encoder, prompts, CHECK_LIMIT)
    hits = [text.endswith(f"so {want}") for text, want in zip(written, labels[few], strict=True)]
    report["pair_cot"] = sum(hits) / len(hits)
    return report
