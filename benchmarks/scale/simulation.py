"""Simulate a run of 100,000,000 requests: time, bytes, memory, and what breaks first.

    python -m benchmarks.scale.simulation [--requests N] [--servers N] [--sizes SMALL LARGE]
                                          [--simulate-only] [--write]

The model. Between two events (256 items of 20 requests end, a server dies, the client is handed on)
the client sends at a constant rate: the least of what its core can do, of the requests that it may
have in flight over their latency, and of what the servers answer. A request costs the measured
processor time, and more the more outcomes the store holds: the filter of known keys is wrong more
often, and fewer of the keys that are sorted into the index together share a page. A server that
dies takes its share of what may be in flight with it, and what it has then is asked again.

The constants are measured: by two small runs of `benchmarks.scale.large`, made now, and by what
other commands have written into docs/performance.md. The model's predictions stand beside the
larger runs that were measured; with --simulate-only the small runs are not made again.
"""

import argparse
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from benchmarks import _page
from benchmarks.scale import large
from benchmarks.scale.model import Constants, Death, Setting, breaks, simulate
from benchmarks.scale.store_growth import pages, wrong

_SECTION: Final = "scale-simulation"


# -- constants -------------------------------------------------------------------------------------


def constants_of(page: str, small: large.Measured, greater: large.Measured) -> Constants:
    """Constants from two small runs, and from the sections of the page.

    Raises:
        SystemExit: If a section is missing.
    """
    figures, held = _page.figures_in(page), points_in(page, "scale-store")
    runs = points_in(page, "scale-large")
    missing = {"resume_200000_nothing", "resume_1000000_nothing"} - figures.keys()
    if missing or not held or not runs:
        raise SystemExit("docs/performance.md lacks figures: run `make bench-cluster ARGS=--write`")
    request_s = (greater.cpu_s - small.cpu_s) / (greater.n_requests - small.n_requests)
    resumed_s = (figures["resume_1000000_nothing"] - figures["resume_200000_nothing"]) / 800_000
    wrong_s, page_s, page_bytes = _growth(held)
    # Memory grows too little to be seen in small runs.
    sending = np.polyfit([one["n"] for one in runs], [one["rss_mb"] for one in runs], 1)
    results = [one["peak_mb"] - one["rss_mb"] for one in runs]
    made = np.polyfit([one["n"] for one in runs], results, 1)
    return Constants(
        start_s=small.cpu_s - request_s * small.n_requests,
        request_s=request_s,
        wrong_s=wrong_s,
        page_s=page_s,
        page_bytes=page_bytes,
        request_bytes=(greater.n_bytes * greater.n_requests - small.n_bytes * small.n_requests)
        / (greater.n_requests - small.n_requests),
        sending_mb=float(sending[1]),
        sending_bytes=float(sending[0]) * 2**20,
        results_mb=float(made[1]),
        results_bytes=float(made[0]) * 2**20,
        resume_s=figures["resume_200000_nothing"] - 200_000 * resumed_s,
        resumed_s=resumed_s,
    )


def _growth(held: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Seconds of a wrong answer and of a page, and bytes of a page, by least squares."""
    first, *others = held
    extra = [1e-6 * (one[1] - first[1]) for one in others]
    laws = np.array([[wrong(one[0]), pages(one[0])] for one in others])
    (wrong_s, page_s), *_ = np.linalg.lstsq(laws, extra)
    written = [(one[2] - first[2]) / pages(one[0]) for one in others]
    return max(float(wrong_s), 0.0), max(float(page_s), 0.0), float(np.mean(written))


def section_of(page: str, name: str) -> str:
    """Text of a section of the page; empty where it has none."""
    return page.partition(f"<!-- begin: {name} -->")[2].partition(f"<!-- end: {name} -->")[0]


def points_in(page: str, name: str) -> list[Any]:
    """Figures that a section keeps for the simulation."""
    found = re.search(r"<!-- points: (.*) -->", section_of(page, name))
    return json.loads(found.group(1)) if found else []


# -- the section of the page -----------------------------------------------------------------------


def beside(runs: Sequence[dict[str, float]], constants: Constants) -> list[str]:
    """Lines of a table: predictions beside what was measured."""
    lines = [
        "| requests | CPU s, predicted | measured | store MB, predicted | measured | "
        "memory while sending MB, predicted | measured | at the end MB, predicted | measured | "
        "sending s, predicted | whole command s, measured |",
        "| --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for run in runs:
        found = simulate(Setting(round(run["n"])), constants)
        lines.append(
            f"| {run['n']:,.0f} | {found.client_cpu_s:.1f} | {run['cpu_s']:.1f} | "
            f"{found.n_bytes / 1e6:.1f} | {run['bytes'] / 1e6:.1f} | "
            f"{found.sending_mb:.0f} | {run['rss_mb']:.0f} | "
            f"{found.results_mb:.0f} | {run['peak_mb']:.0f} | "
            f"{found.sending_s:.0f} | {run['wall_s']:.0f} |"
        )
    return lines


def row(setting: Setting, constants: Constants) -> list[str]:
    """Lines of a table: a simulated run."""
    found = simulate(setting, constants)
    return [
        "| sending, h | requests/s | client CPU of the last request, ms | "
        "store GB | written GB | memory while it sends, MB | memory at the end, GB | "
        "to resume, s | asked again |",
        "| --: | --: | --: | --: | --: | --: | --: | --: | --: |",
        f"| {found.sending_s / 3600:.1f} | "
        f"{setting.n / found.sending_s:,.0f} | {found.cost_ms:.3f} | "
        f"{found.n_bytes / 1e9:.0f} | {found.written_bytes / 1e9:,.0f} | "
        f"{found.sending_mb:,.0f} | {found.results_mb / 1024:.1f} | {found.resume_s:.0f} | "
        f"{found.n_again:.0f} |",
    ]


def text_of(page: str, constants: Constants, setting: Setting, command: str, machine: str) -> str:
    """The section of the page."""
    simulated = msgspec.structs.replace(setting, deaths=(Death(600.0, 60.0), Death(3600.0, 60.0)))
    named = msgspec.structs.asdict(constants)
    limits = [f"* {float(f'{n:.2g}'):,.0f} requests: {what}." for n, what in breaks(constants)]
    runs = points_in(page, "scale-large")
    off = max(
        abs(simulate(Setting(round(run["n"])), constants).client_cpu_s / run["cpu_s"] - 1)
        for run in runs
    )
    return "\n".join(
        [
            f"## A run of {setting.n:,} requests, simulated",
            "",
            "`benchmarks/scale/simulation.py` states the model and simulates limits and "
            "the growth of the stores event by event. Below are its predictions beside measured "
            "runs. Its times are for a client with a core of its own; the measured runs shared "
            "two cores with their servers and other programs. Memory is fitted to these runs. "
            f"Processor time is off by at most {100 * off:.0f} %.",
            "",
            *beside(runs, constants),
            "",
            f"{setting.n_servers} servers that answer after {setting.latency_s:g} s and take "
            f"{setting.server_rate:g} requests a second each (assumed), two of which die; the "
            f"client has a core, and its job hands itself on every "
            f"{setting.hand_over_every_s / 3600:g} h ({setting.hand_over_s:.1f} s each):",
            "",
            *row(simulated, constants),
            "",
            "What breaks first:",
            "",
            *limits,
            "",
            "The constants of the store's growth are fitted to [stores of many outcomes]"
            "(#stores-of-many-outcomes), the others are measured; a comment of this page has them.",
            "",
            f"{machine}. Command: `{command}`",
            "",
            f"<!-- constants: {json.dumps(named)} -->",
        ]
    )


def main() -> None:
    """Measure the small runs, simulate, print, and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=100_000_000)
    parser.add_argument("--servers", type=int, default=64)
    parser.add_argument(
        "--sizes", type=int, nargs=2, default=[4_000, 16_000], help="requests of the small runs"
    )
    parser.add_argument(
        "--simulate-only", action="store_true", help="with the constants that the page has"
    )
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    options = parser.parse_args()
    machine, page = _page.machine(), _page.PAGE.read_text(encoding="utf-8")
    if options.simulate_only:
        known = re.search(r"<!-- constants: (.*) -->", section_of(page, _SECTION))
        if known is None:
            raise SystemExit("docs/performance.md has no constants; leave --simulate-only out")
        constants = msgspec.convert(json.loads(known.group(1)), Constants)
    else:
        runs = []
        for size in options.sizes:
            with tempfile.TemporaryDirectory() as name:
                runs.append(large.measure(size, 16, 0.1, Path(name)))
        constants = constants_of(page, *runs)
    setting = Setting(
        options.requests,
        n_servers=options.servers,
        latency_s=0.2,
        server_rate=330.0,
        hand_over_every_s=4 * 3600.0,
        hand_over_s=_page.figures_in(page).get("hand_over_s", 0.0),
    )
    text = text_of(page, constants, setting, "python -m benchmarks.scale.simulation", machine)
    _page.publish(_SECTION, text, {}, write=options.write)


if __name__ == "__main__":
    main()
