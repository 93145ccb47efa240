"""Reference values: computed by an independent float64 implementation, kept outside the project."""

import json

import pytest

from tests.conftest import SHARED

FILE = SHARED / "design" / "reference_values.json"


@pytest.fixture(scope="session")
def cases():
    """All cases by their id: (inputs, outputs)."""
    if not FILE.is_file():
        pytest.skip("../shared is absent")
    found = json.loads(FILE.read_text("utf-8"))["cases"]
    return {case["id"]: (case["inputs"], case["outputs"]) for case in found}


@pytest.fixture(scope="session")
def reference(cases):
    """Inputs and outputs of one case."""
    return cases.__getitem__
