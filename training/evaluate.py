"""Measure the exported models on fresh held-out items and write the model card.

`python -m training.evaluate` reads and writes the folder of bundled models.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path

import torch

from orchestrator.datasets.demo import DemoItem, generate
from training import measure
from training.batches import Encoder
from training.card import card
from training.export import ANSWERERS, MODELS, WITH_BOS
from training.model import TinyLlama
from training.progress import answers
from training.tokenizer import build

LOG = logging.getLogger("evaluate")
Table = dict[str, dict[str, float]]


def measure_answerers(
    models: dict[str, TinyLlama], encoder: Encoder, items: list[DemoItem]
) -> tuple[Table, dict[str, list[str]]]:
    """Return each answerer's accuracies and its answers."""
    table: Table = {}
    texts: dict[str, list[str]] = {}
    for name, model in models.items():
        bos = name in WITH_BOS
        texts[name] = answers(model, encoder, items, bos=bos)
        own = measure.by_category(items, texts[name])
        own |= measure.rewriting(model, encoder, items[: len(items) // 2], bos=bos)
        table[name] = own
        LOG.info("%s %s", name, own)
    return table, texts


def measure_judge(
    model: TinyLlama, encoder: Encoder, items: list[DemoItem], texts: dict[str, list[str]]
) -> Table:
    """Return the judge's accuracies in both forms."""
    half = items[: len(items) // 2]
    real = measure.real_pairs(items, texts)
    table: Table = {}
    judges = {
        "direct": measure.direct_judge(model, encoder),
        "check": measure.checking_judge(model, encoder),
    }
    shares = measure.ratings(model, encoder, half)
    for name, judge in judges.items():
        stride = 1 if name == "direct" else 3
        table[name] = {
            "verdict": measure.verdicts(judge, measure.balanced_pairs(half)[::stride]),
            "made up": measure.preferences(judge, measure.right_and_wrong(half)[::stride]),
            "real": measure.preferences(judge, real[::stride]),
            "real pairs": float(len(real[::stride])),
            "rating": shares[name],
        }
        LOG.info("%s %s", name, table[name])
    return table


def main() -> None:
    """Measure everything and write the card."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=MODELS)
    parser.add_argument("--count", type=int, default=1400)
    parser.add_argument("--seed", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(args.threads)
    encoder = Encoder(build())
    items = generate(args.count, seed=args.seed)
    loaded = {name: measure.load_exported(args.models / name) for name in ANSWERERS}
    judge = measure.load_exported(args.models / "judge")
    answering, texts = measure_answerers(loaded | {"judge": judge}, encoder, items)
    judging = measure_judge(judge, encoder, items, {name: texts[name] for name in ANSWERERS})
    (args.models / "README.md").write_text(
        card(args.models, answering, judging, args.count, args.seed), encoding="utf-8"
    )
    LOG.info("%s", json.dumps({"answering": answering, "judging": judging}))


if __name__ == "__main__":
    main()
