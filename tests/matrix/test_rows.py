"""What every method asks and says of the same items, as approved texts.

The server is a made-up one and deterministic: what differs is the method.
"""

import json
import re
import sys
from collections import Counter

import polars as pl
import polars.selectors as cs
import pytest

from orchestrator.disk import columnar
from orchestrator.interface import api
from orchestrator.interface.exporting import material
from orchestrator.report.html import page
from orchestrator.runner.results.tables import summarise
from orchestrator.tables import cell_text
from tests import slices
from tests.matrix.served import kept_server
from tests.matrix.test_methods_on_servers import METHODS, MODELS
from tests.oracles.verdicts.runs import told

ITEMS = [
    {"key": "k1", "prompt": "Tell me of a harbour.", "reference": "It lies by the sea.",
     "category": "places"},
    {"key": "k2", "prompt": "Who sang first?", "reference": "A bird.", "category": "songs"},
    {"key": "k3", "prompt": "Why is the sky blue?", "reference": "Light is scattered.",
     "category": "places"},
]  # fmt: skip
FIGURES = 6
# Which items runs have in common is told by their keys.
_KEYS = {"item"}
# Queries for the first rows, for what rows are counted by, and for rows of chosen items.
_BOUNDED = re.compile(r"SLICE|AGGREGATE|is_in\(")
WORDS = {"messages", "prompt", "seed"}
SECONDS = re.compile(r" · [\d.,]+ (ms|s|min)$", re.MULTILINE)


def said(value):
    """A value of a frame, floats at the digits that every machine computes alike."""
    if isinstance(value, float):
        return f"{value:.{FIGURES}g}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {said(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(said, value)) + "]"
    return json.dumps(value, ensure_ascii=False, default=str)


def rows(name, frame):
    """A frame, a line for each column; once what all rows have."""
    yield f"== {name}: {frame.height} rows"
    for column in frame.columns:
        values = [said(value) for value in frame[column].to_list()]
        yield f"{column}: {values[0] if len(set(values)) == 1 else ' | '.join(values)}"


def asked(bodies):
    """Return the settings of requests besides texts and seeds, and how many requests have each."""
    requests = Counter(
        json.dumps({key: one for key, one in json.loads(body).items() if key not in WORDS})
        for body in bodies
    )
    return [f"{count} x {request}" for request, count in sorted(requests.items())]


def without_whole_texts(result, monkeypatch):
    """Tables, the page and a comparison of a run are made without a column of texts.

    Texts come in slices, here of two rows, or as categories; a long run has gigabytes of them.
    What is read whole grows by numbers, by the keys of items, and by what rows are counted by.
    """
    expected, collect, n_few = result.tables, pl.LazyFrame.collect, 2
    shown = list(page.sections(material(result)))

    def checked(query, **options):
        found = collect(query, **options)
        texts = found.select(cs.string(), cs.by_dtype(pl.List(pl.String))).columns
        is_short = found.height <= n_few or _BOUNDED.search(query.explain())
        assert is_short or {*texts} <= _KEYS, f"{texts} are held"
        return found

    for module in [one for one in sys.modules.values() if hasattr(one, "ROWS_AT_ONCE")]:
        monkeypatch.setattr(module, "ROWS_AT_ONCE", n_few)
    monkeypatch.setattr(pl.LazyFrame, "collect", checked)
    monkeypatch.setattr(
        columnar,
        "read",
        lambda path, *columns: checked(columnar.scan(path).select(*columns or "*")),
    )
    settings = result.settings
    assert summarise(result.frames, settings, trust=result.trust) == expected
    assert list(page.sections(material(api.load(result.path)))) == shown
    told("compare", result.path)
    scores = [f"{s.name}.{column}" for s in result.context.sources for column in s.scores]
    for measure in ("exact_match(a)", *(f"score(a, method={one})" for one in scores)):
        told("gate", result.path, "--require", f"{measure} > 0.1")


def columns_shown(result):
    """Return the cells of tables that name a column as code does, instead of in words."""
    names = {one for frame in result.frames.values() for one in frame.columns if "_" in one}
    cells = {
        cell_text(column, cell)
        for table in result.tables
        for row in table.rows
        for column, cell in zip(table.columns, row, strict=True)
        if column.is_text
    }
    return {cell for cell in cells if cell.rpartition(".")[2] in names}


@pytest.fixture(scope="module")
def server():
    with kept_server(None, MODELS) as kept:
        yield kept


@pytest.mark.parametrize("name", METHODS)
def test_rows(name, server, tmp_path, approved, monkeypatch):
    # What was approved was made in one part.
    slices.small(monkeypatch)
    # Draws are of an address, whose port is another one each time.
    monkeypatch.setattr("orchestrator.runner.models.identity.address", lambda spec: "")
    server.bodies.clear()
    models = {
        one: {"base_url": server.url, "model": model}
        for one, model in zip(("a", "b", "judge"), MODELS, strict=True)
    }
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(one) + "\n" for one in ITEMS), "utf-8")
    path = tmp_path / "r.json"
    path.write_text(json.dumps({
        "name": "rows", "models": models, "methods": [METHODS[name]],
        "dataset": {"path": "items.jsonl"}, "statistics": {"n_resamples": 50},
    }), "utf-8")  # fmt: skip
    result = api.run(path, run_dir=tmp_path / "run", display="none")
    frames = [line for one in sorted(result.frames) for line in rows(one, result.frames[one])]
    report = SECONDS.sub("", told("report", tmp_path / "run", "--full"))
    assert not columns_shown(result)
    without_whole_texts(api.load(tmp_path / "run"), monkeypatch)
    approved("\n".join([*asked(server.bodies), *frames, report]), folder=tmp_path)
