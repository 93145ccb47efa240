"""The commands that list kinds, with where each comes from."""

import json

import pytest

from orchestrator import plugins
from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE

BROKEN = '"""A method of mine.\n\nMore.\n"""\n1 / 0\n'


@pytest.fixture
def installed(here, monkeypatch):
    about = here / "site" / "acme-1.2.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(
        "[orchestrator.methods]\nbrief = acme_listed\nanswers = acme_answers\nbad = acme_bad\n"
        "[orchestrator.statistics]\nspan = acme_span\n"
    )
    (here / "site" / "acme_span.py").write_text('"""Largest less smallest."""\n')
    (here / "site" / "acme_listed.py").write_text('"""Short answers."""\n')
    (here / "site" / "acme_bad.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(here / "site")
    plugins.installed.cache_clear()
    yield
    plugins.installed.cache_clear()


def test_kinds_are_listed_with_where_they_come_from(command, installed):
    code, out, _ = command("list", "methods", "--json")
    assert code == EXIT_COMPLETE
    found = {(one["kind"], one["origin"]): one["about"] for one in json.loads(out)}
    assert {kind for kind, origin in found if origin == "bundled"} == set(
        plugins.kinds(plugins.METHODS)
    )
    assert found["brief", "acme 1.2"] == "Short answers."
    assert "'acme_answers'" in found["answers", "acme 1.2"]
    assert "acme_bad.py:1: ZeroDivisionError" in found["bad", "acme 1.2"]
    shown = command("list", "methods")[1]
    assert "Short answers." in shown
    assert "from acme 1.2" in shown


def test_all_families_are_listed_at_once(command):
    found = json.loads(command("list", "plugins", "--json")[1])
    kinds = {(one["family"], one["kind"]) for one in found}
    assert {("servers", "vllm"), ("backends", "vllm"), ("datasets", "demo")} <= kinds
    assert {one["family"] for one in found} >= {"methods", "analyses"}
    assert all(one["about"] for one in found)
    shown = command("list", "plugins")[1].splitlines()
    assert {"methods", "analyses", "backends", "servers", "datasets"} <= set(shown)


def test_statistics_are_listed_with_those_of_packages_and_recipes(command, installed, recipe, here):
    (here / "mine.py").write_text('"""A statistic of mine."""\n1 / 0\n')
    wanted = {"kind": "./mine.py", "method": "answers", "column": "n_tokens"}
    path = recipe(methods=[{"kind": "answers"}], statistics={"of": [wanted]})
    found = {
        (one["kind"], one["origin"]): one["about"]
        for one in json.loads(command("list", "plugins", path, "--json")[1])
        if one["family"] == "statistics"
    }
    assert found["span", "acme 1.2"] == "Largest less smallest."
    assert found["./mine.py", str(here / "mine.py")] == "A statistic of mine."
    assert {kind for kind, origin in found if origin == "bundled"} == {"quantile", "share_above"}
    shown = command("list", "plugins")[1].splitlines()
    assert "statistics" in shown
    assert any(line.startswith("span ") for line in shown)


def test_statistics_have_a_listing_of_their_own(command, installed):
    code, out, _ = command("list", "statistics", "--json")
    assert code == EXIT_COMPLETE
    assert {one["kind"] for one in json.loads(out)} == {"quantile", "share_above", "span"}
    shown = command("list", "statistics")[1].splitlines()
    assert shown[0].startswith("quantile ")
    assert "from acme 1.2" in shown[-1]


def test_code_that_a_recipe_names_is_listed_and_not_run(command, recipe, here, monkeypatch):
    (here / "my method.py").write_text(BROKEN)
    (here / "p_listed").mkdir()
    (here / "p_listed" / "__init__.py").write_text("1 / 0")
    (here / "p_listed" / "mine.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(here)
    methods = [{"kind": "./my method.py"}, {"kind": "p_listed.mine"}, {"kind": "./gone.py"}]
    path = recipe(methods=[*methods, {"kind": "answers"}])
    found = {
        one["kind"]: one
        for one in json.loads(command("list", "methods", path, "--json")[1])
        if one["origin"] != "bundled"
    }
    assert set(found) == {"./my method.py", "p_listed.mine", "./gone.py"}
    assert found["./my method.py"]["origin"] == str(here / "my method.py")
    assert found["./my method.py"]["about"] == "A method of mine."
    assert found["p_listed.mine"]["origin"] == str(here / "p_listed" / "mine.py")
    assert found["p_listed.mine"]["about"] == "A method of mine."
    assert "cannot be read" in found["./gone.py"]["about"]
    assert command("list", "methods", "nowhere.yaml")[0] == EXIT_USAGE
