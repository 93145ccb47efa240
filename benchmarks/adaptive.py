"""A whole recipe on real vLLM with a limit that is found, against the best limit that is fixed.

    python benchmarks/adaptive.py [--items 150] [--fixed 64 128 256] [--repeat 5] [--write]

`orchestrator.run` of the pairwise recipe (four candidates whose answers are given, both orders, so
that one vLLM answers everything) with `limits.max_in_flight: auto`; then the very requests that it
sent, by a bare loop, so many at a time, with nothing of them in the cache. The same thing takes
10 % more or less from one time to the next, so runs and loops take turns, and the ratio is that of
medians: of the run's wall time, from the first line to the last, to the loop that is fastest by its
own. (The fastest of all loops would be the luckiest.) A run asks vLLM's tokenizer for the ids of
each prompt; a loop that already has them needs not, so the ratio to a loop without these requests
stands beside it, and the processor time of all three. A small turn goes before, for the first
requests of a vLLM that has just started take seconds, whoever sends them.
"""

import argparse
import asyncio
import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks._page import machine, publish
from benchmarks._vllm_runs import (
    Processors,
    Sent,
    judge_server,
    processors,
    recorded,
    run,
    send_again,
    write_recipe,
)
from launch import vllm as launch_kind
from orchestrator.errors import LaunchError
from orchestrator.serving import RunningServer

_WARM_UP_ITEMS = 3


class Turn(NamedTuple):
    """A run and the loops after it; seconds, by requests at a time."""

    n_sent: int
    wall_s: float
    used: Processors
    limits: str
    same: dict[int, float]
    used_by_same: Processors
    bare_s: float
    used_by_bare: Processors


async def table(n_items: int, fixed: list[int], repeat: int) -> tuple[str, dict[str, float]]:
    """All of it, and its figure."""
    async with judge_server() as server:
        await _measure(server, _WARM_UP_ITEMS, fixed[:1], -1)
        turns = [await _measure(server, n_items, fixed, number) for number in range(repeat)]
    wall_s = statistics.median(turn.wall_s for turn in turns)
    ratio = wall_s / _best([turn.same for turn in turns])
    bare = wall_s / statistics.median(turn.bare_s for turn in turns)
    text = "\n".join(
        [
            "## Adaptive limits, on real vLLM",
            "",
            f"`bundled:judge` on vLLM's CPU build. Ratio of medians **{ratio:.3f}**, target 1.05; "
            f"to a loop that is spared `/tokenize` {bare:.3f}.",
            "",
            "| judgments | run, wall s | limit → its end, in changes "
            f"| loops of the same requests: limit, s | {fixed[len(fixed) // 2]} without "
            "`/tokenize`, s | CPU ms a judgment of client / HTTP server / engine: run | best loop "
            "| loop without |",
            "| --: | --: | --- | --- | --: | --- | --- | --- |",
            *map(_line, turns),
            "",
            f"{machine()} Command: `python benchmarks/adaptive.py --items {n_items} --fixed "
            f"{' '.join(map(str, fixed))} --repeat {repeat}`",
        ]
    )
    return text, {"wall_ratio": ratio, "wall_ratio_ids_known": bare}


def _best(loops: list[dict[int, float]]) -> float:
    """Of the number at a time that is fastest by the median; seconds."""
    return min(statistics.median(turn[n] for turn in loops) for n in loops[0])


async def _measure(server: RunningServer, n_items: int, fixed: list[int], number: int) -> Turn:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # What the server computed for an earlier turn must not be in its cache.
        recipe = write_recipe(folder, server, "pairwise", n_items, seed=number)
        before = processors(server)
        with recorded() as sent:
            wall_s, status = await run(recipe, folder / "run")
        used = processors(server).since(before)
    (judge,) = (model for model in status["models"] if model["name"] == "judge")
    limits = judge["limits"]
    computed = [one for one in sent if one.computes]
    same, used_by_same = await _loops(server, sent, fixed, f"{number} same")
    middle = fixed[len(fixed) // 2]
    bare, used_by_bare = await _loops(server, computed, [middle], f"{number} bare")
    return Turn(
        len(computed),
        wall_s,
        used,
        f"{limits['first']} → {judge['limit']} in {limits['n_changes']}",
        same,
        used_by_same,
        bare[middle],
        used_by_bare,
    )


async def _loops(
    server: RunningServer, sent: list[Sent], fixed: list[int], salt: str
) -> tuple[dict[int, float], Processors]:
    """Wall seconds of a loop at each number of requests at a time, and what the fastest used."""
    loops, used = {}, {}
    for n in fixed:
        before = processors(server)
        loops[n] = await send_again(server, sent, n, f"{salt} {n}")
        used[n] = processors(server).since(before)
    return loops, used[min(loops, key=lambda n: loops[n])]


def _line(turn: Turn) -> str:
    cells = (
        f"{turn.n_sent:,}",
        f"{turn.wall_s:.1f}",
        turn.limits,
        _seconds(turn.same),
        f"{turn.bare_s:.1f}",
        *(_each(used, turn.n_sent) for used in (turn.used, turn.used_by_same, turn.used_by_bare)),
    )
    return f"| {' | '.join(cells)} |"


def _seconds(loops: dict[int, float]) -> str:
    return ", ".join(f"{n}: {seconds:.1f}" for n, seconds in loops.items())


def _each(used: Processors, n: int) -> str:
    return " / ".join(f"{1e3 * seconds / n:.2f}" for seconds in used)


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=150)
    parser.add_argument("--fixed", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put it into docs/performance.md")
    options = parser.parse_args()
    try:
        launch_kind.Launch(launch_kind.Config()).find_command()
    except LaunchError as error:
        print(f"not measured: {error}")
        return
    text, figures = asyncio.run(table(options.items, options.fixed, options.repeat))
    publish("adaptive", text, figures, write=options.write)


if __name__ == "__main__":
    main()
