"""The commands that list kinds, with where each comes from."""

import json

import pytest

from orchestrator import plugins
from orchestrator.errors import EXIT_COMPLETE

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


def test_statistics_are_listed_with_those_of_packages(command, installed):
    found = {
        (one["kind"], one["origin"]): one["about"]
        for one in json.loads(command("list", "plugins", "--json")[1])
        if one["family"] == "statistics"
    }
    assert found["span", "acme 1.2"] == "Largest less smallest."
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
