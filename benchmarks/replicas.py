"""One bad replica beside a healthy one: units that fail, and requests that the bad one is sent.

A judge has two addresses of the fake server, and the second fails every judgment in one way from
the first contact on. Each row is a whole run in a folder of its own, then the same command again
with both servers well.

    python benchmarks/replicas.py [FAULT ...] [--n 300] [--healed-after REQUESTS]
"""

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from orchestrator import cli
from tests.e2e.runs import MODELS, fake_server, frames, stats, write_recipe

FAULTS: Final[Mapping[str, dict[str, Any]]] = {
    "401": {"fault": "status", "status": 401},
    "400": {"fault": "status", "status": 400},
    "404": {"fault": "status", "status": 404},
    "NaN": {"fault": "nan"},
    "wrong shape": {"fault": "wrong_types"},
    "429": {"fault": "429"},
    "503": {"fault": "503"},
    "malformed": {"fault": "malformed"},
    "500": {"fault": "500"},
    "closes": {"fault": "close"},
    "resets": {"fault": "reset"},
    "hangs": {"fault": "hang"},
}
LATENCY: Final = {"route": "choose", "latency_s": 0.02}


def run(recipe: Path, run_dir: Path) -> float:
    """Run the command in this process; the seconds that it took."""
    started = time.monotonic()
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        cli.main(["run", str(recipe), "--run-dir", str(run_dir), "--display", "plain"])
    return time.monotonic() - started


def n_failed(run_dir: Path) -> int:
    """Judgments that failed."""
    return sum(
        frame.filter(frame["status"] != "ok").height
        for name, frame in frames(run_dir).items()
        if name not in {"items", "answers"}
    )


def measured(fault: Mapping[str, Any], n: int) -> tuple[str, ...]:
    """One row of the table."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        good = stack.enter_context(fake_server([LATENCY]))
        with fake_server([{"model": "*1.0", "route": "choose", **fault}, LATENCY]) as bad:
            limits = {"max_in_flight": 16}
            recipe = write_recipe(folder / "r.json", good, n=n, limits=limits)
            made = json.loads(recipe.read_text())
            made["models"]["judge"]["base_url"] = [good, bad]
            recipe.write_text(json.dumps(made))
            seconds = run(recipe, folder / "run")
            failed, sent = n_failed(folder / "run"), stats(bad)["by_model"].get(MODELS[-1], {})
            port = int(bad.rpartition(":")[2])
        with fake_server(port=port):
            before = stats(good)["total"]
            run(recipe, folder / "run")
            again = stats(good)["total"] - before
        left = n_failed(folder / "run")
    return (str(failed), str(sum(sent.values())), f"{seconds:.0f}", str(again), str(left))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fault", nargs="*", help=", ".join(FAULTS))
    parser.add_argument("--n", type=int, default=300, help="items; three judgments each")
    options = parser.parse_args()
    head = ("fault", f"failed of {3 * options.n}", "sent to it", "s", "sent again", "failed then")
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for name in options.fault or FAULTS:
        print(f"| {name} | {' | '.join(measured(FAULTS[name], options.n))} |", flush=True)


if __name__ == "__main__":
    main()
