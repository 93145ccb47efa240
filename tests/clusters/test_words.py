"""Reports say in every format how many clusters stand behind the prompts."""

import io

import polars as pl
import pytest
from rich.console import Console

from orchestrator.clusters import Clusters
from orchestrator.ranking.analysis import analyse_ranking
from orchestrator.ranking.judged import tabulate
from orchestrator.report.generic import generic_json
from orchestrator.report.html.page import all_figures
from orchestrator.report.html.ranked import ranking
from orchestrator.report.words import ranking_json
from orchestrator.runner.results.tables import all_sources, summarise
from orchestrator.tables import Column, Measured, cell_text
from tests.clusters.copied import copied
from tests.report import hostile
from tests.report.samples import ranking_markdown, ranking_text


@pytest.fixture(scope="module")
def frames():
    return copied(hostile.frames(24))


@pytest.fixture(scope="module")
def analysis(frames):
    judgments = Clusters(frames["items"]).of(frames["judgments"])
    table = tabulate([judgments], len(judgments))
    return analyse_ranking(table, judge=None, confidence_level=0.95)


def test_a_ranking_counts_items_and_clusters(analysis):
    assert (analysis.n_items, analysis.n_items_used, analysis.n_clusters) == (72, 72, 24)
    assert {(model.n_items, model.n_clusters) for model in analysis.ratings} >= {(72, 24)}
    assert analysis.uncertainty.startswith("uncertainty over clusters of prompts, for")
    told = ranking_json(analysis)
    assert (told["n_items_used"], told["n_clusters"]) == (72, 24)
    assert told["ratings"][0]["n_clusters"] <= 24


def test_every_format_of_a_ranking_says_it(analysis):
    console = Console(width=120, file=io.StringIO())
    console.print(ranking_text(analysis))
    assert isinstance(console.file, io.StringIO)
    said = (console.file.getvalue(), ranking_markdown(analysis), ranking(analysis, [])[0].basis)
    assert ["72 prompts in 24 clusters" in one for one in said] == [True] * 3


def test_tables_say_it_in_words_and_numbers(frames):
    tables = {table.key: table for table in summarise(frames, hostile.SETTINGS)}
    table = tables["answers"]
    assert table.basis == "72 prompts in 24 clusters"
    assert table.notes[-1].endswith("over clusters of prompts, 24 in all")
    right = next(cell for cell in table.rows[0] if isinstance(cell, Measured))
    assert (right.n, right.n_clusters) == (72, 24)
    assert cell_text(Column("x", "percent"), right).endswith(" n=72 in 24 clusters")
    cells = generic_json(table)["rows"][0].values()
    assert {"n": 72, "n_clusters": 24}.items() <= next(
        c for c in cells if isinstance(c, dict)
    ).items()


def test_the_page_says_it_of_the_whole_run(frames):
    context = all_sources(frames, hostile.SETTINGS)
    (basis,) = [
        one.basis
        for one in all_figures(hostile.material(frames=frames, context=context))
        if one.key == "coverage-of-rows"
    ]
    assert basis.startswith("n = 72 prompts in 24 clusters · counts")


def test_few_clusters_are_said(frames):
    few = {**frames, "items": frames["items"].with_columns(
        cluster=pl.col("cluster").rank("dense").mod(5).cast(pl.String)
    )}  # fmt: skip
    table = next(one for one in summarise(few, hostile.SETTINGS) if one.key == "answers")
    assert table.notes[-1].endswith("5 in all; they are approximate with fewer than 20")


def test_nothing_is_said_where_every_item_stands_alone():
    tables = summarise(hostile.frames(24), hostile.SETTINGS)
    assert not [table for table in tables if "cluster" in " ".join((table.basis, *table.notes[1:]))]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Measured(60, n_clusters=20), "60 in 20 clusters"),
        (Measured(0.5, 0.4, 0.6, n_clusters=1), "0.500 [0.400, 0.600] n=1 cluster"),
        (Measured(0.5, 0.4, 0.6, 60, n_clusters=20), "0.500 [0.400, 0.600] n=60 in 20 clusters"),
        (Measured(0.5, 0.4, 0.6, 60), "0.500 [0.400, 0.600] n=60"),
    ],
)
def test_cells_name_what_they_rest_on(cell, text):
    column = Column("x", "count") if cell.low is None else Column("x", "number")
    assert cell_text(column, cell) == text
