import json

import pytest

from orchestrator.recipe.load import load
from orchestrator.runner.planning.prepare import prepare
from orchestrator.store import RunDirectory, Store


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store.sqlite") as opened:
        yield opened


@pytest.fixture
def directory(tmp_path):
    """A run directory that this process holds."""
    with RunDirectory.lock(tmp_path / "run") as held:
        yield held


@pytest.fixture
def prepared(request, tmp_path):
    """Prepares the module's `RECIPE` with changes."""

    def make(**changes):
        path = tmp_path / "r.json"
        path.write_text(json.dumps(request.module.RECIPE | changes))
        return prepare(load(path))

    return make
