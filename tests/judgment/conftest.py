"""Reference values: computed once by an independent float64 implementation, kept outside git."""

import json
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _cases():
    shared = Path(os.environ.get("ORCHESTRATOR_SHARED", ROOT.parent / "shared"))
    file = shared / "design" / "reference_values.json"
    if not file.is_file():
        return None
    return {case["id"]: case for case in json.loads(file.read_text("utf-8"))["cases"]}


@pytest.fixture(scope="session")
def reference():
    cases = _cases()

    def get(name):
        if cases is None:
            pytest.skip("../shared is absent")
        return cases[name]["inputs"], cases[name]["outputs"]

    return get
