"""Rows of verdicts, contexts over them, and the tables of the summary of a context's method."""

import json

import msgspec
import polars as pl

from orchestrator import contracts
from orchestrator.contracts.context import Context, Source
from orchestrator.contracts.method import frame_of, schema_of
from orchestrator.frames import polars_schema
from orchestrator.methods import _harness as rows_of_verdicts
from orchestrator.ranking.cells import given
from orchestrator.tables import Table
from tests.core.fakes import method_in


def context_of(kind, module, rows, *, config=None, frames=None, name=None):
    """A context over the rows of one method."""
    found = method_in(module)
    method = found(found.Config() if config is None else config)
    name, frame = name or kind, frame_of(type(method), kind)
    source = Source(name, kind, method, frame)
    rows = rows.with_columns(method=pl.lit(name))
    return Context(name, {**(frames or {}), frame: rows}, rows, [source], 0.95, 200, 0)


def frame(schema, rows):
    columns = {"method": "str", **schema}
    full = [[row.get(name) for name in columns] for row in rows]
    return pl.DataFrame(full, schema=polars_schema(columns), orient="row")


def verdicts(*rows):
    made = [
        {"item": "1", "judge": "j", "turn": 1, "parsed": True, "status": "ok", **row}
        for row in rows
    ]
    return frame(schema_of(rows_of_verdicts.HarnessJudge), made)


def summarise(context):
    (source,) = context.sources
    summary = contracts.summary(source.kind, type(source.method))
    assert summary is not None
    # As a run gives them: by numbers.
    context = msgspec.structs.replace(context, rows=given(context, source, summary.reads))
    if context.rows.is_empty():
        return []
    found = summary(source.method.config).summarise(context)
    # A run keeps tables as JSON; repr, for nan is not equal to itself.
    kept = json.loads(json.dumps(msgspec.to_builtins(found)))
    assert repr(msgspec.convert(kept, list[Table])) == repr(found)
    return found
