"""Servers for the tests of a module."""

import pytest

from tests.e2e.embedded import answers_of, embedded_server
from tests.e2e.runs import fake_server


@pytest.fixture
def server():
    with fake_server() as url:
        yield url


@pytest.fixture(scope="module")
def embedded(request):
    """Address of an embedded server of the module's `NAMES`."""
    with embedded_server(request.module.NAMES) as url:
        yield url


@pytest.fixture(scope="module")
def answer_of(found):
    """Find the answer of a model to an item among the frames `found`."""
    return answers_of(found)
