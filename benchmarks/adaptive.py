"""A whole recipe on real vLLM with a limit that is found, against the best limit that is fixed.

    python benchmarks/adaptive.py [--items 100] [--fixed 16 64 256] [--repeat 1] [--write]

`orchestrator.run` of the pairwise recipe (four candidates whose answers are given, both orders, so
that one vLLM answers everything) with `limits.max_in_flight: auto`; then the very requests that it
sent, by a bare loop, so many at a time, with nothing of them in the cache. The ratio is that of the
run's wall time, from the first line to the last, to the fastest of these loops; beside it the time
that the run itself counts, without reading the recipe and the tables at the end, and the processor
time of both, which depends less on what else the machine does. What a run asks of vLLM's tokenizer
(each prompt once) is not among these requests and so is charged to it. A small run goes before, for
the first requests of a vLLM that has just started take seconds, whoever sends them.
"""

import argparse
import asyncio
import statistics
import tempfile
from pathlib import Path

from _page import machine, publish
from _vllm_runs import (
    Processors,
    judge_server,
    processors,
    recorded,
    run,
    send_again,
    write_recipe,
)

from launch import vllm as launch_kind
from orchestrator.errors import LaunchError

_WARM_UP_ITEMS = 3


async def table(n_items: int, fixed: list[int], repeat: int) -> tuple[str, dict[str, float]]:
    """All of it, and its figure."""
    lines, ratios = [], []
    async with judge_server() as server:
        with tempfile.TemporaryDirectory() as name:
            warm_up = write_recipe(Path(name), server, "pairwise", _WARM_UP_ITEMS, seed=-1)
            await run(warm_up, Path(name) / "run")
        for turn in range(repeat):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                # What the server computed for an earlier turn must not be in its cache.
                recipe = write_recipe(folder, server, "pairwise", n_items, seed=turn)
                before = processors(server)
                with recorded() as sent:
                    wall_s, status = await run(recipe, folder / "run")
                used = processors(server).since(before)
            loops, used_by = {}, {}
            for n in fixed:
                before = processors(server)
                loops[n] = await send_again(server, sent, n, f"{turn} {n}")
                used_by[n] = processors(server).since(before)
            best = min(loops, key=lambda n: loops[n])
            (judge,) = (model for model in status["models"] if model["name"] == "judge")
            limits = judge["limits"]
            ratios.append(wall_s / loops[best])
            lines.append(
                f"| {len(sent):,} | {wall_s:.1f} | {status['elapsed_s']:.1f} | "
                f"{limits['first']} → {judge['limit']} in {limits['n_changes']} | "
                f"{', '.join(f'{n}: {seconds:.1f}' for n, seconds in loops.items())} | "
                f"**{wall_s / loops[best]:.3f}** | {status['elapsed_s'] / loops[best]:.3f} | "
                f"{_each(used, len(sent))} | {_each(used_by[best], len(sent))} |"
            )
    ratio = statistics.median(ratios)
    text = "\n".join(
        [
            "## Limits that are found, on real vLLM",
            "",
            f"`bundled:judge` on vLLM's CPU build. Median ratio **{ratio:.3f}**"
            ", target 1.05. Changes are those of the limit. Processor time is that of client / "
            "vLLM's HTTP server / its engine, in ms a request.",
            "",
            "| requests | run, wall s | its own count, s | limit, changes | loops: limit, s "
            "| wall ÷ best | own count ÷ best | processors, run | processors, best loop |",
            "| --: | --: | --: | --- | --- | --: | --: | --- | --- |",
            *lines,
            "",
            f"{machine()} Command: `python benchmarks/adaptive.py --items {n_items} --fixed "
            f"{' '.join(map(str, fixed))} --repeat {repeat}`",
        ]
    )
    return text, {"wall_ratio": ratio}


def _each(used: Processors, n: int) -> str:
    return " / ".join(f"{1e3 * seconds / n:.2f}" for seconds in used)


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument("--fixed", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="put it into docs/performance.md")
    options = parser.parse_args()
    try:
        launch_kind.find_command(launch_kind.Config())
    except LaunchError as error:
        print(f"not measured: {error}")
        return
    text, figures = asyncio.run(table(options.items, options.fixed, options.repeat))
    publish("adaptive", text, figures, write=options.write)


if __name__ == "__main__":
    main()
