"""Two tiny models, loaded once, in memory and behind a real server on 127.0.0.1.

They are made here, so these tests need torch but none of the bundled models.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import uvicorn

from launch.embedded.app import Service
from launch.embedded.engine import Settings
from launch.embedded.served import Served, load
from tests.launch.embedded.client import Client
from tests.launch.embedded.tiny import build
from tests.launch.routes import KEY


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {
        "bos": build(root / "bos", seed=1, with_bos=True),
        "plain": build(root / "plain", seed=2, with_bos=False, head_size=64),
    }


@pytest.fixture(scope="session")
def models(folders: dict[str, Path]) -> Iterator[dict[str, Served]]:
    served = {
        name: load(name, str(folder), Settings(max_rows=48), lambda: torch.set_num_threads(1))
        for name, folder in folders.items()
    }
    for one in served.values():
        one.engine.start()
    yield served
    for one in served.values():
        one.engine.close()


@pytest.fixture(params=["bos", "plain"])
def served(models: dict[str, Served], request: pytest.FixtureRequest) -> Served:
    return models[request.param]


@pytest.fixture
def bos(models: dict[str, Served]) -> Served:
    return models["bos"]


@pytest.fixture(scope="session")
def url(models: dict[str, Served]) -> Iterator[str]:
    config = uvicorn.Config(
        Service(list(models.values()), KEY).app(),
        host="127.0.0.1",
        port=0,
        log_level="error",
        lifespan="off",
        ws="none",
        http="h11",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def client(url: str) -> Client:
    return Client(url, KEY)
