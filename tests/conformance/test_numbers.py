"""Log-probabilities of every server against a float32 forward pass of the same weights."""

import pytest

from tests.conformance.measure import QUANTITIES, errors
from tests.conformance.reference import reference
from tests.conformance.servers import MODEL, Running
from tests.conftest import BUNDLED

pytestmark = [pytest.mark.timeout(600), pytest.mark.kinds("embedded", "vllm", "llamacpp")]


@pytest.fixture(scope="session")
def measured(server: Running) -> dict[str, float]:
    return errors(server, reference(BUNDLED / MODEL))


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_numbers_are_those_of_a_forward_pass(server, measured, quantity):
    assert measured[quantity] <= server.kind.tolerance
