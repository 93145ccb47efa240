"""A store in a temporary folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.store import Store
from tests import slices


@pytest.fixture(autouse=True)
def in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of a few rows is read, copied and repaired in several parts."""
    slices.small(monkeypatch, "orchestrator.store")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(path) as opened:
        yield opened
