import polars as pl
import pytest

from orchestrator.datasets import _download
from tests.datasets.web import Web


@pytest.fixture(autouse=True)
def no_network(tmp_path, monkeypatch):
    """The cache is empty, the hub is nobody, and a failed attempt is not waited after."""
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ORCHESTRATOR_DATA", raising=False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("ORCHESTRATOR_OFFLINE", "1")
    monkeypatch.setattr(_download, "PAUSE_S", 0.0)


@pytest.fixture
def web(monkeypatch):
    monkeypatch.delenv("ORCHESTRATOR_OFFLINE")
    with Web() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A user's own folder; gives a function that puts a file there."""
    folder = tmp_path / "data"
    monkeypatch.setenv("ORCHESTRATOR_DATA", str(folder))

    def put(name, content):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, pl.DataFrame):
            content.write_parquet(path)
        else:
            path.write_text(content, encoding="utf-8")
        return path

    return put
