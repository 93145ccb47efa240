"""Measure the prompt tokens that a real vLLM computes anew, against the least possible.

    python benchmarks/prefix.py [--items 20] [--blocks 320] [--write]

`orchestrator run` of a pairwise recipe (both orders, four candidates) and of a pointwise one, on
one vLLM with prefix caching whose memory for keys and values is cut down to so many blocks that it
holds half of the items: as a large model's on a long run. Computed: the server's
own counters, prompt tokens minus cached ones. Unavoidable: the tokens of the radix tree of the
distinct prompts that were sent, block by block, as only whole blocks are shared. Beside it the same
requests in random order, as many at a time.
"""

import argparse
import asyncio
import random
import tempfile
from pathlib import Path

from benchmarks._page import machine, publish
from benchmarks._vllm_runs import (
    BLOCK,
    METHODS,
    Sent,
    counted,
    judge_server,
    recorded,
    run,
    send_again,
    token_ids,
    write_recipe,
)
from launch import vllm as launch_kind
from orchestrator.errors import LaunchError
from orchestrator.serving import RunningServer

AT_A_TIME = 32


def unavoidable(prompts: list[tuple[int, ...]], block: int = BLOCK) -> int:
    """Tokens of the radix tree of distinct prompts, of which whole blocks are shared.

    The last token of a prompt is always computed, since its successor is asked for: where a prompt
    ends with a block, that block is computed although others may have had it.
    """
    tree: set[tuple[int, ...]] = set()
    tokens = 0
    for prompt in dict.fromkeys(prompts):
        for end in range(block, len(prompt) + 1, block):
            if prompt[:end] not in tree:
                tree.add(prompt[:end])
                tokens += block
            elif end == len(prompt):
                tokens += block
        tokens += len(prompt) % block
    return tokens


async def measure(server: RunningServer, method: str, n_items: int) -> tuple[str, float]:
    """A line of the table, and computed ÷ unavoidable."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = write_recipe(folder, server, method, n_items)
        before = await counted(server)
        with recorded() as sent:
            fixed = f"models.judge.limits.max_in_flight={AT_A_TIME}"
            await run(recipe, folder / "run", fixed)
        after = await counted(server)
    # What a connection asks to see whether the server is what it says is no part of the recipe.
    asked = [
        one for one in sent if one.computes and (b"Task:" in one.body or b'"prompt":[' in one.body)
    ]
    computed = after.computed - before.computed
    shuffled = asked.copy()
    random.Random(2).shuffle(shuffled)  # noqa: S311 (an order)
    at_random = await _computed(server, shuffled, f"{method} at random")
    least = unavoidable(await token_ids(server, asked))
    total = after.prompt - before.prompt
    ratio = computed / least
    line = (
        f"| {method} | {len(asked):,} | {total:,} | {least:,} | {computed:,} "
        f"| **{ratio:.3f}** | {at_random / least:.3f} |"
    )
    return line, ratio


async def _computed(server: RunningServer, sent: list[Sent], salt: str) -> int:
    before = await counted(server)
    await send_again(server, sent, AT_A_TIME, salt)
    return (await counted(server)).computed - before.computed


async def table(n_items: int, n_blocks: int) -> tuple[str, dict[str, float]]:
    """All recipes, and the figure of the worst."""
    async with judge_server("--num-gpu-blocks-override", str(n_blocks)) as server:
        measured = [await measure(server, method, n_items) for method in METHODS]
    lines, ratios = zip(*measured, strict=True)
    text = "\n".join(
        [
            "## Prompt tokens computed, on real vLLM",
            "",
            f"`bundled:judge` on vLLM's CPU build, prefix caching on, {n_blocks} blocks of {BLOCK} "
            f"tokens for keys and values, {AT_A_TIME} requests at a time, {n_items} items, 4 "
            "candidates whose answers are given. Unavoidable: the radix tree of the distinct "
            "prompts that were sent, in whole blocks. Computed: at most "
            f"{max(ratios):.3f} times as many.",
            "",
            "| recipe | requests | prompt tokens | unavoidable | computed | ÷ unavoidable "
            "| the same at random |",
            "| --- | --: | --: | --: | --: | --: | --: |",
            *lines,
            "",
            f"{machine()} Command: `python benchmarks/prefix.py --items {n_items} "
            f"--blocks {n_blocks}`",
        ]
    )
    return text, {"prefix_ratio": max(ratios)}


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=320)
    parser.add_argument("--write", action="store_true", help="put it into docs/performance.md")
    options = parser.parse_args()
    try:
        launch_kind.Launch(launch_kind.Config()).find_command()
    except LaunchError as error:
        print(f"not measured: {error}")
        return
    text, figures = asyncio.run(table(options.items, options.blocks))
    publish("prefix", text, figures, write=options.write)


if __name__ == "__main__":
    main()
