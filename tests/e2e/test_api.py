"""The Python interface, as a notebook would use it."""

import json

import polars as pl
import pytest

import orchestrator
from orchestrator.errors import RecipeError, RunDirectoryError, UsageError
from tests.launched import recipe_data


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "made.yaml"
    path.write_text(json.dumps(recipe_data(n=8)), encoding="utf-8")
    return path


@pytest.fixture
def result(recipe, tmp_path):
    return orchestrator.run(recipe, run_dir=tmp_path / "run")


def test_a_run_gives_its_frames(result):
    assert set(result.frames) == {"answers", "items", "judgments"}
    assert isinstance(result.frames["judgments"], pl.DataFrame)
    assert result.frames["judgments"].height == 8
    assert result.frames["answers"]["status"].to_list() == ["ok"] * 16
    assert result.ended is not None


def test_a_run_gives_its_rankings(result):
    (ranking,) = result.rankings
    assert [model.model for model in ranking.ratings] == ["strong", "weak"]
    assert set(result.exact_match) == {"weak", "strong"}


def test_a_loaded_run_is_the_same(result, tmp_path):
    loaded = orchestrator.load(tmp_path / "run")
    assert loaded.ended is None
    for name, frame in result.frames.items():
        assert loaded.frames[name].equals(frame)
    assert loaded.rankings == result.rankings
    assert loaded.settings["name"] == "made"


def test_running_again_sends_nothing(result, recipe, tmp_path):
    again = orchestrator.run(str(recipe), run_dir=str(tmp_path / "run"))
    assert again.ended is not None
    assert again.ended.progress is None
    assert again.frames["judgments"].equals(result.frames["judgments"])


def test_settings_and_a_limit_can_be_given(recipe, tmp_path):
    result = orchestrator.run(
        recipe, run_dir=tmp_path / "run", limit=2, overrides=["methods.0.answer.max_tokens=2"]
    )
    assert result.frames["judgments"].height == 2
    assert result.frames["answers"]["n_tokens"].max() == 2


def test_nothing_is_printed(result, capfd):
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_nothing_is_refused(recipe, tmp_path, limit):
    with pytest.raises(RecipeError, match="must be at least 1"):
        orchestrator.run(recipe, run_dir=tmp_path / "run", limit=limit)
    assert not (tmp_path / "run").exists()


def test_what_is_not_there_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no such recipe"):
        orchestrator.run(tmp_path / "nowhere.yaml")
    with pytest.raises(RunDirectoryError, match="no run found at"):
        orchestrator.load(tmp_path)


def test_the_package_has_what_it_promises():
    assert set(orchestrator.__all__) <= set(dir(orchestrator))
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        _ = orchestrator.walk  # type: ignore[attr-defined]
