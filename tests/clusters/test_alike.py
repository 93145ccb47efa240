"""Items that seem to belong together are said before anything is paid for, and in the report."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.io.plugins import register_io_source

from orchestrator import numbers
from orchestrator.cli import main
from orchestrator.interface import api
from orchestrator.recipe.load import load
from orchestrator.runner.planning.prepare import prepare
from orchestrator.runner.planning.similar_items import MOST_ITEMS, notes_on_frame, notes_on_items
from orchestrator.store import RunDirectory
from tests.datasets.test_near_copies import passage
from tests.e2e.runs import write_recipe
from tests.runner.test_items import exported

NOWHERE = "http://127.0.0.1:9"


def recipe(folder, **fields):
    rows = [
        {"prompt": f"{passage(n // 4)}\n{n}?", "reference": "x", "passage": n // 4}
        for n in range(24)
    ]
    pl.DataFrame(rows).write_ndjson(folder / "items.jsonl")
    dataset = {"path": "items.jsonl", "fields": fields}
    return write_recipe(folder / "r.json", NOWHERE, dataset=dataset)


def test_check_and_plan_say_it(tmp_path, capsys):
    path = recipe(tmp_path)
    assert main(["check", str(path)]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "24 of 24 items are near-copies" in said
    assert "dataset: {fields: {cluster: COLUMN}}" in said
    assert "24 of 24 items" in api.plan(path, run_dir=tmp_path / "run").notes[-1]


def test_copies_are_named_and_counted_once(tmp_path, capsys):
    path = recipe(tmp_path)
    rows = pl.read_ndjson(tmp_path / "items.jsonl").head(5)
    pl.concat([rows.with_columns(prompt="passage" + pl.lit("")), rows]).write_ndjson(
        tmp_path / "items.jsonl"
    )
    assert main(["check", str(path)]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "4 of 10 items ask the same as an item before: they count as 6 prompts" in said


@pytest.mark.parametrize(("fields", "refused"), [({}, True), ({"cluster": "passage"}, False)])
def test_near_copies_ruin_a_stopping_rule_and_are_refused(tmp_path, capsys, fields, refused):
    path = recipe(tmp_path, **fields)
    given = json.loads(path.read_text())
    given["statistics"]["stop_when"] = {"block": 4}
    path.write_text(json.dumps(given))
    assert main(["check", str(path)]) == (2 if refused else 0)
    said = " ".join(capsys.readouterr().err.split())
    assert ("24 of 24 items are near-copies" in said) == refused
    given["statistics"] = {"stop_when": {"population": "dataset"}}
    path.write_text(json.dumps(given))
    assert main(["check", str(path)]) == 0


@pytest.mark.parametrize("named", ["passage", None])
def test_a_recipe_that_names_clusters_or_refuses_them_is_not_told(tmp_path, capsys, named):
    path = recipe(tmp_path, cluster=named)
    assert main(["check", str(path)]) == 0
    assert "are near-copies" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fields", "n"), [({}, 1), ({"cluster": "passage"}, 0), ({"cluster": None}, 0)]
)
def test_a_run_s_own_items_say_the_same(tmp_path, fields, n):
    path = recipe(tmp_path, **fields)
    prepared = prepare(load(path))
    assert len(notes_on_items(prepared)) == n
    with RunDirectory.lock(tmp_path / "run") as directory:
        frame = pl.scan_parquet(exported(prepared.dataset, directory))
    assert notes_on_frame(frame, prepared.recipe.resolved()) == notes_on_items(prepared)


@given(st.lists(st.sampled_from(["a", "b", "", None]), min_size=1, max_size=9), st.booleans())
def test_a_column_that_is_taken_by_its_name_is_said_with_how_many_clusters(names, is_named):
    with TemporaryDirectory() as folder:
        rows = [
            {"prompt": f"{n}?", "reference": "x", "cluster": name} for n, name in enumerate(names)
        ]
        (Path(folder) / "items.jsonl").write_text("\n".join(map(json.dumps, rows)))
        dataset = {"path": "items.jsonl", "fields": {"cluster": "cluster"} if is_named else {}}
        prepared = prepare(load(write_recipe(Path(folder) / "r.json", NOWHERE, dataset=dataset)))
        said = notes_on_items(prepared)
        with RunDirectory.lock(Path(folder) / "run") as directory:
            frame = pl.scan_parquet(exported(prepared.dataset, directory))
        assert notes_on_frame(frame, prepared.recipe.resolved()) == []
    n = sum(not name for name in names) + len({name for name in names if name})
    shown = f"{numbers.counted(len(names), 'item')} in {numbers.counted(n, 'cluster')}"
    assert [shown in one for one in said] == [True] * (n < len(names) and not is_named)


def test_datasets_without_fields_are_not_told():
    items = pl.LazyFrame({"item": ["a"], "prompt": ["x"]})
    whole = items.with_columns(
        messages=pl.lit(None, pl.String),
        cluster=pl.lit(None, pl.String),
        same_as=pl.lit(None, pl.String),
    )
    assert notes_on_frame(whole, {"dataset": {"kind": "demo"}}) == []


def test_a_report_reads_only_the_texts_that_are_looked_at():
    row = {"item": "k", "prompt": "x", "messages": None, "cluster": None, "same_as": None}
    schema = dict.fromkeys(row, pl.String)
    texts_read = []

    def read(columns, predicate, n_rows, batch_size):
        if "prompt" in columns:
            texts_read.append(n_rows)
        yield pl.DataFrame([row], schema).select(columns)

    items = register_io_source(read, schema=schema)
    assert notes_on_frame(items, {"dataset": {"kind": "jsonl", "fields": {}}}) == []
    assert texts_read == [MOST_ITEMS]
