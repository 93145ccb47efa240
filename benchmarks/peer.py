"""Peer evaluation of made-up answers: `python benchmarks/peer.py [--models 20] [--items 50]`.

Answers are random words, of 20 to 180 tokens, none of which is met twice, so the cache of
embeddings never helps. Each item's answers are compared by the default encoder and become rows, as
in a run. Shown are milliseconds an item by step, those of the processor over all threads, and
memory at the begin and at the end.
"""

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil

from backends import bertscore, rouge_l
from orchestrator.ask import Ask, GenerateAsk, SimilarityAsk
from orchestrator.contracts.settings import BertScoreSettings
from orchestrator.methods import peer_elo
from orchestrator.records import Generation, Item, Message, PairScores, Unit

WARM_UP = 3


def answers(rng: np.random.Generator, words: np.ndarray, n_models: int) -> tuple[str, ...]:
    return tuple(" ".join(rng.choice(words, rng.integers(18, 178))) for _ in range(n_models))


def rows_of(texts: tuple[str, ...], compared: PairScores) -> int:
    """The method itself over answers that are here; how many rows it makes."""
    models = tuple(f"m{i}" for i in range(len(texts)))
    config = peer_elo.Config()
    (combination,) = peer_elo.Kind(config).combinations(models)
    item = Item(key="k", messages=(Message("user", "q"),))
    coroutine = peer_elo.Kind(config).evaluate(Unit(item, models, combination.judge), Ask())
    value: object = None
    said = dict(zip(models, texts, strict=True))
    try:
        while True:
            asked = coroutine.send(value)
            if isinstance(asked, SimilarityAsk):
                value = compared
            else:
                value = [
                    Generation(said[ask.model], "stop") if isinstance(ask, GenerateAsk) else None
                    for ask in asked.asks
                ]
    except StopIteration as end:
        return len(end.value)


def megabytes() -> float:
    return float(psutil.Process().memory_info().rss) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--items", type=int, default=50)
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    config = bertscore.Kind(BertScoreSettings(threads=options.threads)).located(Path()).config
    vocabulary = (Path(config.encoder) / "vocab.txt").read_text(encoding="utf-8").split()
    words = np.array([word for word in vocabulary[2000:12000] if word.isalpha()])
    rng = np.random.default_rng(0)
    encoder = bertscore.load("bertscore", config)
    rouge = partial(rouge_l.compared, tokens="words")
    for _ in range(WARM_UP):
        encoder.compare(answers(rng, words, options.models))
    spent = dict.fromkeys(("bertscore", "rouge_l", "rows"), 0.0)
    before, n_rows, cpu = megabytes(), 0, time.process_time()
    compared: dict[str, PairScores] = {}
    for _ in range(options.items):
        texts = answers(rng, words, options.models)
        for name, compare in (("rouge_l", rouge), ("bertscore", encoder.compare)):
            start = time.perf_counter()
            compared[name] = compare(texts)
            spent[name] += time.perf_counter() - start
        start = time.perf_counter()
        n_rows += rows_of(texts, compared["bertscore"])
        spent["rows"] += time.perf_counter() - start
    for name, seconds in spent.items():
        print(f"{name:10} {seconds / options.items * 1000:8.1f} ms an item")
    print(f"processor  {(time.process_time() - cpu) / options.items * 1000:8.1f} ms an item")
    print(f"{n_rows} rows; memory {before:.0f} MB -> {megabytes():.0f} MB")


if __name__ == "__main__":
    main()
