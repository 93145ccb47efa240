"""The bound that docs/embedded-server.md states on what shares a batch changes."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "batch_effect.py"
# Some times what docs/embedded-server.md states, since kernels differ between processors.
LARGEST = {"chat/completions": 5e-5, "score": 5e-5, "choose": 1e-3}
LARGEST_PROBABILITY = 5e-5


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.models
@pytest.mark.timeout(300)
def test_what_shares_a_batch_changes_no_text_and_numbers_within_the_stated_bound():
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), "--items", "16", "--rounds", "1"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = {line.split()[0]: line.split()[1:] for line in ended.stdout.splitlines()[2:]}
    assert rows.keys() == LARGEST.keys()
    for route, (largest, _, probability, _, other, *_) in rows.items():
        assert float(largest) <= LARGEST[route], ended.stdout
        assert float(probability) <= LARGEST_PROBABILITY, ended.stdout
        assert other == "0", ended.stdout
