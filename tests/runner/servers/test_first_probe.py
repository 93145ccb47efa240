"""The first look at servers: who connects, and who closes."""

import pytest

from orchestrator.errors import UsageError
from orchestrator.runner.servers.connections import FirstLook


class Connection:
    def __init__(self) -> None:
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


async def test_connections_of_a_look_that_failed_are_used_and_closed() -> None:
    made = []

    async def connect(model):
        if model == "wrong":
            raise UsageError("no such model")
        made.append(Connection())
        return made[-1]

    look = FirstLook(["a", "wrong", "b"], connect)
    # Several models are asked at once: the second comes here before the first has stopped the run.
    for model in ("a", "b"):
        with pytest.raises(UsageError):
            await look.connection(model)
    await look.close()
    assert made
    assert all(one.is_closed for one in made)
