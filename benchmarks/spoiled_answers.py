"""Right answers that models spoil when they rewrite them, in a run of ProbDiff with references.

    orchestrator run recipes/probdiff.yaml
    python -m benchmarks.spoiled_answers runs/probdiff

A right answer is spoiled if its rewriting is not the reference. Of each model, also the mean d of
what it spoils, wrong answers that it keeps, and Spearman's correlation of d with right answers.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

import orchestrator
from orchestrator.statistics.association import association


def joined(run: Path) -> pl.DataFrame:
    """One row a text that has a d: whether it is unchanged, is_right and still_right."""
    frames = orchestrator.load(run).frames
    at = ["item", "model", "turn"]
    rows = frames["probdiff"].drop_nulls("d").select(*at, "d", "unchanged", "rewriting")
    known = frames["answers"].select(
        *at, "reference", is_right=pl.col("exact_match").cast(pl.Boolean)
    )
    same = pl.col("rewriting").str.strip_chars() == pl.col("reference").str.strip_chars()
    return rows.join(known, on=at, how="inner").with_columns(still_right=same)


def lines(rows: pl.DataFrame) -> Iterator[str]:
    """The table, line by line."""
    yield "| model | texts | right | spoiled | mean d of these | wrong and kept | Spearman |"
    yield f"|{'---|' * 7}"
    for (model,), mine in rows.group_by("model", maintain_order=True):
        right = mine.filter("is_right")
        spoiled = right.filter(~pl.col("still_right"))
        kept = mine.filter(~pl.col("is_right") & pl.col("unchanged"))
        d, is_right = (mine[name].cast(pl.Float64).to_numpy() for name in ("d", "is_right"))
        rho = association(d, is_right, "spearman") if np.ptp(is_right) else None
        shown = "-" if rho is None else f"{rho:.2f}"
        mean = "-" if spoiled.is_empty() else f"{np.mean(spoiled['d'].to_numpy()):.2f}"
        cells = (model, len(mine), len(right), len(spoiled), mean, len(kept), shown)
        yield f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    for line in lines(joined(parser.parse_args().run)):
        print(line)


if __name__ == "__main__":
    main()
