"""Folders whose recipes may run code."""

import json
import stat

import pytest

from orchestrator.disk.paths import _distrusted, distrust
from orchestrator.errors import UsageError
from orchestrator.plugins import permission
from tests.others import NOBODY, given_to


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "r.yaml").touch()
    return folder


def test_nothing_is_allowed_until_a_person_allows_it(project, configuration):
    assert not permission.is_allowed(project / "r.yaml")
    assert not configuration.exists()
    assert permission.allow(project) == project
    assert permission.is_allowed(project / "r.yaml")
    assert permission.is_allowed(project / "runs" / "r")
    assert permission.is_allowed(project)
    assert permission.allowed() == [project]
    assert stat.S_IMODE(configuration.stat().st_mode) == 0o600
    assert stat.S_IMODE(configuration.parent.stat().st_mode) == 0o700
    assert [one.name for one in configuration.parent.iterdir()] == [configuration.name]
    assert permission.revoke(project) == project
    assert not permission.is_allowed(project / "r.yaml")


def test_neighbours_and_folders_above_are_not_allowed(project):
    permission.allow(project)
    for place in (project.parent / "r.yaml", project.parent / "project2" / "r.yaml"):
        assert not permission.is_allowed(place)
    assert not permission.is_allowed(project / ".." / "r.yaml")


def test_a_link_counts_only_where_it_and_its_target_are_allowed(project, tmp_path):
    permission.allow(project)
    other = tmp_path / "other.yaml"
    other.touch()
    (project / "link.yaml").symlink_to(other)
    (tmp_path / "into.yaml").symlink_to(project / "r.yaml")
    (tmp_path / "folder").symlink_to(project)
    assert not permission.is_allowed(project / "link.yaml")
    assert not permission.is_allowed(tmp_path / "into.yaml")
    assert permission.is_allowed(tmp_path / "folder" / "r.yaml")


def test_a_folder_that_others_may_write_to_is_refused_also_later(project):
    permission.allow(project)
    project.chmod(0o777)
    assert not permission.is_allowed(project / "r.yaml")
    with pytest.raises(UsageError, match="is writable by everyone"):
        permission.allow(project)


def test_the_folder_with_the_list_itself_is_refused(configuration, tmp_path):
    for folder in (tmp_path, configuration.parents[1]):
        folder.mkdir(exist_ok=True)
        with pytest.raises(UsageError, match="your configuration"):
            permission.allow(folder)
    with pytest.raises(UsageError, match="no such folder"):
        permission.allow(tmp_path / "nowhere")


def test_a_list_that_others_could_have_written_counts_for_nothing(project, configuration, caplog):
    permission.allow(project)
    configuration.chmod(0o666)
    assert not permission.is_allowed(project)
    assert "is writable by other users" in caplog.text
    assert "chmod go-w" in caplog.text


@pytest.mark.parametrize("text", ["", "{}", "[1]", '["relative"]', "\xff", '["."]'])
def test_a_damaged_list_counts_for_nothing(project, configuration, text):
    permission.allow(project)
    configuration.write_text(text, encoding="latin-1")
    assert not permission.is_allowed(project)
    assert permission.allowed() == []


def test_a_relative_configuration_folder_is_ignored(project, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", "project")
    monkeypatch.chdir(tmp_path)
    permission.allow(project)
    assert (tmp_path / "home" / ".config" / "orchestrator" / "allowed-folders.json").exists()


def test_a_distrusted_run_is_not_allowed(project):
    permission.allow(project)
    run = project / "runs" / "made"
    run.mkdir(parents=True)
    try:
        distrust(run)
        assert not permission.is_allowed(run)
        assert not permission.is_allowed(run / "recipe.yaml")
    finally:
        _distrusted.clear()


def test_revoking_names_the_folder_that_gives_permission(project):
    permission.allow(project)
    (project / "below").mkdir()
    with pytest.raises(UsageError, match=f"allow --revoke {project}"):
        permission.revoke(project / "below")
    with pytest.raises(UsageError, match="--list"):
        permission.revoke(project.parent)


def test_the_list_is_plain(project, configuration):
    permission.allow(project)
    assert json.loads(configuration.read_text()) == [str(project)]


@pytest.mark.others
def test_what_another_user_owns_is_never_allowed(project):
    permission.allow(project)
    recipe = given_to(NOBODY, project / "r.yaml")
    assert not permission.is_allowed(recipe)
    given_to(NOBODY, project)
    assert not permission.is_allowed(project / "new.yaml")
    with pytest.raises(UsageError, match="belongs to"):
        permission.allow(project)
