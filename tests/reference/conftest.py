"""Reference values: computed by an independent float64 implementation, kept outside the project."""

import json

import pytest

from orchestrator.methods import align_bench
from tests.conftest import SHARED
from tests.summaries.told import context_of, summarise, verdicts
from tests.tables import lines

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


@pytest.fixture(scope="session")
def align_bench_overall():
    """The scores of AlignBench's table, each category with one answer that has its mean."""

    def overall(means):
        rows = verdicts(
            *(
                {"model": "a", "item": name, "category": name, "rating": mean}
                for name, mean in means.items()
            )
        )
        config = align_bench.Config(judges=("j",), prompts="compact")
        tables = summarise(context_of("align_bench", align_bench, rows, config=config))
        return {name: getattr(cell, "value", cell) for name, cell in lines(tables[0])[0].items()}

    return overall
