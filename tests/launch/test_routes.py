"""Every route of the fake server, in every dialect, against requests that it must survive."""

import asyncio
import pkgutil

import pytest

from tests.fake import dialects
from tests.fake.main import serving
from tests.launch import routes


@pytest.mark.parametrize(
    "dialect", ["native", *(found.name for found in pkgutil.iter_modules(dialects.__path__))]
)
async def test_no_route_answers_without_the_key_or_breaks(dialect: str) -> None:
    rules = {"dialect": dialect}
    async with serving(rules, models=["m"], key=routes.KEY) as (url, server):
        assert "GET" in server.routes.values()
        assert "POST" in server.routes.values()
        found = await asyncio.to_thread(lambda: list(routes.faults(url, server.routes)))
    assert found == []
