"""Commands that need an optional part of the installation say so in one line."""

import importlib.util

import pytest

from orchestrator.errors import EXIT_USAGE


@pytest.fixture
def without(monkeypatch):
    """Make modules seem not to be installed."""
    real = importlib.util.find_spec

    def forget(*names):
        def find_spec(name, package=None):
            return None if name in names else real(name, package)

        monkeypatch.setattr(importlib.util, "find_spec", find_spec)

    return forget


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("torch", ("servers", "serve", "bundled:judge"), "embedded"),
        ("transformers", ("servers", "serve", "bundled:judge"), "embedded"),
        ("uvicorn", ("servers", "serve", "m=somewhere"), "embedded"),
        ("uvicorn", ("view",), "view"),
        ("starlette", ("view",), "view"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(command, without, missing, arguments, extra):
    without(missing)
    code, out, err = command(*arguments)
    assert (code, out) == (EXIT_USAGE, "")
    assert f"needs {missing}: pip install 'selfeval-orchestrator[{extra}]'" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("missing", ["altair", "vl_convert"])
def test_charts_name_their_extra_and_a_page_does_without(command, recipe, without, missing):
    path = recipe(methods=[{"kind": "answers", "answer": {"max_tokens": 4}}])
    assert command("run", path, "--display", "none")[0] == 0
    without(missing)
    code, _, err = command("export", "made", "--figures", "drawn")
    assert code == EXIT_USAGE
    assert "[report]" in err
    assert command("report", "made", "--html", "page.html")[0] == 0
