"""All methods in one recipe, some twice with other settings: each says what it says alone."""

import json
import re
from types import SimpleNamespace
from typing import Any

import msgspec
import polars as pl
import pytest

from orchestrator.interface import api
from orchestrator.runner.results.tables import summarise
from tests.matrix.served import kept_server
from tests.matrix.test_methods_on_servers import JUDGED, METHODS, MODELS
from tests.matrix.test_rows import ITEMS

CHECKLISTS: tuple[list[str], ...] = (
    [],
    ["Is it short?"],
    ["Is it short?", "Is it kind?", "Is it true?"],
)
CHECKED = [{**item, "checklist": list(said)} for item, said in zip(ITEMS, CHECKLISTS, strict=True)]
MORE: dict[str, dict[str, Any]] = {
    "rubric_of_three": {
        "kind": "rubric", "criteria": [{"name": name} for name in ("a", "b", "c")], **JUDGED,
    },
    "rubric_checklist": {"kind": "rubric", "checklist": {"column": "checklist"}, **JUDGED},
}  # fmt: skip
TOGETHER = {**METHODS, **MORE}
FRACTION = re.compile(r"\d+\.\d+(e-?\d+)?")


def rounded(tables):
    """Tables in words, numbers without the last digits: sums are in the order of the rows."""
    return FRACTION.sub(lambda found: f"{float(found[0]):.10g}", repr(tables))


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    folder = tmp_path_factory.mktemp("together")
    served = (*MODELS, "fake:0.6")
    with kept_server(None, served) as kept:
        models = {
            one: {"base_url": kept.url, "model": model}
            for one, model in zip(("a", "b", "judge", "c"), served, strict=True)
        }
        (folder / "items.jsonl").write_text("".join(json.dumps(i) + "\n" for i in CHECKED), "utf-8")
        (folder / "r.json").write_text(json.dumps({
            "name": "together", "models": models, "dataset": {"path": "items.jsonl"},
            "methods": [{"name": name, **method} for name, method in TOGETHER.items()],
            "statistics": {"n_resamples": 50},
        }), "utf-8")  # fmt: skip
        result = api.run(folder / "r.json", run_dir=folder / "run", display="none")
    return SimpleNamespace(result=result, tables=summarise(result.frames, result.settings))


@pytest.mark.parametrize("name", TOGETHER)
def test_a_method_says_beside_others_what_it_says_alone(name, together):
    frames = {
        frame: rows.filter(pl.col("method") == name) if "method" in rows.columns else rows
        for frame, rows in together.result.frames.items()
    }
    methods = [one for one in together.result.settings["methods"] if one["name"] == name]
    alone = summarise(frames, {**together.result.settings, "methods": methods})
    here = [table for table in together.tables if table.source == name]
    assert rounded(here) == rounded([msgspec.structs.replace(one, source=name) for one in alone])


def test_most_methods_say_something(together):
    assert len({table.source for table in together.tables}) > 20
