import json
from pathlib import Path

import pytest

from launch import _weights
from orchestrator.errors import LaunchError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model(tmp_path / "model")


def make_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


def test_a_folder_is_itself(model):
    assert _weights.resolve(str(model)) == model.resolve()


def test_the_same_content_elsewhere_has_the_same_identity(model, tmp_path):
    other = make_model(tmp_path / "other")
    assert _weights.identity(str(model)) == _weights.identity(str(other))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("model.safetensors", "weights"),
        ("model-00002.safetensors", "weights"),
        ("config.json", "config"),
        ("generation_config.json", "config"),
        ("tokenizer.json", "tokenizer"),
        ("chat_template.jinja", "chat_template"),
    ],
)
def test_a_changed_file_changes_exactly_its_part(model, name, part):
    before = _weights.identity(str(model))
    (model / name).write_text('{"changed": true}')
    after = _weights.identity(str(model))
    assert {key for key in before if before[key] != after[key]} == {part}


def test_a_template_within_the_tokenizer_settings_counts(model):
    (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    assert _weights.identity(str(model))["chat_template"] != "none"


def test_a_model_without_a_template_says_none(model):
    assert _weights.identity(str(model))["chat_template"] == "none"


def test_a_file_is_read_once_while_it_does_not_change(model):
    _weights.identity(str(model))
    hits = _weights._hash_file.cache_info().hits
    _weights.identity(str(model))
    assert _weights._hash_file.cache_info().hits > hits


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_a_folder_that_lacks_a_part_is_refused(model, missing):
    (model / missing).unlink()
    with pytest.raises(LaunchError, match=missing.removeprefix("model")):
        _weights.resolve(str(model))


def test_a_git_lfs_pointer_is_not_weights(model):
    (model / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(LaunchError, match="git lfs pull"):
        _weights.resolve(str(model))


@pytest.mark.parametrize("weights", ["bundled:no-such", "bundled:../x", "no/such/folder", "gone"])
def test_what_is_not_there_is_named(weights):
    with pytest.raises(LaunchError, match=weights.removeprefix("bundled:")):
        _weights.resolve(weights)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub" / "models--org--name"


def test_a_hub_model_in_the_cache_is_found_by_its_revision(hub):
    snapshot = make_model(hub / "snapshots" / "abc")
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text("abc")
    assert _weights.resolve("org/name") == snapshot == _weights.resolve("org/name@abc")


def test_a_hub_model_that_is_not_in_the_cache_is_not_downloaded(hub):
    with pytest.raises(LaunchError, match="org/name at revision v1 is not in the local cache"):
        _weights.resolve("org/name@v1")
