"""Measure the first screen of the viewer's pages in Chromium: `python benchmarks/view_pages.py`.

    python benchmarks/view_pages.py [--items N] [--keep DIR] [--write]

A run of N items with five answers each, of which a judge compared every pair, is opened in a viewer
that has just started: the page of the run, that of its items, and that of one item. Measured are
the time from the address to the first words on the screen, and what the viewer's process took till
then and till nothing is asked for any more. A report has been made of the run before, as it is at
the end of a run, so that its ratings are kept.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks import _large, _page, _runs

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
# Of each page its path, and what is there when its first screen is.
PAGES = {
    "a run": ("/run/run", "#glance h2"),
    "its items": ("/run/run/items", ".list .row .said-text"),
    "an item": ("/run/run/item/5", ".answers"),
}
PAIRS = len(_runs.CANDIDATES) * (len(_runs.CANDIDATES) - 1) // 2


class Opened(NamedTuple):
    """A page's first screen.

    Attributes:
        name: Of the page.
        wall_s: From the address to the first screen.
        cpu_s: Of the viewer's process meanwhile, after its start.
        whole_s: The same until the network is idle.
    """

    name: str
    wall_s: float
    cpu_s: float
    whole_s: float


@contextlib.contextmanager
def viewer(run: Path, state: Path) -> Iterator[tuple[psutil.Process, str]]:
    """A viewer that has just started, and its link."""
    command = [sys.executable, "-m", "orchestrator", "view", str(run), "--port", "0"]
    environment = {**os.environ, "ORCHESTRATOR_STATE": str(state), "PYTHONDONTWRITEBYTECODE": ""}
    process = subprocess.Popen(
        command, cwd=_runs.ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        lines = process.stderr or ()
        yield (
            psutil.Process(process.pid),
            next(line.split()[1] for line in lines if line.startswith("open ")),
        )
    finally:
        process.terminate()
        process.wait()


def measured(browser: Browser, run: Path, state: Path) -> Iterator[Opened]:
    """Open each page in a viewer of its own."""
    for name, (path, shown) in PAGES.items():
        with viewer(run, state) as (process, link):
            base, token = link.split("/?")
            page: Page = browser.new_context().new_page()
            page.set_default_timeout(120_000)
            before = _cpu(process)
            page.goto(f"{base}{path}?{token}", wait_until="commit")
            page.wait_for_selector(shown)
            cpu = _cpu(process) - before
            # By the browser's own clock, from the request of the page.
            wall = page.evaluate("performance.now()") / 1e3
            page.wait_for_load_state("networkidle")
            yield Opened(name, wall, cpu, _cpu(process) - before)
            page.context.close()


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Make the run, open the pages, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="folder of the run, made where it is not there")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    options = parser.parse_args()
    machine = _page.machine()
    with contextlib.ExitStack() as stack:
        side = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        run = _large.make(options.keep or side / "made", "pairwise_ranking", options.items * PAIRS)
        report = [sys.executable, "-m", "orchestrator", "report", str(run)]
        subprocess.run(report, check=True, cwd=_runs.ROOT, capture_output=True)
        driver = stack.enter_context(sync_playwright())
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        found = list(measured(browser, run, side / "state"))
        browser.close()
    lines = [
        "## Pages of the viewer",
        "",
        f"A run of {options.items:,} items and {options.items * PAIRS:,} judgments, each page in a "
        "viewer that has just started, in Chromium.",
        "",
        "| page | first screen, s | CPU s of the viewer | CPU s until all is there |",
        "| :-- | --: | --: | --: |",
        *(
            f"| {one.name} | {one.wall_s:.2f} | {one.cpu_s:.2f} | {one.whole_s:.2f} |"
            for one in found
        ),
        "",
        f"{machine}. Command: `python benchmarks/view_pages.py --items {options.items}`",
    ]
    text = "\n".join(lines)
    print(text)
    if options.write:
        _page.write_section("viewer", text)


if __name__ == "__main__":
    main()
