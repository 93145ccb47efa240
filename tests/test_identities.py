"""Keys of stored answers stay the same: with other keys every request would be sent again."""

import json
import struct

import pytest

from orchestrator import contracts
from orchestrator.ask import digest
from orchestrator.backend import BackendKind, ComparerKind
from orchestrator.dataset import DatasetKind
from orchestrator.recipe.schema import PluginRef
from orchestrator.runner.planning.prepare import open_dataset
from orchestrator.serving import LaunchKind


@pytest.fixture
def weights(tmp_path):
    """A folder with the files that identities are made of."""
    (tmp_path / "config.json").write_text('{"hidden_size": 8}')
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"}')
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    data = struct.pack("<Q", len(header)) + header + bytes(8)
    (tmp_path / "model.safetensors").write_bytes(data)
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(20))
    return tmp_path


# Recorded when plug-ins were modules; llamacpp's when names of files left it,
# fake's when its server became a small one.
LAUNCHED = [
    ("embedded", {}, "dc615152973bb2befc81399358c83bb6"),
    ("embedded", {"dtype": "bfloat16", "threads": 2}, "26b3289d8857d417789f36a33dfbf14d"),
    ("fake", {}, "4edf9d747fe76b35549b06fb29bd64c0"),
    ("llamacpp", {}, "da39a7cbf81d1bba696861f395da681a"),
    ("llamacpp", {"cache_type": "f32", "env": {"A": "1"}}, "b64d1a5fd679f6a73590ed1fd8b7195a"),
    ("sglang", {}, "e2a6dc941dd08862a093b73780d92e4c"),
    (
        "sglang",
        {"quantization": "fp8", "deterministic": True},
        "b6b1be4f872589bcd6e9bd31f659df40",
    ),
    ("vllm", {}, "d83b2845de617e7a1331e2d7022565f6"),
    (
        "vllm",
        {"dtype": "float32", "max_model_len": 64, "extra_args": ("--block-size", "16")},
        "0ce3bc409c1a4483eebdfead9aa2f235",
    ),
]


@pytest.mark.parametrize(("kind", "settings", "recorded"), LAUNCHED)
def test_the_identity_of_a_launched_model_is_the_recorded_one(weights, kind, settings, recorded):
    launch = contracts.load(LaunchKind, kind)
    place = "fake:0.7" if kind == "fake" else str(weights)
    found = launch(launch.Config.model_validate(settings)).identity(place)
    assert digest(sorted(found.items())).hex() == recorded


def test_the_identity_of_a_comparer_is_the_recorded_one(weights, monkeypatch):
    rouge = contracts.load(BackendKind, "rouge_l")
    bert = contracts.load(BackendKind, "bertscore")
    monkeypatch.setattr(f"{bert.__module__}._NEEDED", ())
    assert issubclass(rouge, ComparerKind)
    assert issubclass(bert, ComparerKind)
    by_bert = bert(bert.Config.model_validate({"encoder": str(weights), "layer": 2, "idf": True}))
    assert [
        digest(sorted(kind.identity(weights).items())).hex()
        for kind in (rouge(rouge.Config.model_validate({"tokens": "characters"})), by_bert)
    ] == ["2e80da862ad282f1c50af5e533d1f883", "2ea7a0face16130df155e1b281c31dce"]


# Recorded when plug-ins were modules. The same rows have the same hash in any format.
DATASETS = [
    ("csv", "prompt,reference\nA,b\nC,d\n", "fa46d7c920ea37e2d5911a5c9c2f2a05"),
    ("jsonl", '{"prompt": "A"}\n{"prompt": "B"}\n', "b9e300c907d894f2b02b4b7f23ce45b3"),
    ("json", '[{"prompt": "A"}, {"prompt": "B"}]', "b9e300c907d894f2b02b4b7f23ce45b3"),
]


@pytest.mark.parametrize(("kind", "text", "recorded"), DATASETS)
def test_the_fingerprint_of_a_file_is_the_recorded_one(tmp_path, kind, text, recorded):
    (tmp_path / f"items.{kind}").write_text(text)
    config = contracts.load(DatasetKind, kind).Config.model_validate({"path": f"items.{kind}"})
    assert open_dataset(PluginRef(kind, config), tmp_path).fingerprint.hex() == recorded


@pytest.mark.parametrize(
    ("settings", "recorded"),
    [({}, "de1f95b4db608ea38e0e521c194a32f6"), ({"n": 5}, "440f2fdbed27aebd3e6fc768915aef70")],
)
def test_the_fingerprint_of_the_demo_is_the_recorded_one(settings, recorded):
    config = contracts.load(DatasetKind, "demo").Config.model_validate(settings)
    assert open_dataset(PluginRef("demo", config)).fingerprint.hex() == recorded
