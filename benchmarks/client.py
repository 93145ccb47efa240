"""Measure the costs of the client: processor time, memory, resuming, and bytes stored.

`orchestrator run` of whole recipes against a fixed-reply server that answers at once: plan, render,
schedule, send, decode, distribution, durable store, rows, tables. Each figure is measured on
processes of their own and comes from their resource usage (all threads and children); slopes
between two sizes leave out what a call costs once.

    python benchmarks/client.py judge     CPU and bytes of a judgment of one token
    python benchmarks/client.py reply     the same of an answer of 256 tokens
    python benchmarks/client.py memory    peak memory of short and of long runs
    python benchmarks/client.py resume    from the command to the first new request; with --edited
                                          also after changes of the recipe
    python benchmarks/client.py score     CPU and bytes of a score with glass-box features

With --vocabulary smollm2 the replies of judge, reply and score are those that a real chat model
drew from its 49,152 tokens; score has no others. Each prints what was measured beside its target,
and with --write puts it into its section of docs/performance.md. Without a name all are measured.
"""

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import _page, _runs
from benchmarks._runs import Measured

Bodies = Mapping[str, Sequence[Path]]
"""Files with replies, by kind of run."""
Text = tuple[list[str], dict[str, float]]
"""Lines of Markdown, and figures by name."""
# Exit code of a run that a bound stopped, and how many requests it had left.
_STOPPED = 3
LEFT = 400
_PROMPT = "'{{ prompt }} A: {{ answer_a }} B: {{ answer_b }} The better one is '"
TARGETS = {
    "judge": (0.25, 1100.0),
    "reply": (2.5, 14 * 1024.0),
}


class Edit(NamedTuple):
    """A change of a stopped run's recipe.

    Attributes:
        options: Of the command.
        n_requests: That the call then sends.
    """

    options: tuple[str, ...]
    n_requests: int


def verdict(value: float, target: float) -> str:
    """State in words if a target is met."""
    return "met" if value <= target else f"**missed** by {100 * (value / target - 1):.0f} %"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table with numbers to the right."""
    lines = [f"| {' | '.join(row)} |" for row in (head, ["--:"] * len(head), *rows)]
    return [*lines, ""]


def run_once(kind: str, n_requests: int, *, body: str = "", vocabulary: str = "") -> Measured:
    """A whole run in a new folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bodies: Bodies
        if vocabulary:
            bodies = _runs.drawn_bodies(folder)
        else:
            bodies = {kind: [path] for kind, path in _runs.bodies(folder).items()}
        with _runs.served(*bodies[body or kind]) as server:
            _runs.write_recipe(folder, kind, n_requests, server.url)
            return _runs.measure(folder, server)


def slope(small: Measured, large: Measured) -> float:
    """Milliseconds of processor time that one more request takes."""
    return 1000 * (large.cpu_s - small.cpu_s) / (large.n_requests - small.n_requests)


def cost(
    kind: str, title: str, sizes: Sequence[int], options: argparse.Namespace, body: str = ""
) -> Text:
    """Processor time and bytes of a request."""
    pairs = [
        tuple(run_once(kind, size, body=body, vocabulary=options.vocabulary) for size in sizes)
        for _ in range(options.repeat)
    ]
    slopes = [slope(*pair) for pair in pairs]
    cpu, n_bytes = statistics.median(slopes), pairs[-1][-1].n_bytes
    name = "_".join(filter(None, (options.vocabulary, body or kind)))
    figures = {f"{name}_cpu_ms": cpu, f"{name}_bytes": n_bytes}
    cpu_target = bytes_target = ""
    if kind in TARGETS:
        most_cpu, most_bytes = TARGETS[kind]
        cpu_target = f"; target {most_cpu:g}: {verdict(cpu, most_cpu)}"
        bytes_target = f" (target {most_bytes:,.0f}: {verdict(n_bytes, most_bytes)})"
    lines = [
        f"{title}: **{cpu:.3f} ms** of processor time (median of {len(slopes)} slopes, "
        f"{min(slopes):.3f} to {max(slopes):.3f}{cpu_target}), "
        f"**{n_bytes:,.0f} bytes** stored{bytes_target}.",
        "",
        *table(
            ("requests", "CPU s", "wall s", "peak RSS MB", "store B a request"),
            (
                (
                    f"{runs[0].n_requests:,}",
                    f"{statistics.median(run.cpu_s for run in runs):.2f}",
                    f"{statistics.median(run.wall_s for run in runs):.1f}",
                    f"{statistics.median(run.rss_mb for run in runs):.0f}",
                    f"{runs[-1].n_bytes:,.0f}",
                )
                for runs in zip(*pairs, strict=True)
            ),
        ),
    ]  # fmt: skip
    return lines, figures


def judge(options: argparse.Namespace) -> Text:
    """Judgments of one token."""
    sizes = options.sizes or (20_000, 100_000)
    return cost("judge", "A judgment of one token", sizes, options)


def reply(options: argparse.Namespace) -> Text:
    """Answers of 256 tokens."""
    sizes = options.sizes or (1_000, 4_000)
    words = "An answer of 256 tokens, alternatives by their texts as vLLM writes them"
    lines, figures = cost("reply", words, sizes, options, "words")
    ids, more = cost("reply", "The same, alternatives by id", sizes, options)
    return [*lines, *ids], figures | more


def score(options: argparse.Namespace) -> Text:
    """Scores of answers of 256 tokens, with features."""
    words = "A score of 256 tokens, three features of each and one of each attention head"
    return cost("score", words, options.sizes or (1_000, 4_000), options)


def memory(options: argparse.Namespace) -> Text:
    """Peak memory of short and long runs."""
    small, large = options.sizes or (20_000, 200_000)
    rows: list[tuple[str, ...]] = []
    said: list[str] = []
    figures: dict[str, float] = {}
    for kind, scale in (("judge", 1), ("reply", 20)):
        runs = [run_once(kind, size // scale) for size in (small, large)]
        grown, peak = runs[1].rss_mb - runs[0].rss_mb, runs[1].rss_mb
        rows += [(kind, f"{run.n_requests:,}", f"{run.rss_mb:.0f}") for run in runs]
        figures |= {f"{kind}_growth_mb": grown, f"{kind}_peak_mb": peak}
        said.append(
            f"{kind}: **{grown:+.0f} MB** (target 40: {verdict(grown, 40)}), "
            f"peak **{peak:.0f} MB** (target 350: {verdict(peak, 350)})"
        )
    return [
        f"Peak memory of the long run minus that of the short one: {'; '.join(said)}.",
        "",
        *table(("kind", "requests", "peak RSS MB"), rows),
    ], figures


def resume(options: argparse.Namespace) -> Text:
    """From the command to the first new request."""
    rows: list[tuple[str, ...]] = []
    figures: dict[str, float] = {}
    for size, target in zip(options.sizes or (200_000, 1_000_000), (2.0, 5.0), strict=False):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with _runs.served(_runs.bodies(folder)["judge"]) as server:
                _runs.write_recipe(folder, "judge", size + LEFT, server.url)
                stop = ("--set", f"budget.requests={size}")
                first = _runs.measure(folder, server, *stop, ends=(_STOPPED,))
                port = server.port
            (folder / "run").rename(folder / "stopped")
            shutil.copy(folder / "items.jsonl", folder / "moved.jsonl")
            for edit, changed in _edits(size, all_of_them=options.edited and not rows).items():
                took, spread, cpu = _going_on(folder, port, changed, options.repeat)
                figures[f"resume_{size}_{edit}".replace(" ", "_")] = took
                rows.append((f"{first.n_requests:,}", edit, f"{took:.2f}", spread, f"{target:g}",
                             verdict(took, target), f"{cpu:.2f}"))  # fmt: skip
    return [
        f"From the command to the first new request, medians of {options.repeat} calls: "
        + "; ".join(f"{n} outcomes, changed {edit}: {took} s" for n, edit, took, *_ in rows)
        + ".",
        "",
        *table(("outcomes stored", "changed", "wall s", "spread", "target", "", "CPU s"), rows),
    ], figures


def _edits(size: int, *, all_of_them: bool) -> dict[str, Edit]:
    """Options that change the recipe of a stopped run, by what they change."""
    n_items = (size + LEFT) // _runs.PER_ITEM["judge"]
    none = {"nothing": Edit((), LEFT)}
    return none if not all_of_them else {
        **none,
        "path of the dataset": Edit(("--set", "dataset.path=moved.jsonl"), LEFT),
        "number of items": Edit(("--limit", str(n_items - 5)),
                                LEFT - 5 * _runs.PER_ITEM["judge"]),
        "prompt of the judge": Edit(("--set", f"methods.0.prompt={_PROMPT}",
                                     "--set", f"budget.requests={size + LEFT}"), LEFT),
        "name of the method": Edit(("--set", "methods.0.name=other"), LEFT),
    }  # fmt: skip


def _going_on(folder: Path, port: int, edit: Edit, repeat: int) -> tuple[float, str, float]:
    """Wall seconds, their spread, and CPU seconds of calls that go on with the run in `stopped`."""
    times, cpu = zip(*(_resumed(folder, port, edit) for _ in range(repeat)), strict=True)
    spread = f"{min(times):.2f} to {max(times):.2f}"
    return statistics.median(times), spread, statistics.median(cpu)


def _resumed(folder: Path, port: int, edit: Edit) -> tuple[float, float]:
    """Seconds to the first request of one such call: wall, CPU."""
    # The same folder and address: others are a change of the recipe, and of what a model is.
    shutil.rmtree(folder / "run", ignore_errors=True)
    shutil.copytree(folder / "stopped", folder / "run")
    with _runs.served(folder / "judge.json", port=port) as server:
        done = _runs.measure(folder, server, *edit.options, ends=(0, _STOPPED))
    if done.n_requests != edit.n_requests:
        raise SystemExit(f"{done.n_requests} requests where {edit.n_requests} were expected")
    return done.first_s, done.first_cpu_s


SECTIONS: dict[str, tuple[str, Callable[[argparse.Namespace], Text]]] = {
    "judge": ("Client: judgments", judge),
    "reply": ("Client: long answers", reply),
    "memory": ("Client: memory", memory),
    "resume": ("Client: resuming a run", resume),
    "score": ("Client: scores with features", score),
}
# Sections by vocabulary: "" stands for the replies recorded from vLLM.
OFFERED = {"": ("judge", "reply", "memory", "resume"), "smollm2": ("judge", "reply", "score")}


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", metavar="NAME", help=", ".join(SECTIONS))
    parser.add_argument("--sizes", type=int, nargs="+", help="requests of the runs")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--vocabulary", choices=("smollm2",), default="", help="replies of a real chat model"
    )
    parser.add_argument(
        "--edited", action="store_true", help="resume of the first size also after changes"
    )
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    options = parser.parse_args()
    offered = OFFERED[options.vocabulary]
    if unknown := set(options.what) - set(offered):
        parser.error(f"not measured here: {', '.join(unknown)}; give {', '.join(offered)}")
    for name in options.what or offered:
        title, measured = SECTIONS[name]
        if options.vocabulary:
            title += ", a real vocabulary"
        machine = _page.machine()
        lines, figures = measured(options)
        text = "\n".join([*lines, f"{machine}. {_how(name, options)}"])
        print(f"## {title}\n\n{text}\n", flush=True)
        if options.write:
            section = "-".join(filter(None, ("client", name, options.vocabulary)))
            _page.write_section(section, f"## {title}\n\n{text}", figures)


def _how(name: str, options: argparse.Namespace) -> str:
    sizes = f" --sizes {' '.join(map(str, options.sizes))}" if options.sizes else ""
    edited = " --edited" if options.edited and name == "resume" else ""
    vocabulary = f" --vocabulary {options.vocabulary}" if options.vocabulary else ""
    said = f"{name}{vocabulary}{sizes}{edited} --repeat {options.repeat}"
    return f"Command: `python benchmarks/client.py {said}`"


if __name__ == "__main__":
    main()
