"""Measure the cost of a scoring pass's features beside a plain score, and their memory.

`python benchmarks/features.py` scores answers after a prompt of 300 tokens with a bundled model
(or `--model DIR`), in this process, one thread, without HTTP. For each kind of feature it shows the
least of several rounds, which alternate, so that a busy machine slows all alike, and how far the
peak of the process's memory rose. `--vocabulary N` takes a random model of 16 heads and 8 layers
with so many tokens, as large models have.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.embedded_server import BUNDLED
from launch.embedded import routes
from launch.embedded.engine import Settings
from launch.embedded.protocol import ScoreRequest
from launch.embedded.served import Served, load

KINDS: dict[str, list[str]] = {
    "plain": [],
    "entropy": ["entropy"],
    "whole vocabulary": ["entropy", "vocab_logprob_var", "vocab_mean_logp_logit"],
    "as the code": ["compat_logprob", "compat_vocab_logprob_var", "compat_vocab_mean_logp_logit"],
    "attention": ["attention_entropy"],
}


def random_model(folder: Path, vocabulary: int) -> str:
    """A folder with random weights and the tokenizer of a bundled model."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=4,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    for file in (BUNDLED / "expert").iterdir():
        if "token" in file.name or "template" in file.name:
            shutil.copy(file, folder)
    return str(folder)


def peak_mib() -> float:
    """The most memory this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def score(served: Served, number: int, n_answer: int, names: list[str]) -> float:
    """Milliseconds of one score; each prompt is another, so that nothing is known of it."""
    text = f"Item {number}: " + "which answer is better, and why? " * 24
    ids = [
        (number * 31 + 7 * place) % (served.runner.vocabulary - 8) + 8 for place in range(n_answer)
    ]
    request = ScoreRequest(
        messages=[{"role": "user", "content": text}], token_ids=ids, features=names or None
    )
    job, fields = routes.score(request, served)
    done = threading.Event()
    job.on_done = lambda _error: done.set()
    start = time.perf_counter()
    served.engine.submit(job)
    done.wait()
    fields()
    return 1000 * (time.perf_counter() - start)


def measure(served: Served, n_answer: int, n_rounds: int) -> None:
    """Print milliseconds by kind of feature."""
    best = dict.fromkeys(KINDS, float("inf"))
    rose = dict.fromkeys(KINDS, 0.0)
    for number in range(n_rounds):
        for place, (kind, names) in enumerate(KINDS.items()):
            before = peak_mib()
            took = score(served, 10 * number + place, n_answer, names)
            best[kind] = min(best[kind], took)
            rose[kind] += peak_mib() - before
    for kind, took in best.items():
        times = took / best["plain"]
        print(f"{n_answer:6d}  {kind:18s} {took:8.1f} ms  {times:5.2f}  {rose[kind]:6.0f} MiB")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="bundled:expert", metavar="DIR")
    parser.add_argument("--vocabulary", type=int, default=0, metavar="N")
    parser.add_argument("--tokens", type=int, nargs="+", default=[32, 128, 256])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        place = options.model
        if options.vocabulary:
            place = random_model(Path(folder), options.vocabulary)
        settings = Settings(prefix_bytes=0)
        served = load("m", place, settings, lambda: torch.set_num_threads(1))
    served.engine.start()
    print("answer  feature            least time  times plain  rise of the peak")
    for n_answer in options.tokens:
        measure(served, n_answer, options.rounds)
    served.engine.close()


if __name__ == "__main__":
    main()
