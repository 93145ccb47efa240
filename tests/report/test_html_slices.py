"""The HTML report of a large run reads columns and slices of its frames, never a whole frame."""

import pytest

from orchestrator.frames import FrameFiles
from orchestrator.report.html import compared, examples, page, rests, spread
from orchestrator.runner.tables import all_sources
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
    return repr((list(page.sections(material)), rests.facts(material), page.glance(material)))


def test_no_frame_is_read_whole_and_the_page_says_the_same(files):
    assert said(files) == said(as_in_a_folder())


@pytest.mark.parametrize("n_rows", [7, 40])
def test_slices_of_any_length_say_the_same(files, monkeypatch, n_rows):
    whole = said(as_in_a_folder())
    for module in (compared, examples, spread):
        monkeypatch.setattr(module, "ROWS_AT_ONCE", n_rows)
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
    monkeypatch.setattr(examples, "ROWS_AT_ONCE", 2)
    assert examples.examples(material) == whole


def _like(rows, frame):
    return type(frame)(rows, schema=frame.schema)
