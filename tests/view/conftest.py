from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from orchestrator.view.app import make_app
from orchestrator.view.library import Library
from orchestrator.view.serve import Guard
from tests.browser import axe, browser  # noqa: F401 (fixtures)
from tests.view.pages import served

PORT = 8765
HERE = f"http://127.0.0.1:{PORT}"


class Viewer:
    """A viewer without a process: its client, and the tokens that it announced."""

    def __init__(self, paths: Sequence[Path], folder: Path) -> None:
        self.tokens: list[str] = []
        self.guard = Guard(make_app(Library(paths, folder)), self.tokens.append)
        self.guard.begin()
        self.client = TestClient(self.guard, base_url=HERE, raise_server_exceptions=True)

    def enter(self) -> "Viewer":
        """Exchange the token for the cookie."""
        assert self.client.get(f"/?token={self.tokens[-1]}").status_code == 200
        return self

    def get(self, path: str, **headers: str):
        return self.client.get(path, headers=headers)

    def json(self, path: str):
        reply = self.client.get(path)
        assert reply.status_code == 200, reply.text
        return reply.json()


@pytest.fixture
def viewer(tmp_path: Path) -> Callable[..., Viewer]:
    """A viewer of folders or runs, which has not been entered yet."""
    return lambda *paths: Viewer(paths, tmp_path / "side")


@pytest.fixture(scope="module")
def links(folder, tmp_path_factory):
    """Links into a viewer of the module's `folder`."""
    with served(folder, tmp_path_factory.mktemp("state")) as link:
        yield link
