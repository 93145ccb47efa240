"""A method whose units all wait or were left out has no rows: its summary has nothing to show."""

import importlib
import pkgutil

import pytest

from orchestrator import methods, summaries
from orchestrator.contracts.method import frame_of, schema_of
from tests.core.fakes import method_in
from tests.summaries.told import context_of, frame, summarise

VALUES = {"judges": ["j"], "prompts": "compact", "baseline": "b"}
"""Of settings that have no default."""
SOME = {"rubric": {"criteria": ({"name": "clear"},)}}
"""Of settings of which one has to be given."""
KINDS = sorted({one.name for one in pkgutil.iter_modules(summaries.__path__)})


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("_")])
def test_no_rows_give_no_rows_of_tables(kind):
    module = importlib.import_module(f"{methods.__name__}.{kind}")
    method, wanted = method_in(module), module.Config.model_fields.items()
    settings = {name: VALUES[name] for name, one in wanted if one.is_required()}
    config = module.Config(**settings, **SOME.get(kind, {}))
    rows = frame(schema_of(method), [])
    frames = {frame_of(method, kind): rows}
    found = summarise(context_of(kind, module, rows, config=config, frames=frames))
    assert [table.rows for table in found] == [[] for _ in found]
