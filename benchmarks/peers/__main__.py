"""`orchestrator run` beside its peers: `python -m benchmarks.peers [--full] [--write]`.

All clients send the same number of prompts of the same length to the same server and get the same
replies (`server.py`, `bodies.py`), with log-probabilities asked for in each one's own way
(`drive_*.py`). What is shown is the slope between two sizes of processor time, user and system,
over all threads and children, so that start-up does not count. `--full` takes larger sizes,
repeats, and also the 17 KB replies.

`python -m benchmarks.peers --in-flight [--write]` asks how many requests `orchestrator run` really
keeps open, as the server counts them.
"""

import argparse
import sys
from collections.abc import Sequence

from benchmarks._page import machine, publish
from benchmarks.peers import bodies
from benchmarks.peers.clients import CLIENTS, Ours, Peer
from benchmarks.peers.measure import GROWTH, ClientError, run, slope
from benchmarks.peers.server import LATENCY_S, Server, counting, fixed_replies, opened
from benchmarks.peers.table import Line, compared

IN_FLIGHT = 64
LATE_IN_FLIGHT = 512
LEVELS = (512, 2000)

_ABOUT = """\
## Comparison with other clients

Marginal processor time of the client for a request, in milliseconds: user and system, all threads
and children, as the kernel counts them. It is the slope between a size and {growth} times it, so
start-up is excluded{repeats}. All clients send the same prompts of 3 KB, all different, and get the
same bytes as reply, recorded from vLLM: judge (2.3 KB: 1 token, 20 top log-probs){small}, large
(395 KB: 256 tokens, 20). {in_flight} requests may be open. "Open of N": the maximum number that the
server had open at once when N were allowed and none was answered before.

"""


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="three repeats, twice the sizes")
    names = [client.name for client in CLIENTS]
    parser.add_argument("--only", nargs="+", choices=names, help="measure these clients only")
    parser.add_argument("--in-flight", action="store_true", help="only what is really open")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    return parser


def main() -> None:
    """Measure, print, and write the page where asked to."""
    options = arguments().parse_args()
    figures: dict[str, float] = {}
    if options.in_flight:
        name = "in-flight"
        text, figures = in_flight()
    else:
        clients = [c for c in CLIENTS if not options.only or c.name in options.only]
        name, text = "peers", compare(clients, full=options.full)
    publish(name, text, figures, write=options.write)


def compare(clients: Sequence[Ours | Peer], *, full: bool) -> str:
    """All clients, one after the other."""
    where = machine()
    shown = bodies.BODIES if full else ("judge", "large")
    levels = LEVELS if full else LEVELS[:1]
    files = bodies.served()
    with fixed_replies(files) as server:
        lines = [_measure(client, server, shown, full=full) for client in clients]
    for client, line in zip(clients, lines, strict=True):
        if "install" not in line.faults:
            _open_requests(client, line, levels)
    about = _ABOUT.format(
        growth=GROWTH,
        repeats=", median of 3 (range)" if full else "",
        small=", small (17 KB: 32 tokens, 5)" if full else "",
        in_flight=IN_FLIGHT,
    )
    command = "make bench-peers-full" if full else "make bench-peers"
    table = compared(lines, shown, levels, LATE_IN_FLIGHT)
    return f"{about}{table}\n\n{server.name}; {where}. Command: `{command}`"


def in_flight() -> tuple[str, dict[str, float]]:
    """Measure the requests that `orchestrator run` keeps open, with replies 200 ms or 2 s late."""
    figures: dict[str, float] = {}
    where = machine()
    rows = [
        "| allowed | replies after | most open | median open | requests |",
        "| --: | --: | --: | --: | --: |",
    ]
    ours, files = CLIENTS[0], bodies.served()["judge"]
    for level, latency in ((512, LATENCY_S), (2000, LATENCY_S), (512, 2.0), (2000, 2.0)):
        n = 10 * level
        with counting(files, "--latency", str(latency)) as url:
            run(ours, url, "judge", n, level)
            found = opened(url)
        figures[f"open_of_{level}"] = found["peak"]
        rows.append(
            f"| {level:,} | {latency:g} s | {found['peak']:,.0f} | {found['median']:,.0f} | {n:,} |"
        )
    text = "\n".join(
        [
            "## Requests in flight",
            "",
            "The most requests that a server had open at once, as it counts them every 20 ms, with",
            f"replies after 2 s: {figures['open_of_512']:,.0f} of 512 that are allowed,",
            f"{figures['open_of_2000']:,.0f} of 2,000.",
            "",
            *rows,
            "",
            f"{where}. Command: `python -m benchmarks.peers --in-flight`",
        ]
    )
    return text, figures


def _measure(client: Ours | Peer, server: Server, shown: Sequence[str], *, full: bool) -> Line:
    line = Line(client.title, remark=client.remark)
    if fault := client.install():
        line.faults["install"] = fault
        return line
    line.version = client.installed()
    jobs = [(body, body, server.base(body), IN_FLIGHT) for body in shown]
    jobs.append(("late", "judge", server.base("judge", late=True), LATE_IN_FLIGHT))
    for column, body, url, allowed in jobs:
        n = client.sizes[body] * (2 if full else 1)
        n = max(n, allowed) if column == "late" else n
        try:
            found = slope(client, url, body, n, in_flight=allowed, repeats=3 if full else 1)
        except ClientError as error:
            line.faults[column] = str(error)
            continue
        line.slopes[column] = found
        _say(client, f"{column}: {found.cpu_ms:.3f} ms a request, {found.per_s:,.0f} a second")
    return line


def _open_requests(client: Ours | Peer, line: Line, levels: Sequence[int]) -> None:
    """Measure a client's open requests if none is answered before that many are open."""
    files = bodies.served()["judge"]
    for level in levels:
        with counting(files, "--hold", str(level)) as url:
            try:
                run(client, url, "judge", 2 * level, level)
            except ClientError as error:
                line.faults[f"open of {level:,}"] = str(error)
                continue
            line.opened[level] = int(opened(url)["peak"])
        _say(client, f"{line.opened[level]:,} open of {level:,}")


def _say(client: Ours | Peer, text: str) -> None:
    print(f"{client.name}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
