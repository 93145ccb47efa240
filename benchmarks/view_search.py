"""Measure the viewer's first items and its search: `python benchmarks/view_search.py`.

Prints what the first screen of items takes, the texts' size, the time to gather them, and for each
keystroke of a few searches the time from the query to the first hundred rows, in milliseconds of
wall and processor time.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from orchestrator.frames import FrameFiles
from orchestrator.runner.results.tables import all_sources
from orchestrator.view.answers import Answers
from orchestrator.view.items import Wanted, build, write_texts

SEARCHES = ("reasons", "the 12345", '"word7 word9"', "nothing-like-it")
SETTINGS = {"methods": [{"kind": "answers"}]}


def made(folder: Path, n_items: int, n_words: int) -> FrameFiles:
    """Frames of items with two answers each, of random words."""
    rng = np.random.default_rng(0)
    words = np.array(["the", "reasons", "of", *(f"word{k}" for k in range(3000))])
    keys = [f"i{k}" for k in range(n_items)]
    pl.DataFrame({"item": keys, "category": "c", "prompt": keys}).write_parquet(
        folder / "items.parquet"
    )
    parts = [
        pl.DataFrame(
            {
                "method": "answers",
                "item": keys,
                "model": model,
                "status": "ok",
                "mean_logprob": rng.normal(size=n_items),
                "text": [
                    " ".join(words[chosen]) + f" {k}"
                    for k, chosen in enumerate(rng.integers(len(words), size=(n_items, n_words)))
                ],
            }
        )
        for model in ("a", "b")
    ]
    pl.concat(parts).write_parquet(folder / "answers.parquet")
    return FrameFiles(folder)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--words", type=int, default=60, help="of an answer")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frames = made(folder, options.items, options.words)
        n_bytes = frames.scan("answers").select(pl.col("text").str.len_bytes().sum()).collect()
        wall, cpu = time.perf_counter(), time.process_time()
        sources = all_sources({}, SETTINGS).sources
        items = build(frames, sources)
        answers = Answers(frames, items.keys, sources, ("a", "b"), folder)
        answers.page(np.arange(100), answers.by[0])
        first = time.perf_counter() - wall, time.process_time() - cpu
        print("first items: {:.2f} s, {:.2f} s of the processor".format(*first))
        began = time.perf_counter()
        texts = write_texts(frames, items.keys, folder / "texts.arrow")
        took = time.perf_counter() - began
        print(
            f"{options.items:,} items, {n_bytes.item() / 1e6:.0f} MB of answers, "
            f"gathered in {took:.1f} s"
        )
        slowest = 0.0
        for search in SEARCHES:
            spent = []
            for n in range(1, len(search) + 1):
                wall, cpu = time.perf_counter(), time.process_time()
                rows = items.select(Wanted(query=search[:n]), texts.find(search[:n]))
                items.page(rows[:100])
                spent.append((time.perf_counter() - wall, time.process_time() - cpu))
            walls, cpus = (1e3 * np.array(values) for values in zip(*spent, strict=True))
            slowest = max(slowest, cpus.max())
            print(
                f"{search!r:18} {len(spent):2} keystrokes: median {np.median(walls):.0f} ms, "
                f"slowest {walls.max():.0f} ms; "
                f"processor {np.median(cpus):.0f} and {cpus.max():.0f} ms"
            )
        print(f"most processor time of a keystroke: {slowest:.0f} ms")


if __name__ == "__main__":
    main()
