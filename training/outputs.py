"""Let answerers answer training items, for the judge to see what real models write.

`python -m training.outputs --runs RUNS --steps STEP STEP STEP` writes
`outputs.json` into the folder of runs; a judge in training takes it up within 200 steps.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch

from training.batches import Encoder
from training.checks import seeded
from training.corpus import Corpus
from training.model import load_snapshot
from training.progress import answers
from training.tokenizer import build


def main() -> None:
    """Write the outputs of the given snapshots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True, help="folder given to train --out")
    parser.add_argument("--steps", type=int, nargs="+", required=True)
    parser.add_argument("--count", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    encoder = Encoder(build())
    corpus = Corpus(seeded(f"outputs-{args.seed}"))
    items = [corpus.item() for _ in range(args.count)]
    given = []
    for step in args.steps:
        model = load_snapshot(args.runs / "answerer" / f"step{step:06d}.safetensors")
        given.append(answers(model, encoder, items))
    rows = [
        {"item": asdict(item), "answers": list(texts)}
        for item, *texts in zip(items, *given, strict=True)
    ]
    partial = args.runs / "outputs.partial"
    partial.write_text(json.dumps(rows), encoding="utf-8")
    partial.rename(args.runs / "outputs.json")


if __name__ == "__main__":
    main()
