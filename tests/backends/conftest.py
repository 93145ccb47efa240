"""A fake endpoint with batches."""

import pytest

from tests.backends.batching import KEY
from tests.fake.batches import serving_batches


@pytest.fixture
async def endpoint():
    async with serving_batches("m", key=KEY) as (url, server):
        yield url, server
