"""The first look at servers: who connects, and who closes."""

import pytest

from orchestrator.backend import Backend, Provenance
from orchestrator.errors import UsageError
from orchestrator.runner.models.records import Probes
from orchestrator.runner.servers.fleet import Fleet
from tests.runner.servers.test_comparison import spec


class Connection(Backend):
    def __init__(self) -> None:
        self.is_closed = False

    async def provenance(self):
        return Provenance(backend="fake", base_url="http://127.0.0.1:9", model="m")

    async def close(self) -> None:
        self.is_closed = True


class Refusing(Probes):
    """Refuses one server at the first contact, and asks nothing of the others."""

    async def check(self, spec, label, found):
        if spec.name == "wrong":
            raise UsageError("no such model")


async def test_connections_of_a_look_that_failed_are_used_and_closed(store, tmp_path, monkeypatch):
    made = []

    def create(*_, **__):
        made.append(Connection())
        return made[-1]

    monkeypatch.setattr("orchestrator.runner.servers.fleet.create_backend", create)
    names = ("a", "wrong", "b")
    models = [spec(name, "http://127.0.0.1:9") for name in names]
    identities = {name: name.encode() for name in names}
    fleet = Fleet(models, identities, tmp_path.joinpath, store, probes=Refusing(store, {}))
    # Several models are asked at once: the second comes here before the first has stopped the run.
    for model in ("a", "b"):
        with pytest.raises(UsageError):
            await fleet.connect(model)
    await fleet.stop()
    assert len(made) > len(names)
    assert all(one.is_closed for one in made)
