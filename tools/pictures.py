"""Makes the pictures in docs/images: the ranking of a run, and the live display.

    python tools/pictures.py --run runs/demo            ranking.svg: the first screen of that run
    python tools/pictures.py --run runs/NAME --table probdiff [--name NAME] [--to docs/images]
                                                        probdiff.svg: the tables of these keys
    python tools/pictures.py --events events.jsonl      live.svg, from a run's JSON display
    python tools/pictures.py --sample                   ranking_sample.svg, live_sample.svg

`orchestrator run RECIPE --display json 2> events.jsonl` writes such events. Pictures of simulated
data have `sample` in their names. PNG files come beside them where rsvg-convert or chromium is
installed.
"""

import argparse
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import combinations, takewhile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from rich.console import Console, Group, RenderableType
from rich.terminal_theme import TerminalTheme

import orchestrator
from orchestrator.contracts.method import schema_of
from orchestrator.methods.pairwise_ranking import Kind as PairwiseRanking
from orchestrator.ranking.analysis import RankingAnalysis, analyse_ranking
from orchestrator.ranking.judged import tabulate
from orchestrator.records import Standing
from orchestrator.report.brief_text import brief_text
from orchestrator.report.generic import generic_table
from orchestrator.report.live import frame
from orchestrator.report.progress import (
    ModelProgress,
    Pace,
    Progress,
    RankingProgress,
)
from orchestrator.report.rankings import tables_of
from orchestrator.tables import Table

FOLDER = Path(__file__).parents[1] / "docs" / "images"
WIDTH = 100
SCALE = 2
# Of rich's drawings: the width of a character, and one piece of text.
_CELL = 12.2
_TEXT = re.compile(
    r'<text (?P<style>class="[^"]*") x="(?P<x>[\d.]+)" (?P<y>y="[\d.]+") '
    r'textLength="(?P<length>[\d.]+)"(?P<rest>[^>]*)>(?P<words>[^<]*)</text>'
)

THEME = TerminalTheme(
    (17, 20, 26),
    (212, 216, 224),
    [
        (40, 44, 52),
        (240, 113, 120),
        (134, 200, 120),
        (232, 190, 106),
        (110, 160, 240),
        (190, 140, 230),
        (92, 190, 200),
        (212, 216, 224),
    ],
)

# Rich's own form loads a font from elsewhere; a picture in a repository needs nothing from there.
FORM = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" \
xmlns="http://www.w3.org/2000/svg">
    <style>
    .{unique_id}-matrix {{
        font-family: "DejaVu Sans Mono", Menlo, Consolas, "Liberation Mono", monospace;
        font-size: {char_height}px;
        line-height: {line_height}px;
        font-variant-east-asian: full-width;
    }}
    .{unique_id}-title {{ font-size: 18px; font-family: sans-serif; }}
    {styles}
    </style>
    <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
    </defs>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})"
       clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
</svg>
"""


def main() -> int:
    """Make the pictures that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_formatter)
    parser.add_argument("--run", type=Path, help="run directory")
    parser.add_argument("--events", type=Path, help="events of --display json")
    parser.add_argument("--at", type=float, default=30.0, help="seconds into the events")
    parser.add_argument("--sample", action="store_true", help="simulated data")
    parser.add_argument("--whole", action="store_true", help="the whole report, not its brief")
    parser.add_argument("--table", action="append", default=[], help="key of a table of the run")
    parser.add_argument("--name", help="name of the picture; default: the first key")
    parser.add_argument("--to", type=Path, default=FOLDER, help="folder")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    if options.run is not None:
        result = orchestrator.load(options.run)
        title = f"orchestrator report {options.run.name}"
        chosen = [table for table in result.tables if table.key in options.table]
        if missing := set(options.table) - {table.key for table in chosen}:
            sys.exit(f"{options.run} has no table {', '.join(sorted(missing))}")
        if chosen:
            name = options.name or options.table[0].replace(".", "_")
            _draw(options.to / name, Group(*map(generic_table, _warned_once(chosen))), title)
            return 0
        for number, found in enumerate(result.rankings):
            name = "ranking" if number == 0 else f"ranking_{number + 1}"
            first = brief_text(result.brief) if number == 0 and not options.whole else None
            tables = Group(*map(generic_table, tables_of(found, result.exact_match)))
            _draw(options.to / name, first or tables, title)
    if options.events is not None:
        events = (json.loads(line) for line in options.events.read_text("utf-8").splitlines())
        _draw(options.to / "live", _live(events, options.at), "orchestrator run")
    if options.sample:
        tables = Group(*map(generic_table, tables_of(_sample_ranking())))
        _draw(options.to / "ranking_sample", tables, "simulated data")
        _draw(options.to / "live_sample", _live(_sample_events(), options.at), "simulated data")
    return 0


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog)


def _warned_once(tables: Iterable[Table]) -> Iterator[Table]:
    """Tables of which a warning that an earlier one has too only points there."""
    said: set[str] = set()
    for table in tables:
        if table.warning in said:
            yield msgspec.structs.replace(table, warning="The same warning as above.")
        else:
            yield table
        said |= {table.warning} - {""}


def _draw(path: Path, picture: RenderableType, title: str) -> None:
    console = Console(
        file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="standard"
    )
    console.print(picture)
    svg = console.export_svg(title=title, theme=THEME, code_format=FORM, unique_id=path.name)
    target = path.with_suffix(".svg")
    text = "\n".join(line.rstrip() for line in _TEXT.sub(_without_blanks, svg).splitlines())
    target.write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(f"{target}\n")
    _to_png(target)


def _without_blanks(found: re.Match[str]) -> str:
    """A text without blanks at its ends: viewers disagree on what these are worth."""
    words = found["words"].replace("&#160;", " ")
    kept = words.strip(" ")
    if not kept:
        return ""
    n_left = len(words) - len(words.lstrip(" "))
    x = float(found["x"]) + n_left * _CELL
    length = float(found["length"]) - (len(words) - len(kept)) * _CELL
    kept = kept.replace(" ", "&#160;")
    place = f'x="{x:g}" {found["y"]} textLength="{length:g}"'
    return f"<text {found['style']} {place}{found['rest']}>{kept}</text>"


def _to_png(svg: Path) -> None:
    png = svg.with_suffix(".png")
    if shutil.which("rsvg-convert"):
        command = ["rsvg-convert", "--zoom", str(SCALE), "--output", str(png), str(svg)]
    elif browser := shutil.which("chromium") or shutil.which("google-chrome"):
        size = f"--window-size={WIDTH * 13},900"
        plain = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        command = [browser, *plain, f"--screenshot={png}", size, svg.resolve().as_uri()]
    else:
        return
    subprocess.run(command, check=True, timeout=120)
    sys.stdout.write(f"{png}\n")


def _live(events: Iterator[dict[str, Any]], at_s: float) -> RenderableType:
    """The frame at a moment of a run."""
    title, pace, last = "", Pace(), None
    for event in takewhile(lambda event: event.get("elapsed_s", 0.0) <= at_s, events):
        if event["event"] == "start":
            title = event["title"]
        elif event["event"] == "progress":
            last = msgspec.convert(event, Progress)
            pace.add(last)
    if last is None:
        raise SystemExit("these events have no progress")
    return frame(title, last, pace)


def _sample_ranking() -> RankingAnalysis:
    """Simulated judgments, analysed as real ones are."""
    rng = np.random.default_rng(7)
    strengths = {"expert": 1.3, "apprentice": 0.2, "journeyman": 0.1, "novice": -1.2}
    rows = []
    for item in range(160):
        quality = {name: s + 0.9 * rng.normal() for name, s in strengths.items()}
        for a, b in combinations(strengths, 2):
            noise = 0.3 * rng.normal()
            both = [1 / (1 + np.exp(quality[b] - quality[a] + noise + s)) for s in (-0.25, 0.25)]
            failed = b == "novice" and rng.random() < 0.02
            rows.append(_sample_row(f"i{item:03}", (a, b), both, failed=failed, rng=rng))
    kinds = {"str": pl.String(), "f64": pl.Float64(), "bool": pl.Boolean()}
    schema = {
        name: kinds.get(kind, pl.List(pl.Float64()))
        for name, kind in schema_of(PairwiseRanking).items()
    }
    judgments = pl.DataFrame(rows, schema=schema, orient="row")
    table = tabulate([judgments], len(judgments))
    return analyse_ranking(table, judge="judge", confidence_level=0.95)


def _sample_row(
    item: str, pair: tuple[str, str], both: list[float], *, failed: bool, rng: np.random.Generator
) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(schema_of(PairwiseRanking))
    row |= {"item": item, "model_a": pair[0], "model_b": pair[1], "judge": "judge"}
    if failed:
        return row | {"status": "failed", "cause": "timeout", "message": "no reply in 600 s"}
    prefer = sum(both) / 2
    return row | {
        "coverage_ab": 1 - 0.1 * rng.random(),
        "coverage_ba": 1 - 0.1 * rng.random(),
        "prefer_a_ab": both[0],
        "prefer_a_ba": both[1],
        "prefer_a": prefer,
        "mean_pre": 2 * prefer - 1,
        "mode_pre": 0.0 if abs(prefer - 0.5) < 0.05 else float(np.sign(prefer - 0.5)),
        "exact": True,
        "same_text": False,
        "status": "ok",
    }


def _sample_events() -> Iterator[dict[str, Any]]:
    yield {"event": "start", "title": "pairwise_ranking → runs/pairwise_ranking"}
    for second in range(120):
        models = (
            _sample_model("judge", "ready", (62, 64, 118), 24 * second, (9000 * second, 0)),
            _sample_model(
                "expert", "ready", (12, 16, 0), 9 * second, (700 * second, 1400 * second)
            ),
            _sample_model("apprentice", "down", (0, 16, 37), 60, (4200, 7300)),
            _sample_model("novice", "starting", (0, 16, 12), 0, (0, 0)),
        )
        progress = Progress(
            run_dir="runs/pairwise_ranking",
            elapsed_s=float(second),
            units_total=3000,
            units_stored=840,
            units_done=12 * second,
            units_failed=second // 10,
            units_open=64,
            units_aside=12,
            requests_sent=35 * second,
            asks_found=1680,
            asks_joined=212,
            models=models,
            failures={"timeout": second // 10} if second >= 10 else {},
            rankings=_sample_standings(second),
        )
        yield {"event": "progress", **msgspec.to_builtins(progress)}


def _sample_standings(second: int) -> tuple[RankingProgress, ...]:
    """Intervals that shrink as prompts come."""
    width = 300 / max(1, second) ** 0.5
    strengths = (("expert", 1120.0), ("apprentice", 1010.0), ("novice", 870.0))
    standings = tuple(Standing(name, at, width, 2 * second) for name, at in strengths)
    return (RankingProgress("pairwise_ranking", 2 * second, standings),) if second > 5 else ()


def _sample_model(
    name: str, state: str, now: tuple[int, int, int], done: int, tokens: tuple[int, int]
) -> ModelProgress:
    retried = 14 if state == "down" else 0
    return ModelProgress(name, state, *now, done, 0, retried, *tokens)


if __name__ == "__main__":
    sys.exit(main())
