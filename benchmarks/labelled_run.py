"""Correct the judge of a run by labels of a few pairs, and compare with labels of all pairs.

    python -m benchmarks.labelled_run RUN --method pairwise_ranking --labels 100

The gold of the run stands in for people: the answer that is closer to the reference answer by
ROUGE-L is better. It is known of every pair, so that the truth of the last column is known too.
Prints win rates as Markdown.
"""

import argparse
import csv
import tempfile
from pathlib import Path

import msgspec
import numpy as np

from backends.rouge_l import compared
from orchestrator.analyses._few_labels import HumanLabelsAnalysis
from orchestrator.contracts.context import Context
from orchestrator.interface import api
from orchestrator.interface.labelling import sheet_of
from orchestrator.ranking.human_labels import About, read_key
from orchestrator.ranking.labelled import Config
from orchestrator.report.generic import generic_markdown
from orchestrator.runner.results.tables import all_sources
from orchestrator.tables import Measured, Table

ALL = 10**6


def gold(context: Context) -> dict[tuple[str, str], float]:
    """ROUGE-L F1 of each answer to the reference, by item and model."""
    rows = context.frames["answers"].select("item", "model", "text", "reference")
    found: dict[tuple[str, str], float] = {}
    for item, model, text, reference in rows.iter_rows():
        pair = compared([text or "", reference or ""], "words")
        precision, recall = float(pair.precision[0, 1]), float(pair.recall[0, 1])
        found[item, model] = 2.0 * precision * recall / max(precision + recall, 1e-9)
    return found


def fill(path: Path, closeness: dict[tuple[str, str], float]) -> None:
    """Write the label of each row of a sheet."""
    key = read_key(path)

    def said(about: About) -> str:
        first, second = (closeness[about.item, model] for model in about.models)
        return "tie" if np.isclose(first, second) else "1" if first > second else "2"

    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["code", "label"])
        writer.writerows((code, said(one.about)) for code, one in key.items())


def tables(
    context: Context,
    options: argparse.Namespace,
    n_labels: int,
    closeness: dict[tuple[str, str], float],
) -> list[Table]:
    """The tables of `human_labels` from the labels of one choice of rows."""
    with tempfile.TemporaryDirectory() as folder:
        sheet = sheet_of(context, method=options.method, n_labels=n_labels, seed=options.seed)
        path = Path(folder) / "labels.csv"
        sheet.write(path)
        fill(path, closeness)
        analysis = HumanLabelsAnalysis(Config(labels=str(path), method=options.method))
        return analysis.summarise(context)


def with_truth(few: Table, every: Table, n_names: int) -> Table:
    """The table of few labels with the value of all labels as its last column."""
    place = next(i for i, one in enumerate(every.columns) if one.name == "labels alone")
    truth = {tuple(row[:n_names]): row[place] for row in every.rows}
    column = msgspec.structs.replace(every.columns[place], name="all labels")
    rows = []
    for row in few.rows:
        found = truth[tuple(row[:n_names])]
        rows.append((*row, found.value if isinstance(found, Measured) else found))
    return msgspec.structs.replace(few, columns=(*few.columns, column), rows=tuple(rows))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--method", default="pairwise_ranking")
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    result = api.load(options.run)
    context = all_sources(result.frames, result.settings, run=result.path)
    context = msgspec.structs.replace(context, name="human_labels")
    closeness = gold(context)
    few = tables(context, options, options.labels, closeness)
    every = tables(context, options, ALL, closeness)
    truth = {table.key: table for table in every}
    for table in few:
        is_estimates = table.key == "human_labels"
        print(generic_markdown(with_truth(table, truth[table.key], 1) if is_estimates else table))
        print()


if __name__ == "__main__":
    main()
