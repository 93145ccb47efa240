"""Checks after every fault, and the record of the tests' measurements."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.chaos.arena import Arena
from tests.chaos.table import NOTES, Row

Note = Callable[..., None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Arena:
    """A run of a few seconds at most, where the server is slow."""
    return Arena(tmp_path_factory.mktemp("arena"), n=12, limits={"max_in_flight": 6})


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Note:
    """Writes a row of the table in docs/reliability.md, where `make chaos` asks for it."""
    folder = os.environ.get(NOTES)

    def write(fault: str, **measured: object) -> None:
        row = Row(section=request.module.SECTION, fault=fault, **measured)  # type: ignore[arg-type]
        if folder is not None:
            file = Path(folder) / f"{uuid4().hex}.json"
            file.write_text(json.dumps(row.__dict__), encoding="utf-8")

    return write
