"""Summaries of a method without rows, and of one whose units have all failed."""

import importlib
import pkgutil

import pytest

from orchestrator import contracts, methods
from orchestrator.contracts.method import Method, frame_of, schema_of
from orchestrator.tables import Measured
from tests.core.fakes import method_in
from tests.summaries.told import context_of, frame, summarise

VALUES = {"judges": ["j"], "prompts": "compact", "baseline": "b"}
"""Of settings that have no default."""
SOME = {"rubric": {"criteria": ({"name": "clear"},)}}
"""Of settings of which one has to be given."""
KINDS = sorted(
    one.name
    for one in pkgutil.iter_modules(methods.__path__)
    if not one.name.startswith("_")
    and contracts.summary(one.name, contracts.load(Method, one.name)) is not None
)


def found_of(kind, *rows):
    """The tables of a summary over rows, of which only what names a unit is given."""
    module = importlib.import_module(f"{methods.__name__}.{kind}")
    method = method_in(module)
    wanted = method.Config.model_fields.items()
    settings = {name: VALUES[name] for name, one in wanted if one.is_required()}
    config = method.Config(**settings, **SOME.get(kind, {}))
    made = frame(schema_of(method), rows)
    frames = {frame_of(method, kind): made}
    return summarise(context_of(kind, module, made, config=config, frames=frames))


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_give_no_rows_of_tables(kind):
    found = found_of(kind)
    assert [table.rows for table in found] == [[] for _ in found]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_units_that_have_all_failed_are_told_without_a_number(kind, n):
    named = {"method": kind, "judge": "j", "turn": 1, "status": "failed", "cause": "bad_request"}
    models = {"model": "a", "model_a": "a", "model_b": "b"}
    rows = [{**named, **models, "item": str(k), "cluster": str(k)} for k in range(n)]
    for table in found_of(kind, *rows):
        cells = [cell for row in table.rows for cell in row if isinstance(cell, Measured)]
        assert [cell.value for cell in cells] == [None] * len(cells)
