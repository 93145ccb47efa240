"""A store in a temporary folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(path) as opened:
        yield opened
