"""Kinds of installed packages: found by name, without permission, and never instead of ours."""

import pytest

from orchestrator import plugins
from orchestrator.errors import PluginError

GROUP = "orchestrator.methods"


def test_a_kind_of_an_installed_package_needs_no_permission(install):
    install("acme", {GROUP: {"brief": "acme_brief_1"}}, acme_brief_1="MARK = 'acme'")
    assert plugins.load(plugins.METHODS, "brief").MARK == "acme"
    assert plugins.class_name(plugins.METHODS, "brief") == ""
    assert "brief" in plugins.known_kinds(plugins.METHODS)
    assert "brief" not in plugins.kinds(plugins.METHODS)
    (point,) = (one for one in plugins.installed(plugins.METHODS) if one.name == "brief")
    assert plugins.package_of(point) == "acme 1.2"


def test_an_entry_point_may_name_its_class(install):
    install("acme", {GROUP: {"acme.brief": "acme_brief_2:Brief"}}, acme_brief_2="class Brief: ...")
    assert plugins.load(plugins.METHODS, "acme.brief").__name__ == "acme_brief_2"
    assert plugins.class_name(plugins.METHODS, "acme.brief") == "Brief"


@pytest.mark.parametrize(
    ("family", "group"),
    [
        (plugins.METHODS, "orchestrator.methods"),
        (plugins.BACKENDS, "orchestrator.backends"),
        (plugins.LAUNCH, "orchestrator.servers"),
        (plugins.DATASETS, "orchestrator.datasets"),
        (plugins.ANALYSES, "orchestrator.analyses"),
        (plugins.STATISTICS, "orchestrator.statistics"),
    ],
)
def test_every_family_has_a_group(install, family, group):
    install("acme", {group: {"some_kind": "acme_some_kind"}}, acme_some_kind="MARK = 3")
    assert plugins.load(family, "some_kind").MARK == 3


def test_two_packages_with_one_kind_are_named(install):
    for name in ("acme", "zenith"):
        install(name, {GROUP: {"brief": f"{name}_brief"}}, **{f"{name}_brief": ""})
    with pytest.raises(PluginError) as caught:
        plugins.load(plugins.METHODS, "brief")
    assert "acme 1.2 and zenith 1.2" in str(caught.value)
    assert "'acme_brief' or 'zenith_brief'" in str(caught.value)


def test_one_package_that_is_on_the_path_twice_is_one(install, monkeypatch):
    site = install("acme", {GROUP: {"brief": "acme_brief_3"}}, acme_brief_3="")
    monkeypatch.syspath_prepend(f"{site}/../{site.name}")
    assert plugins.load(plugins.METHODS, "brief").__name__ == "acme_brief_3"


def test_a_bundled_kind_is_never_replaced(install, caplog):
    install("acme", {GROUP: {"answers": "acme_answers"}}, acme_answers="1 / 0")
    for _ in range(2):
        assert plugins.load(plugins.METHODS, "answers").__name__ == "orchestrator.methods.answers"
    (said,) = caplog.messages
    assert "'answers' of acme 1.2 is not used" in said
    assert "'acme_answers'" in said


def test_a_broken_package_says_file_and_line(install):
    site = install("acme", {GROUP: {"brief": "acme_broken"}}, acme_broken="\n1 / 0\n")
    with pytest.raises(PluginError, match=r"acme_broken\.py:2: ZeroDivisionError") as caught:
        plugins.load(plugins.METHODS, "brief")
    assert str(site) in str(caught.value)


def test_a_misspelt_kind_is_compared_with_installed_ones_too(install):
    install("acme", {GROUP: {"brevity": "acme_brevity"}})
    with pytest.raises(PluginError, match="did you mean 'brevity'"):
        plugins.load(plugins.METHODS, "brevty")
