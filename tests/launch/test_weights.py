import json
import struct
from pathlib import Path

import pytest

from launch import _weights, sglang, vllm
from orchestrator.errors import LaunchError, UsageError
from orchestrator.serving import ServedModel


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
    error = UsageError if weights.startswith("bundled:") else LaunchError
    with pytest.raises(error, match=weights):
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


def shard(path: Path, *names: str) -> Path:
    """A safetensors file of empty tensors."""
    header = json.dumps({n: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in names})
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode())
    return path


@pytest.fixture
def cut(model: Path) -> Path:
    """A model in two files, as its index says."""
    (model / "model.safetensors").unlink()
    shard(model / "model-1.safetensors", "a", "b")
    shard(model / "model-2.safetensors", "c")
    write_index(model, a="model-1.safetensors", b="model-1.safetensors", c="model-2.safetensors")
    return model


def write_index(folder: Path, **files: str) -> None:
    text = json.dumps({"weight_map": files})
    (folder / "model.safetensors.index.json").write_text(text)


def test_an_index_that_says_what_the_files_say_changes_nothing(cut):
    before = _weights.identity(str(cut))["weights"]
    assert before == _weights.digest(sorted(cut.glob("*.safetensors")), cut)
    write_index(cut, c="model-2.safetensors", b="model-1.safetensors", a="model-1.safetensors")
    assert _weights.identity(str(cut))["weights"] == before


def test_an_index_that_chooses_among_files_is_part_of_the_identity(cut):
    shard(cut / "other.safetensors", "a", "b", "c")
    before = _weights.identity(str(cut))["weights"]
    write_index(cut, a="other.safetensors", b="other.safetensors", c="other.safetensors")
    assert _weights.identity(str(cut))["weights"] != before


def test_an_index_that_leaves_a_tensor_out_is_part_of_the_identity(cut):
    before = _weights.identity(str(cut))["weights"]
    write_index(cut, a="model-1.safetensors", b="model-1.safetensors")
    assert _weights.identity(str(cut))["weights"] != before


@pytest.mark.parametrize(
    "name",
    ["../model-1.safetensors", "/x.safetensors", "pytorch_model.bin", "none.safetensors"],
)
def test_an_index_that_names_another_file_is_refused(cut, name):
    shard(cut.parent / "model-1.safetensors", "a")
    (cut / "pytorch_model.bin").write_bytes(b"pickled")
    write_index(cut, a=name, b="model-1.safetensors", c="model-2.safetensors")
    with pytest.raises(LaunchError, match="no safetensors file of its folder"):
        _weights.identity(str(cut))


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"weight_map": 5}', "[" * 5000])
def test_an_index_that_is_none_is_refused(cut, content):
    (cut / "model.safetensors.index.json").write_text(content)
    with pytest.raises(LaunchError, match=r"index\.json"):
        _weights.identity(str(cut))


def test_pickled_weights_beside_are_in_no_identity_and_alone_are_refused(model):
    before = _weights.identity(str(model))
    (model / "pytorch_model.bin").write_bytes(b"pickled")
    assert _weights.identity(str(model)) == before
    (model / "model.safetensors").unlink()
    with pytest.raises(LaunchError, match="other weight formats are not loaded"):
        _weights.identity(str(model))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("adapter_config.json", {}, "holds a LoRA adapter"),
        ("config.json", {"transformers_weights": "x.safetensors"}, "transformers_weights"),
        ("config.json", {"speculators_config": {"verifier": {}}}, "speculators_config"),
        ("config.json", {"medusa_num_heads": 3}, "medusa_num_heads"),
        ("config.json", {"base_model_name_or_path": "org/other"}, "base_model_name_or_path"),
        ("tokenizer_config.json", {"tokenizer_file": "../elsewhere.json"}, "tokenizer_file"),
        ("tokenizer_config.json", {"vocab_file": "here.txt"}, "vocab_file"),
    ],
)
def test_a_folder_of_which_something_else_is_loaded_is_refused(
    model, name, content, said, monkeypatch
):
    monkeypatch.chdir(model.parent)
    (model.parent / "here.txt").write_text("a")
    (model.parent / "elsewhere.json").write_text("{}")
    (model / name).write_text(json.dumps(content))
    with pytest.raises(LaunchError, match=said):
        _weights.resolve(str(model))


@pytest.mark.parametrize(
    "name",
    [
        "config.5.0.0.json",
        "tokenizer.4.0.json",
        "additional_chat_templates/judge.jinja",
        "additional_chat_templates/license.jinja",
        "vocab.txt",
        "source.spm",
        "prophetnet.tokenizer",
        "modeling_own.py",
        "anything.json",
        "model.fp16.safetensors.index.json",
    ],
)
def test_a_file_of_any_name_counts(model, name):
    found = [_weights.identity(str(model))]
    (model / name).parent.mkdir(exist_ok=True)
    for content in ("a", "b"):
        (model / name).write_text(content)
        found.append(_weights.identity(str(model)))
    assert len({json.dumps(one) for one in found}) == 3


def test_the_modules_of_a_pooling_count(model):
    (model / "modules.json").write_text("[]")
    before = _weights.identity(str(model))
    (model / "1_Pooling").mkdir()
    (model / "1_Pooling" / "config.json").write_text("{}")
    assert _weights.identity(str(model)) != before


@pytest.mark.parametrize(
    "name",
    ["README.md", "LICENSE", "LICENSE.txt", ".gitattributes", "flax_model.msgpack", "model.gguf"],
)
def test_a_file_that_no_loader_reads_does_not_count(model, name):
    before = _weights.identity(str(model))
    (model / name).write_text("a")
    assert _weights.identity(str(model)) == before


def test_a_link_counts_by_what_it_leads_to(model):
    place = model.parent / "elsewhere.json"
    place.write_text("a")
    (model / "vocab.json").symlink_to(place)
    before = _weights.identity(str(model))
    place.write_text("b")
    assert _weights.identity(str(model)) != before


def make_adapter(folder: Path) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    return folder


def test_every_file_that_is_loaded_of_an_adapter_counts(tmp_path):
    folder = make_adapter(tmp_path / "a")
    found = [_weights.adapters({"n": str(folder)})]
    for name in ("adapter_config.json", "adapter_model.safetensors", "more.safetensors"):
        (folder / name).write_text("changed")
        found.append(_weights.adapters({"n": str(folder)}))
    assert len({json.dumps(one) for one in found}) == len(found)


def test_a_pickled_adapter_is_refused(tmp_path):
    folder = make_adapter(tmp_path / "a")
    (folder / "adapter_model.bin").write_bytes((folder / "adapter_model.safetensors").read_bytes())
    (folder / "adapter_model.safetensors").rename(folder / "adapter_other.safetensors")
    with pytest.raises(LaunchError, match=r"no adapter_model\.safetensors"):
        _weights.adapters({"n": str(folder)})


@pytest.mark.parametrize("kind", [vllm, sglang])
def test_servers_are_told_to_load_safetensors_and_nothing_else_can_be_said(kind):
    command = kind.argv(kind.Config(), "program", ServedModel("m", "/weights"), 8000)
    assert command[command.index("--load-format") + 1] == "safetensors"
    with pytest.raises(ValueError, match="--load-format is set by this program"):
        kind.Config(extra_args=["--load-format=pt"])
