import pytest

from orchestrator.contracts.context import Context, Source
from orchestrator.contracts.method import frame_of
from tests.core.fakes import method_in


@pytest.fixture
def context_of():
    """A context over the rows of one method."""

    def make(kind, module, rows, *, config=None, frames=None, name=None):
        method = method_in(module)(module.Config() if config is None else config)
        name, frame = name or kind, frame_of(type(method), kind)
        source = Source(name, kind, method, frame)
        return Context(name, frames or {frame: rows}, rows, [source], 0.95, 200, 0)

    return make
