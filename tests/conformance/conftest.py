from pathlib import Path

import pytest

from launch import _weights
from tests.conformance.servers import KINDS, SMOLLM2, Running, running


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`kind` is each kind of server, or those that `@pytest.mark.kinds(...)` names."""
    if "server" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("kinds")
    names = mark.args if mark else tuple(KINDS)
    params = [pytest.param(name, marks=KINDS[name].marks, id=name) for name in names]
    metafunc.parametrize("server", params, indirect=True, scope="session")


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> object:
    """A running server of a kind; one for all tests."""
    log: Path = tmp_path_factory.mktemp("servers") / "server.log"
    with running(KINDS[request.param], log) as found:
        yield found


@pytest.fixture
async def backend(server: Running) -> object:
    """A connection to it."""
    async with server.connected() as found:
        yield found


@pytest.fixture(scope="module")
def folder() -> Path:
    """The folder that is made of SmolLM2's file."""
    return _weights.folder_now(SMOLLM2)
