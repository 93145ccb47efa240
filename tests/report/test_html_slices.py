"""The HTML report of a large run reads columns and slices of its frames, never a whole frame."""

import math
import types
from typing import cast

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.contracts import context
from orchestrator.frames import FrameFiles
from orchestrator.report.html import basis, examples, page
from orchestrator.report.html.figures import Material
from orchestrator.runner.results.tables import all_sources
from tests.crossed import LONG
from tests.report import hostile

SETTINGS = hostile.SETTINGS


class ColumnsOnly(FrameFiles):
    """Frames of which none may be read whole."""

    def __getitem__(self, name):
        raise AssertionError(f"all of {name} was read")


def as_in_a_folder():
    """The same frames in the order of their files."""
    return dict(sorted(hostile.frames().items()))


@pytest.fixture
def files(tmp_path):
    for name, frame in hostile.frames().items():
        frame.write_parquet(tmp_path / f"{name}.parquet", row_group_size=20)
    return ColumnsOnly(tmp_path)


def said(frames):
    material = hostile.material(frames=frames, context=all_sources(frames, SETTINGS))
    return repr((list(page.sections(material)), basis.facts(material), material.brief))


@pytest.fixture(scope="module")
def whole():
    """What the page says of frames in memory."""
    return said(as_in_a_folder())


def test_no_frame_is_read_whole_and_the_page_says_the_same(files, whole):
    assert said(files) == whole


@pytest.mark.parametrize("n_rows", [7, pytest.param(40, marks=LONG)])
def test_slices_of_any_length_say_the_same(files, whole, monkeypatch, n_rows):
    monkeypatch.setattr(context, "ROWS_AT_ONCE", n_rows)
    assert said(files) == whole


def test_examples_are_the_same_rows_in_whatever_slices_they_are_looked_for(monkeypatch):
    frames = hostile.frames()
    rows = [
        row | {"item": f"{item}", "prefer_a": p, "prefer_a_ab": p, "prefer_a_ba": 1 - p}
        for item in range(9)
        for p in (0.1, 0.5, 0.1 * item)
        for row in frames["judgments"].filter(status="ok", same_text=False).head(1).to_dicts()
    ]
    frames["judgments"] = frames["judgments"].clear().vstack(_like(rows, frames["judgments"]))
    material = hostile.material(frames=frames, context=all_sources(frames, SETTINGS))
    whole = examples.examples(material)
    assert any(len(kind.cases) == 3 for kind in whole)
    monkeypatch.setattr(context, "ROWS_AT_ONCE", 2)
    assert examples.examples(material) == whole


def test_only_rows_that_may_be_shown_are_looked_at_closely(monkeypatch):
    n_closely = 0

    def closely(rows):
        nonlocal n_closely
        n_closely += len(rows)
        return rows

    n, value = 2_000, pl.col("value")
    frames = {"made": pl.DataFrame({"item": [f"{i:04}" for i in range(n)], "status": "ok"})}
    frames["made"] = frames["made"].with_columns(value=pl.Series(range(n)).shuffle(0) / n)
    order = (value.map_batches(closely, pl.Float64()) >= 0, value)
    monkeypatch.setattr(context, "ROWS_AT_ONCE", 100)
    material = cast("Material", types.SimpleNamespace(frames=frames))
    (found,) = examples._top(material, "made", {"value": "value"}, [order])
    assert found["by"].to_list() == [1_999 / n, 1_998 / n, 1_997 / n]
    # The whole first slice, and of the others what exceeds the best so far.
    assert 100 <= n_closely <= 200


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"),
            st.sampled_from([None, math.nan, math.inf, -1.0, 0.0, 0.5]),
            st.booleans(),
        )
    ),
    st.integers(1, 4),
)
def test_the_first_rows_of_other_items_are_found_in_whatever_slices(cells, n_rows):
    schema = {"item": pl.String(), "value": pl.Float64(), "good": pl.Boolean()}
    frame = pl.DataFrame(cells, schema=schema, orient="row").with_columns(status=pl.lit("ok"))
    order = (pl.col("good"), pl.col("value"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "ROWS_AT_ONCE", n_rows)
        material = cast("Material", types.SimpleNamespace(frames={"made": frame}))
        (found,) = examples._top(material, "made", {"value": "value", "good": "good"}, [order])
    # nan stands above every number, as in a sorted frame.
    good = [(i, v) for i, v, is_good in cells if is_good and v is not None]
    good.sort(key=lambda cell: (-math.inf if math.isnan(cell[1]) else -cell[1], cell[0]))
    good.sort(key=lambda cell: not math.isnan(cell[1]))
    expected = dict.fromkeys(i for i, _ in good)
    assert found["item"].to_list() == [*expected][:3]


def _like(rows, frame):
    return type(frame)(rows, schema=frame.schema)
