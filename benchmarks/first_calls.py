"""Count processes whose first numbers of a function of MKL are inexact.

`python -m benchmarks.first_calls [--processes N] [--settled]`

Each process calls a function twice, with several threads, on the same numbers, and compares. With
`--settled` it calls `launch._spec.use_threads` before, as the embedded server and BERTScore do.
Several processes run at once, because it takes a busy machine (pytorch/pytorch#188792).
"""

import argparse
import os
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch

from launch._spec import use_threads

_FUNCTIONS: Final = ("cos", "sin", "log", "sqrt", "tanh")
_AT_ONCE: Final = 8
# Angles of rotary positions, as a first prompt has them.
_NUMBERS: Final = np.outer(np.arange(1, 6_001) % 300 + 1, 1e4 ** -(np.arange(16) / 16)).astype("f4")


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line a function."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=1200, metavar="N")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--settled", action="store_true")
    options = parser.parse_args(argv)
    print("function  processes  inexact  largest error")
    for name in _FUNCTIONS:
        errors: list[float] = []
        while len(errors) < options.processes:
            n = min(_AT_ONCE, options.processes - len(errors))
            begun = [_begun(name, options.threads, settled=options.settled) for _ in range(n)]
            errors += map(_ended, begun)
        print(f"{name:8}  {len(errors):9,}  {sum(e > 0 for e in errors):7}  {max(errors):.1e}")
    return 0


def _begun(name: str, threads: int, *, settled: bool) -> tuple[int, int]:
    """Begin a process; its number, and where it writes the largest error."""
    reader, writer = os.pipe()
    if not (process := os.fork()):
        # Nothing was computed before: threads do not outlive a fork.
        (use_threads if settled else torch.set_num_threads)(threads)
        function, numbers = getattr(torch, name), torch.from_numpy(_NUMBERS)
        first, second = function(numbers), function(numbers)
        os.write(writer, str((first - second).abs().max().item()).encode())
        os._exit(0)
    os.close(writer)
    return process, reader


def _ended(begun: tuple[int, int]) -> float:
    process, reader = begun
    os.waitpid(process, 0)
    with os.fdopen(reader) as said:
        return float(said.read())


if __name__ == "__main__":
    raise SystemExit(main())
