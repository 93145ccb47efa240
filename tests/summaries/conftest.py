import pytest

from orchestrator.summaries._base import Context, Source


@pytest.fixture
def context_of():
    """A context over the rows of one method."""

    def make(kind, module, rows, *, config=None, frames=None, name=None):
        config = module.Config() if config is None else config
        name = name or kind
        source = Source(name, kind, config, module.FRAME)
        return Context(name, config, frames or {module.FRAME: rows}, rows, [source], 0.95, 200, 0)

    return make
