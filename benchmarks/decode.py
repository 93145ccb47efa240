"""CPU time of decoding recorded vLLM bodies: `python benchmarks/decode.py [FOLDER]`.

FOLDER holds judge.json (1 token, 20 alternatives), small.json (32 x 5) and large.json (256 x 20);
by default `../shared/data/vllm_replies`. Shown is process time for a body,
the least of several rounds.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from orchestrator.records import labels
from orchestrator.wire import replies
from orchestrator.wire.drawn import Reading
from orchestrator.wire.labels import choice_from_top

DEFAULT = Path(__file__).parents[2] / "shared" / "data" / "vllm_replies"
LABELS = labels(" while", " help", " $", " 0", " should")
ROUND_S = 0.2
ROUNDS = 7


def microseconds(decode: Callable[[], object]) -> float:
    """CPU time of one call."""
    decode()
    n, spent = 1, 0.0
    while spent < ROUND_S:
        n *= 2
        spent = _spent(decode, n)
    return min(_spent(decode, n) for _ in range(ROUNDS)) / n * 1e6


def _spent(decode: Callable[[], object], n: int) -> float:
    start = time.process_time()
    for _ in range(n):
        decode()
    return time.process_time() - start


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    judge, small, large = (
        (folder / f"{name}.json").read_bytes() for name in ("judge", "small", "large")
    )
    plain, top = Reading(), Reading(top=20)
    rows: list[tuple[str, Callable[[], object]]] = [
        ("judge -> Choice (5 labels)", lambda: choice_from_top(judge, LABELS)),
        ("judge -> Generation", lambda: replies.generation(judge, plain)),
        ("small -> Generation", lambda: replies.generation(small, plain)),
        ("small -> Generation with 5 alternatives", lambda: replies.generation(small, top)),
        ("large -> Generation", lambda: replies.generation(large, plain)),
        ("large -> Generation with 20 alternatives", lambda: replies.generation(large, top)),
    ]
    for name, decode in rows:
        print(f"{microseconds(decode):9.1f} us  {name}")


if __name__ == "__main__":
    main()
