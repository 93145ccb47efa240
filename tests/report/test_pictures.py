import importlib.util
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "pictures.py"


@pytest.fixture(scope="module")
def pictures():
    spec = importlib.util.spec_from_file_location("pictures", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_of_simulated_data_say_so_and_load_nothing(pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["pictures.py", "--sample", "--to", str(tmp_path)])
    monkeypatch.setattr(pictures, "_to_png", lambda svg: None)
    assert pictures.main() == 0
    drawn = sorted(tmp_path.glob("*.svg"))
    assert [path.name for path in drawn] == ["live_sample.svg", "ranking_sample.svg"]
    for path in drawn:
        text = path.read_text("utf-8")
        ET.fromstring(text)  # noqa: S314 (our own file)
        assert "url(http" not in text
        assert "simulated" in text
